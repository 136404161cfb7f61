package sourcetest

import (
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

var takeoverTests = []test{
	{"only announced rows are counted", countAnnounced},
	{"only rows that are still pending are touched", countPendingOnly},
	{"six crashes bury a row, with history", sixCrashes},
	{"under hold an announced row is held, with history", holdRecovered},
	{"six crashes bury a row under hold too", sixCrashesHeld},
	{"an announcement that commits while the acquirer waits is seen", announceDuringTakeover},
	{"attempts and due time stay", takeoverCountsNoAttempt},
	{"announcements are gone after a takeover", takeoverSweeps},
}

// Every database recovers what a dead worker left, by the same test: https://github.com/JasperFx/wolverine/issues/3971
func countAnnounced(t *testing.T, h Harness) {
	table, one := start(t, h, append(keyed("k", "a", "b", "c"), keyed("other", "d")...)...)
	a, b := one.row("a"), one.row("b")
	one.announce(1, a)
	one.announce(2, b)
	one.expire()
	two := join(t, table, "two")
	got := two.takeOver(false)
	want(t, "rows recovered", len(got), 2)
	for _, r := range []found{a, b} {
		want(t, "recovered", got[r.Record.Seq], core.Recovered{Seq: r.Record.Seq, State: core.Pending, Crashes: 1})
	}
	for id, n := range map[string]int{"a": 1, "b": 1, "c": 0, "d": 0} {
		r := two.row(id)
		want(t, "deliveries of "+id, r.Deliveries, n)
		want(t, "crashes of "+id, r.Crashes, n)
	}
}

// The reaper that overwrites a finished job: https://github.com/riverqueue/river/issues/1302
func countPendingOnly(t *testing.T, h Harness) {
	table, one := start(t, h, keyed("k", "a", "b", "c", "d")...)
	rows := one.pending()
	one.announce(1, rows["a"], rows["b"], rows["c"], rows["d"])
	one.settle(rows["a"], core.Settlement{State: core.Published})
	one.settle(rows["b"], core.Settlement{State: core.Dead, Attempts: 1, Failure: &core.Failure{Code: "x"}})
	one.settle(rows["c"], core.Settlement{State: core.Held, Failure: &core.Failure{Code: "x"}})
	one.expire()
	two := join(t, table, "two")
	got := two.takeOver(true)
	want(t, "rows recovered", len(got), 1)
	for id, state := range map[string]core.State{"a": core.Published, "b": core.Dead, "c": core.Held, "d": core.Held} {
		info, _ := two.show(id)
		want(t, "state of "+id, info.State, state)
		want(t, "deliveries of "+id, info.Deliveries, 1)
	}
}

// A row at its limit must not stay where no one looks: https://github.com/graphile/worker/issues/254
func sixCrashes(t *testing.T, h Harness) {
	table, w := start(t, h, keyed("k", "a")...)
	buryByCrashes(t, table, w, false)
	info, history := w.show("a")
	want(t, "state", info.State, core.Dead)
	want(t, "the last error begins with the reason", strings.HasPrefix(info.LastError, core.ReasonCrash+": "), true)
	tellsWho(t, "the last error", info.LastError, "one")
	want(t, "crashes", info.Crashes, core.MaxCrashes)
	want(t, "deliveries", info.Deliveries, core.MaxCrashes)
	if len(history) != 1 || history[0].Code != core.ReasonCrash || history[0].Deliveries != core.MaxCrashes || history[0].By == "" {
		t.Fatalf("history: %+v", history)
	}
	tellsWho(t, "the history", history[0].Message, "one")
}

// buryByCrashes lets workers die with row a in flight until it is no longer pending.
func buryByCrashes(t *testing.T, table Table, w *worker, hold bool) {
	t.Helper()
	for n := 1; n <= core.MaxCrashes; n++ {
		r := w.row("a")
		w.announce(int64(n), r)
		w.expire()
		w.leases = nil
		got := w.takeOver(hold)[r.Record.Seq]
		want(t, "crashes recovered", got.Crashes, n)
		switch {
		case n == core.MaxCrashes:
			want(t, "state recovered", got.State, core.Dead)
		case hold:
			want(t, "state recovered", got.State, core.Held)
			w.must(w.op.ReleaseRow(w.ctx, core.Act{ID: "a", By: "ops"}))
		default:
			want(t, "state recovered", got.State, core.Pending)
		}
	}
}

func holdRecovered(t *testing.T, h Harness) {
	table, one := start(t, h, keyed("k", "a")...)
	r := one.row("a")
	one.announce(1, r)
	one.expire()
	two := join(t, table, "two")
	want(t, "recovered", two.takeOver(true)[r.Record.Seq], core.Recovered{Seq: r.Record.Seq, State: core.Held, Crashes: 1})
	info, history := two.show("a")
	want(t, "state", info.State, core.Held)
	want(t, "the last error begins with the reason", strings.HasPrefix(info.LastError, core.ReasonUncertain+": "), true)
	tellsWho(t, "the last error", info.LastError, "one")
	if len(history) != 1 || history[0].Code != core.ReasonUncertain || history[0].By != "two" {
		t.Fatalf("history: %+v", history)
	}
	tellsWho(t, "the history", history[0].Message, "one")
}

// A row that has a failure already when its worker dies:
// https://github.com/rails/solid_queue/commit/629ae5559f7700084900b61eec3edb5db467f945
func sixCrashesHeld(t *testing.T, h Harness) {
	table, w := start(t, h, keyed("k", "a")...)
	buryByCrashes(t, table, w, true)
	info, _ := w.show("a")
	want(t, "state", info.State, core.Dead)
	want(t, "the last error begins with the reason", strings.HasPrefix(info.LastError, core.ReasonCrash+": "), true)
}

func announceDuringTakeover(t *testing.T, h Harness) {
	table, one := start(t, h, keyed("k", "a")...)
	if table.Announce == nil {
		t.Log("not tested: the harness cannot hold an announcement open")
		return
	}
	r := one.row("a")
	lease := one.lease(r.part)
	one.expire()
	commit := table.Announce(t, lease, core.Announcement{Batch: 1, Seqs: []int64{r.Record.Seq}})
	two := join(t, table, "two")
	type answer struct {
		taken []core.Acquired
		err   error
	}
	got := make(chan answer, 1)
	go func() {
		// A source that skips locked leases gets it at a later try, one that waits at the first.
		for {
			taken, err := two.src.Acquire(two.ctx, two.owner, two.partitionsOf(), long, false)
			for _, a := range taken {
				if a.Lease.Part == r.part {
					got <- answer{taken, err}
					return
				}
			}
			if err != nil {
				got <- answer{nil, err}
				return
			}
		}
	}()
	select {
	case a := <-got:
		t.Errorf("the partition was taken over while an announcement held its lease: %+v", a)
		commit()
		return
	case <-time.After(50 * time.Millisecond): // it waits, or tries again and again
	}
	commit()
	a := <-got
	two.must(a.err)
	for _, p := range a.taken {
		if p.Lease.Part == r.part && (len(p.Recovered) != 1 || p.Recovered[0].Seq != r.Record.Seq) {
			t.Errorf("the announcement that had just committed was missed: %+v", p)
		}
	}
	want(t, "deliveries", two.row("a").Deliveries, 1)
}

// partitionsOf is partitions for goroutines other than the test's.
func (w *worker) partitionsOf() int {
	n, err := w.src.Partitions(w.ctx)
	if err != nil {
		w.t.Error(err)
	}
	return n
}

// Nobody knows what became of a row that was on its way, so a takeover is no failed attempt. What it counts, crashes, makes
// the row wait for others and ends it in time: https://github.com/graphile/worker/pull/313
func takeoverCountsNoAttempt(t *testing.T, h Harness) {
	table, one := start(t, h, keyed("k", "a")...)
	one.settle(one.row("a"), core.Settlement{State: core.Pending, Attempts: 3, Failure: &core.Failure{Code: "x", Message: "y"}})
	one.announce(1, one.row("a"))
	before, _ := one.show("a")
	one.expire()
	two := join(t, table, "two")
	two.takeOver(false)
	after, _ := two.show("a")
	want(t, "attempts", after.Attempts, 3)
	want(t, "last error", after.LastError, before.LastError)
	want(t, "available at", after.AvailableAt, before.AvailableAt)
	want(t, "deliveries", after.Deliveries, before.Deliveries+1)
}

func takeoverSweeps(t *testing.T, h Harness) {
	table, one := start(t, h, keyed("k", "a", "b")...)
	one.announce(1, one.row("a"))
	one.announce(2, one.row("b"))
	one.must(one.step(one.row("a").part, core.Change{Finished: []core.Finished{{Batch: 2, Keep: true}}}))
	one.expire()
	two := join(t, table, "two")
	want(t, "rows recovered", len(two.takeOver(false)), 1)
	want(t, "rows in flight", two.inFlight(), 0)
	two.expire()
	two.leases = nil
	want(t, "rows recovered by the next takeover", len(two.takeOver(false)), 0)
	want(t, "deliveries", two.row("a").Deliveries, 1)
}
