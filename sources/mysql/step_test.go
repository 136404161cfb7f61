package mysql_test

import (
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/mysql"
)

// However few inflight rows there are, a step finds its own by the key: reading the table it would wait for others'.
func TestInflightRowsAreFoundByTheirKey(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.config(t)
		initialise(t, cfg, mysql.InitOptions{Partitions: 16})
		src, err := mysql.Open(t.Context(), cfg)
		must(t, err)
		defer src.Close()
		taken, err := src.Acquire(t.Context(), "one", 16, time.Minute, false)
		must(t, err)
		var changes []core.Change
		for _, a := range taken {
			changes = append(changes, core.Change{Lease: a.Lease, Announce: []core.Announcement{{Batch: 1, Seqs: []int64{1}}, {Batch: 2, Seqs: []int64{2}}, {Batch: 3, Seqs: []int64{3}}}})
		}
		must(t, src.Step(t.Context(), "one", changes))
		for _, partitions := range []int{1, 2, 16} {
			plan, err := src.ExplainText(t.Context(), src.LeaseText(partitions), "outbox", "one")
			if err != nil || !strings.Contains(plan, "range by PRIMARY") && !strings.Contains(plan, "const by PRIMARY") || strings.Contains(plan, "filesort") {
				t.Errorf("leases of %d partitions: %s, %v", partitions, plan, err)
			}
			for _, text := range src.FinishTexts(partitions) {
				plan, err := src.ExplainText(t.Context(), text, "outbox")
				if err != nil || !strings.Contains(plan, "i: eq_ref by PRIMARY") && !strings.Contains(plan, "i: const by PRIMARY") {
					t.Errorf("%d partitions: %s, %v", partitions, plan, err)
				}
			}
		}
	})
}
