package daemon

import (
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

// TestEveryMetricIsDocumented, and no documented one is missing.
func TestEveryMetricIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		for _, name := range regexp.MustCompile("`(connectd_[a-z_]+)`").FindAllStringSubmatch(line, -1) {
			documented[name[1]] = documented[name[1]] || strings.HasPrefix(line, "| `connectd_") // a row of the table
		}
	}
	maps.DeleteFunc(documented, func(_ string, is bool) bool { return !is })
	m := newMetrics("", "")
	o := m.observe("orders", newMeter(time.Now))
	o.Settled(nil, 0, map[string]int{"invalid": 1})
	audit := newAuditing(nil)
	audit.set(false, new(core.Audit), "")
	m.registry.MustRegister(newAuditGauges(func() []audited { return []audited{{"orders", audit}} }), newGauges(func() []Health { return []Health{{Name: "orders", Lag: new(core.Lag)}} }))
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		name := f.GetName()
		if !strings.HasPrefix(name, "connectd_") {
			continue // of the Go runtime and the process
		}
		if !documented[name] {
			t.Errorf("%s is not documented", name)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("%s is documented and does not exist", name)
	}
}
