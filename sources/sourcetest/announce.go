package sourcetest

import (
	"testing"

	"github.com/connectd/connectd/core"
)

var announceTests = []test{
	{"an announcement writes no outbox row and shows the row as sending", announceWrites},
	{"a repeated announcement inserts nothing", announceTwice},
	{"a finished batch is gone, and finishing again is harmless", finishTwice},
	{"a batch kept empty blocks a late copy of its announcement", tombstone},
	{"one Step settles, finishes and announces", stepAll},
}

func announceWrites(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a", "b")...)
	before, _ := w.show("a")
	want(t, "sending before", before.Sending, false)
	w.announce(1, w.row("a"))
	after, _ := w.show("a")
	want(t, "sending", after.Sending, true)
	want(t, "state", after.State, core.Pending)
	want(t, "deliveries", after.Deliveries, 0)
	other, _ := w.show("b")
	want(t, "sending of the other row", other.Sending, false)
	want(t, "rows in flight", w.inFlight(), 1)
	w.settle(w.row("a"), core.Settlement{State: core.Dead, Failure: &core.Failure{Code: "x"}})
	dead, _ := w.show("a")
	want(t, "sending of a dead row", dead.Sending, false)
}

func announceTwice(t *testing.T, h Harness) {
	table, one := start(t, h, keyed("k", "a", "b")...)
	a, b := one.row("a"), one.row("b")
	one.announce(7, a)
	one.announce(7, a)
	one.announce(7, b) // the batch is there already, whatever it is said to hold
	want(t, "rows in flight", one.inFlight(), 1)
	one.expire()
	got := join(t, table, "two").takeOver(false)
	if _, is := got[a.Record.Seq]; !is || len(got) != 1 {
		t.Errorf("recovered %v, want row a alone", got)
	}
}

func finishTwice(t *testing.T, h Harness) {
	table, one := start(t, h, keyed("k", "a", "b")...)
	a, b := one.row("a"), one.row("b")
	one.announce(1, a)
	one.announce(2, b)
	for range 2 {
		one.must(one.step(a.part, core.Change{Finished: []core.Finished{{Batch: 1}, {Batch: 99}}}))
	}
	one.expire()
	got := join(t, table, "two").takeOver(false)
	if _, is := got[b.Record.Seq]; !is || len(got) != 1 {
		t.Errorf("recovered %v, want row b alone", got)
	}
}

func tombstone(t *testing.T, h Harness) {
	table, one := start(t, h, keyed("k", "a")...)
	a := one.row("a")
	one.announce(1, a)
	for range 2 {
		one.must(one.step(a.part, core.Change{Finished: []core.Finished{{Batch: 1, Keep: true}}}))
	}
	one.announce(1, a) // the late copy
	want(t, "rows in flight", one.inFlight(), 0)
	one.expire()
	want(t, "rows recovered", len(join(t, table, "two").takeOver(false)), 0)
}

func stepAll(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a", "b")...)
	a, b := w.row("a"), w.row("b")
	w.announce(1, a)
	w.must(w.step(a.part, core.Change{
		Settle:   []core.Settlement{{Seq: a.Record.Seq, State: core.Published}},
		Finished: []core.Finished{{Batch: 1}},
		Announce: []core.Announcement{{Batch: 2, Seqs: []int64{b.Record.Seq}}},
	}))
	info, _ := w.show("a")
	want(t, "state of a", info.State, core.Published)
	info, _ = w.show("b")
	want(t, "sending of b", info.Sending, true)
	want(t, "rows in flight", w.inFlight(), 1)
}
