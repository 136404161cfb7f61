//go:build linux

package bench

import (
	"database/sql"
	"flag"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

// bookRows are in a table that is audited or cleaned.
var bookRows = flag.Int("rows", 1_000_000, "so many `ROWS` are audited, and cleaned; for a look at less")

// audited is a table with bookRows rows, half of them published and with a receipt, each with its event. What is inserted
// later brings its event.
type audited struct {
	name string
	src  core.Auditor
	db   *sql.DB
	// insert is the statement of one row, connections how many producers run it.
	insert      string
	connections int
}

// benchmarkAudit audits a table, alone and beside producers that commit half as fast as they can. In the first round only.
func (r *report) benchmarkAudit(b *testing.B, open func(*testing.B) audited) {
	once(b, func() {
		a := open(b)
		r.add(a.name+", audit of "+count(*bookRows)+" rows, their events and receipts", "", "s", atMost(10), a.time(b).Seconds())

		const period = 15 * time.Second
		produce := func(long time.Duration, rate float64) produced {
			for _, table := range []string{"outbox", "events"} {
				if _, err := a.db.Exec(`DELETE FROM ` + table + ` WHERE id LIKE 'row-%'`); err != nil {
					b.Fatal(err)
				}
			}
			return produce(b, a.db, a.insert, a.connections, long, rate)
		}
		most := produce(period/3, 0).rate
		without := produce(period/3, most/2)
		ended, longest := make(chan int), time.Duration(0)
		stop := time.After(period)
		go func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					ended <- n
					return
				default:
					longest = max(longest, a.time(b))
				}
			}
		}()
		beside := produce(period, most/2)
		audits := <-ended
		name := a.name + " producers at half their own most, beside audits / that half"
		r.add(name, "", "", atLeast(0.95), beside.rate/(most/2))
		r.add("  their own most, alone", name, "rows/s", goal{}, most)
		r.add("  half of it without audits / that half", name, "", goal{}, without.rate/(most/2))
		r.add("  an insert's p50 without audits", name, "ms", goal{}, milliseconds(without.p50))
		r.add("  an insert's p50 beside them", name, "ms", goal{}, milliseconds(beside.p50))
		r.add("  audits meanwhile", name, "", goal{}, float64(audits))
		r.add("  the longest of them", name, "s", goal{}, longest.Seconds())
	})
}

// time audits the table, whose books must balance, and says how long that took.
func (a audited) time(b *testing.B) time.Duration {
	found, err := a.src.Audit(b.Context(), core.AuditRequest{
		Events: &core.Events{Table: "events", Key: "id", Command: "id"}, ReceiptWithin: time.Hour, Lease: time.Minute, Timeout: 5 * time.Minute,
	})
	if err != nil || !found.OK() {
		b.Errorf("the audit: %v, %+v", err, found.Laws)
	}
	return found.Took
}
