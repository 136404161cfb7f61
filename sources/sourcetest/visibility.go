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

// overlapping says in the log why a test is not run.
func overlapping(t *testing.T, h Harness) bool {
	t.Helper()
	if !h.Overlap {
		t.Log("not tested: writers are serial")
	}
	return h.Overlap
}

func rollbackUnseen(t *testing.T, h Harness) {
	table := h.New(t, Options{})
	w := join(t, table, "one")
	table.Insert(t, keyed("k", "before")...)
	gone := table.Begin(t)
	gone.Insert(t, keyed("k", "x")...)
	want(t, "rows seen while another is not committed", len(w.pending()), 1)
	gone.Rollback(t)
	want(t, "rows seen after it is rolled back", len(w.pending()), 1)
	open := table.Begin(t)
	open.Insert(t, keyed("k", "a")...)
	open.Insert(t, keyed("k", "b")...)
	want(t, "rows seen while others are not committed", len(w.pending()), 1)
	open.Commit(t)
	want(t, "rows seen in the end", len(w.pending()), 3)
	if _, is := w.pending()["x"]; is {
		t.Error("a rolled-back row is seen")
	}
}

// The lower id that commits later: https://github.com/ThreeDotsLabs/watermill/issues/311
func lateCommit(t *testing.T, h Harness) {
	if !overlapping(t, h) {
		return
	}
	table := h.New(t, Options{})
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
	if !overlapping(t, h) {
		return
	}
	table := h.New(t, Options{})
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
	part := w.row("b").part // reading rows makes a source look sooner
	w.until("the horizon to pass", func() bool { return w.fetch(core.FetchRequest{Part: part}).Horizon.Oldest >= first.Next })
	want(t, "rows seen once it has passed", len(w.pending()), 2)
}

func serialWriters(t *testing.T, h Harness) {
	table, w := start(t, h, keyed("k", "a")...)
	if w.fetch(core.FetchRequest{}).Horizon != nil {
		return
	}
	if h.Overlap {
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
