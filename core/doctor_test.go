package core_test

import (
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

func TestClock(t *testing.T) {
	before := time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)
	after := before.Add(8 * time.Second) // a slow answer is no drift
	for server, want := range map[time.Duration]string{
		0: "", 4 * time.Second: "", 8 * time.Second: "", -core.MaxDrift: "", 8*time.Second + core.MaxDrift: "",
		-time.Minute:     "1m0s behind",
		10 * time.Minute: "9m52s ahead of",
	} {
		var d core.Diagnosis
		d.Clock(before.Add(server), before, after)
		f := d.Findings[0]
		if (f.Level == core.Warning) != (want != "") || !strings.Contains(f.Say, want) {
			t.Errorf("%v: %+v, want %q", server, f, want)
		}
	}
}
