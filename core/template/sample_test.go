package template_test

import (
	"net/url"
	"testing"

	"github.com/connectd/connectd/core/template"
)

// TestSample has a value for whatever the templates name.
func TestSample(t *testing.T) {
	texts := []string{"{id}{key}{route}{type}", "{header:tenant}-{header:x y|none}", "{{header:no}} {header:tenant}"}
	r := template.Sample("v", texts...)
	for i, want := range []string{"vvvv", "v-v", "{header:no} v"} {
		parsed, err := template.Parse(texts[i], "")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parsed.Expand(&r, nil); err != nil || got != want {
			t.Errorf("%s is %q, %v, want %q", texts[i], got, err, want)
		}
	}
}

func TestEscapeURL(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	if got := template.EscapeURL("aZ09-._~ /%ü"); got != "aZ09-._~%20%2F%25%C3%BC" {
		t.Error(got)
	}
	if back, err := url.PathUnescape(template.EscapeURL(string(all))); err != nil || back != string(all) {
		t.Errorf("%q, %v", back, err)
	}
}
