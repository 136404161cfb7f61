package sourcetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/connectd/connectd/core"
)

// WantFinding wants a finding of this level about what, with these words in it.
func WantFinding(t *testing.T, d core.Diagnosis, level core.Level, what string, words ...string) core.Finding {
	t.Helper()
	for _, f := range d.Findings {
		if f.What != what || f.Level != level {
			continue
		}
		for _, w := range words {
			if !strings.Contains(f.Say+" "+f.Do, w) {
				t.Errorf("%q is missing in %+v", w, f)
			}
		}
		if level == core.Problem && f.Do == "" {
			t.Errorf("it does not say what to do: %+v", f)
		}
		return f
	}
	t.Fatalf("no %s about %s in %+v", level, what, d.Findings)
	return core.Finding{}
}

// WantSound wants an initialised table that was looked at, and nothing to be said against it but about what a test server may
// be or have.
func WantSound(t *testing.T, d core.Diagnosis, but ...string) {
	t.Helper()
	for _, f := range d.Findings {
		if f.Level != core.Fine && !slices.Contains(but, f.What) {
			t.Errorf("%+v", f)
		}
	}
	if !d.Looked {
		t.Errorf("the table was not looked at: %+v", d)
	}
}
