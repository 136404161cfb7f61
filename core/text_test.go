package core

import (
	"encoding/json"
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

// What encoding/json reads, ParseHeaders reads alike.
func FuzzParseHeaders(f *testing.F) {
	for _, text := range []string{`{}`, ` { "a" : "b" , "c":1.5e3 ,"d":[{"x":"}"}],"e":"\\\"","":null } `, `{"a":"\u0000"}`, `[`, `{"a":{}}`, "{\"a\":\"\xff\"}", `{"a":-1}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		headers, err := ParseHeaders(text)
		var want map[string]json.RawMessage
		valid := len(text) == 0 || utf8.Valid(text) && json.Unmarshal(text, &want) == nil && want != nil
		if (err == nil) != valid {
			t.Fatalf("%q: %v", text, err)
		}
		last := map[string]string{}
		for _, h := range headers {
			last[h.Name] = h.Value
		}
		for name, raw := range want {
			var s string
			if json.Unmarshal(raw, &s) != nil {
				s = string(raw)
			}
			if got, there := last[name]; string(raw) != "null" && (!there || got != s) {
				t.Fatalf("%q: %q is %q, want %q", text, name, got, s)
			}
		}
	})
}
