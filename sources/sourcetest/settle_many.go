package sourcetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

func settleGuardMany(t *testing.T, h Harness) {
	var rows []Row
	for i := range 100 {
		rows = append(rows, keyed("k", fmt.Sprint("row", i))...)
	}
	_, w := start(t, h, rows...)
	old := w.pending()
	part := old["row0"].part
	var stale, retried core.Change
	for i := range rows {
		r := old[fmt.Sprint("row", i)]
		stale.Settle = append(stale.Settle, core.Settlement{Seq: r.Record.Seq, State: core.Published})
		if i%2 == 0 || i >= 50 {
			retried.Settle = append(retried.Settle, core.Settlement{Seq: r.Record.Seq, State: core.Pending, Attempts: 1, Failure: &core.Failure{Code: "x"}})
		}
	}
	w.must(w.step(part, retried))
	w.must(w.step(part, stale))
	left := w.pending()
	want(t, "rows pending", len(left), 75)
	for id, r := range left {
		want(t, "deliveries of "+id, r.Deliveries, 1)
	}
}

func settleMixed(t *testing.T, h Harness) {
	const n = 700
	rows := make([]Row, n)
	for i := range rows {
		rows[i] = Row{ID: fmt.Sprint("row", i), Key: "k", Keyed: true, Payload: []byte("x")}
	}
	_, w := start(t, h, rows...)
	pending := w.pending()
	wanted := map[string]core.State{}
	var c core.Change
	for i := range n {
		r := pending[fmt.Sprint("row", i)]
		s := core.Settlement{Seq: r.Record.Seq, Deliveries: r.Deliveries, State: core.Published}
		switch {
		case i%7 == 3:
			s.State, s.Attempts, s.Failure = core.Dead, 1, &core.Failure{Code: "x"}
		case i%7 == 5:
			s.State, s.Attempts, s.Delay, s.Failure = core.Pending, i, time.Hour, &core.Failure{Code: "y"}
		case i%11 == 4 || i > 600 && i%2 == 0:
			continue // not of this change: rows between settled ones stay
		}
		if s.State == core.Published && i%13 == 0 {
			s.Deliveries = 5 // not what the row says
			c.Settle = append(c.Settle, s)
			continue
		}
		wanted[r.Record.ID] = s.State
		c.Settle = append(c.Settle, s)
	}
	w.must(w.step(pending["row0"].part, c))
	list, err := w.op.List(w.ctx, core.Filter{Limit: n})
	w.must(err)
	want(t, "rows listed", len(list), n)
	for _, r := range list {
		state, settled := wanted[r.ID]
		if !settled {
			state = core.Pending
		}
		if r.State != state || (r.Deliveries == 1) != settled {
			t.Errorf("%s is %s with deliveries %d, want %s, settled %v", r.ID, r.State, r.Deliveries, state, settled)
		}
	}
}

// A large batch, and the cost of what it leaves behind.
func settleMany(t *testing.T, h Harness) {
	const n = 2_000
	rows := make([]Row, n)
	for i := range rows {
		rows[i] = Row{ID: fmt.Sprint("row", i), Key: "k", Keyed: true, Payload: []byte("x")}
	}
	table, w := start(t, h, keyed("k", "first")...)
	part := w.row("first").part
	fastest := func(want int) time.Duration {
		best := patience
		for range 20 {
			begun := time.Now()
			page := w.fetch(core.FetchRequest{Part: part, Limit: 10})
			best = min(best, time.Since(begun))
			if len(page.Rows) != want {
				t.Fatalf("read %d rows, want %d", len(page.Rows), want)
			}
		}
		return best
	}
	alone := fastest(1)
	table.Insert(t, rows...)
	page := w.fetch(core.FetchRequest{Part: part, Limit: 2 * n})
	want(t, "rows pending", len(page.Rows), n+1)
	announced := core.Announcement{Batch: 1}
	var c core.Change
	for _, r := range page.Rows[1:] {
		announced.Seqs = append(announced.Seqs, r.Record.Seq)
		c.Settle = append(c.Settle, core.Settlement{Seq: r.Record.Seq, State: core.Published})
	}
	w.must(w.step(part, core.Change{Announce: []core.Announcement{announced}}))
	want(t, "rows in flight", w.inFlight(), n)
	c.Finished = []core.Finished{{Batch: 1}}
	w.must(w.step(part, c))
	table.Insert(t, keyed("k", "last")...)
	if beside := fastest(2); beside > 10*alone+5*time.Millisecond {
		t.Errorf("a fetch takes %v beside %d published rows, %v without", beside, n, alone)
	}
}
