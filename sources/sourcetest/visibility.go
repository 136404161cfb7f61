package sourcetest

import (
	"testing"

	"github.com/connectd/connectd/core"
)

var visibilityTests = []test{
	{"uncommitted rows are unseen, rolled-back ones never seen", rollbackUnseen},
	{"a row that commits behind the cursor is found", lateCommit},
	{"the horizon passes a transaction when it has ended", horizonPasses},
	{"without a horizon no row commits behind a visible one", serialWriters},
}

// overlapping gives two open transactions, or says why not.
func overlapping(t *testing.T, table Table) bool {
	t.Helper()
	if table.Begin == nil {
		t.Log("not tested: the harness has no overlapping transactions")
		return false
	}
	return true
}

func rollbackUnseen(t *testing.T, h Harness) {
	table := h.New(t, Options{})
	if !overlapping(t, table) {
		return
	}
	w := join(t, table, "one")
	open, gone := table.Begin(t), table.Begin(t)
	open.Insert(t, keyed("k", "a")...)
	gone.Insert(t, keyed("k", "x")...)
	table.Insert(t, keyed("k", "b")...)
	want(t, "rows seen while others are open", len(w.pending()), 1)
	gone.Rollback(t)
	open.Commit(t)
	want(t, "rows seen in the end", len(w.pending()), 2)
	if _, is := w.pending()["x"]; is {
		t.Error("a rolled-back row is seen")
	}
}

// The lower id that commits later: https://github.com/ThreeDotsLabs/watermill/issues/311
func lateCommit(t *testing.T, h Harness) {
	table := h.New(t, Options{})
	if !overlapping(t, table) {
		return
	}
	w := join(t, table, "one")
	late := table.Begin(t)
	late.Insert(t, keyed("k", "late")...)
	table.Insert(t, keyed("k", "early")...)
	early := w.row("early")
	late.Commit(t)
	if got := w.row("late"); got.Record.Seq > early.Record.Seq {
		t.Fatalf("the late row has seq %d, not below %d: the harness does not overlap", got.Record.Seq, early.Record.Seq)
	}
	page := w.fetch(core.FetchRequest{Part: early.part, After: 0, Known: []int64{early.Record.Seq}})
	wantIDs(t, "rows behind the cursor that are not known", page.Rows, "late")
}

func horizonPasses(t *testing.T, h Harness) {
	table := h.New(t, Options{})
	if !overlapping(t, table) {
		return
	}
	w := join(t, table, "one")
	open := table.Begin(t)
	open.Insert(t, keyed("k", "a")...)
	first := w.fetch(core.FetchRequest{}).Horizon
	if first == nil {
		t.Fatal("transactions overlap, but pages have no horizon")
	}
	table.Insert(t, keyed("k", "b")...)
	if now := w.fetch(core.FetchRequest{}).Horizon; now.Oldest >= first.Next {
		t.Errorf("%+v has passed %+v while the transaction is open", now, first)
	}
	open.Commit(t)
	w.until("the horizon to pass", func() bool { return w.fetch(core.FetchRequest{}).Horizon.Oldest >= first.Next })
	want(t, "rows seen once it has passed", len(w.pending()), 2)
}

func serialWriters(t *testing.T, h Harness) {
	table, w := start(t, h, keyed("k", "a")...)
	if w.fetch(core.FetchRequest{}).Horizon != nil {
		return
	}
	if table.Begin != nil {
		t.Error("pages have no horizon, but transactions can overlap")
	}
	last := w.row("a").Record.Seq
	for _, id := range []string{"b", "c", "d"} {
		table.Insert(t, keyed("k", id)...)
		if seq := w.row(id).Record.Seq; seq <= last {
			t.Errorf("row %s has seq %d after %d", id, seq, last)
		} else {
			last = seq
		}
	}
}
