package signature

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestPercentEncode(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "",
		"order-1":              "order-1",
		"Euro € 😀":             "Euro%20%E2%82%AC%20%F0%9F%98%80", // the example of the HTTP binding
		`say "100%"`:           "say%20%22100%25%22",
		"a\r\nX-Injected: 1":   "a%0D%0AX-Injected:%201",
		"\x00\t\x1f\x7f\x80~!": "%00%09%1F%7F%80~!",
		"a+b/c?d#e&f=g":        "a+b/c?d#e&f=g",
		" ":                    "%20",
	} {
		got := PercentEncode(text)
		if got != want {
			t.Errorf("PercentEncode(%q) = %q, want %q", text, got, want)
		}
		if back, err := PercentDecode(got); err != nil || back != text {
			t.Errorf("PercentDecode(%q) = %q, %v", got, back, err)
		}
	}
}

func TestPercentDecode(t *testing.T) {
	for text, want := range map[string]string{
		"%c3%bc": "ü", "%C3%BC": "ü", "a b": "a b", "a+b": "a+b", "%41": "A", "%2541": "%41", "ü": "ü",
	} {
		if got, err := PercentDecode(text); err != nil || got != want {
			t.Errorf("PercentDecode(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"%", "%4", "a%", "%zz", "%4z", "100%!", "%-1"} {
		if got, err := PercentDecode(text); err == nil || !strings.Contains(err.Error(), "two hexadecimal digits") {
			t.Errorf("PercentDecode(%q) = %q, %v", text, got, err)
		}
	}
}

// FuzzPercentDecode: any text survives the way through a header, and what is in the header is printable ASCII.
func FuzzPercentDecode(f *testing.F) {
	for _, s := range []string{"", "plain", "Euro €", "100%", "%zz", "a\r\nb", "\xff", `"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		header := PercentEncode(s)
		if strings.ContainsFunc(header, func(r rune) bool { return r <= ' ' || r >= utf8.RuneSelf-1 }) {
			t.Errorf("PercentEncode(%q) = %q", s, header)
		}
		if back, err := PercentDecode(header); err != nil || back != s {
			t.Errorf("%q became %q and then %q, %v", s, header, back, err)
		}
		if text, err := PercentDecode(s); err == nil {
			if again, err := PercentDecode(PercentEncode(text)); err != nil || again != text {
				t.Errorf("%q: %v", s, err)
			}
		}
	})
}
