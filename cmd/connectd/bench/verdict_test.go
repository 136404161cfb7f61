//go:build linux

package bench

import (
	"strings"
	"testing"
)

// A goal is held against the median, and what missed it says so in the table and in the JSON.
func TestVerdicts(t *testing.T) {
	var r report
	for _, v := range []float64{3, 1, 2} {
		r.add("met", "", "", atLeast(2), v)
		r.add("below", "", "", atLeast(2.1), v)
		r.add("above", "", "", atMost(1.9), v)
		r.add("  why", "", "", goal{}, v)
	}
	r.notMeasured("absent", "no server")
	var out strings.Builder
	if err := r.table(&out); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"met": "ok", "below": "BELOW", "above": "ABOVE", "  why": "3", "absent": "not measured: no server"} {
		found := false
		for line := range strings.Lines(out.String()) {
			line = strings.TrimRight(line, " \n")
			found = found || strings.HasPrefix(line, name+" ") && strings.HasSuffix(line, want)
		}
		if !found {
			t.Errorf("no line of %s ends with %s:\n%s", name, want, out.String())
		}
	}
	if f := r.figures[1]; *f.OK || f.Median != 2 || f.Min != 1 || f.Max != 3 || f.Goal != "at least 2.10" {
		t.Errorf("below is %+v", f)
	}
}
