package core

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParseHeadersKeepsOrderAndValues(t *testing.T) {
	got, err := ParseHeaders([]byte(` {"b":"x\u0000é","a":1.50,"b":true,"n":null,"o":{"k": [1]}} `))
	if err != nil {
		t.Fatal(err)
	}
	want := []Header{{"b", "x\x00é"}, {"a", "1.50"}, {"b", "true"}, {"o", `{"k": [1]}`}}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestParseHeadersOfNothing(t *testing.T) {
	for _, text := range []string{"", "{}"} {
		if got, err := ParseHeaders([]byte(text)); err != nil || len(got) != 0 {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
}

func TestParseHeadersRefusesWhatIsNoObject(t *testing.T) {
	for _, text := range []string{"[]", `"a"`, "null", "{", `{"a"}`, `{"a":}`, `{"a":1} x`, `{"a":1}{}`, `{"a":1}}`, `{"a":1,}`, "{\"a\":\"\xff\"}", " "} {
		if got, err := ParseHeaders([]byte(text)); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

func TestCleanTextIsAlwaysFitToStore(t *testing.T) {
	for _, s := range []string{"", "plain", "a\x00b\nc", "\xff\xfe", strings.Repeat("é", MaxErrorText), strings.Repeat("\xff", 1<<20)} {
		got := CleanText(s)
		if !utf8.ValidString(got) || len(got) > MaxErrorText || strings.ContainsAny(got, "\x00\n") {
			t.Errorf("CleanText(%.20q) = %.40q, %d bytes", s, got, len(got))
		}
	}
	if got := CleanText("plain é"); got != "plain é" {
		t.Errorf("clean text was changed to %q", got)
	}
}
