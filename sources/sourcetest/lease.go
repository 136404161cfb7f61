package sourcetest

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

var leaseTests = []test{
	{"Acquire takes at most max and each partition once", acquireMax},
	{"two acquirers never get the same partition", acquireRace},
	{"the epoch rises with each acquisition", epochRises},
	{"a held lease is not taken, a free and an expired one are", acquireFreeOrExpired},
	{"leases that are held hide no expired one behind them", acquireBehindHeld},
	{"a lease lasts as long as was asked", leaseLasts},
	{"Renew revives an expired lease", renewRevives},
	{"Renew does not revive a lease that was taken", renewTaken},
	{"Renew needs the very owner and epoch", renewGuard},
	{"a stale owner's Step changes nothing", staleStep},
	{"a Step after the deadline changes nothing", lateStep},
	{"a Step with another epoch or owner changes nothing", foreignStep},
	{"a stale owner's Release changes nothing", staleRelease},
	{"a released lease is free at once and its Step refused", releaseFrees},
	{"Release leaves the inflight rows", releaseKeepsInflight},
}

func acquireMax(t *testing.T, h Harness) {
	w := join(t, h.New(t, Options{}), "one")
	want(t, "acquired with max 0", len(w.acquire(0, false)), 0)
	want(t, "acquired with max 1", len(w.acquire(1, false)), 1)
	w.acquire(1000, false)
	parts := map[int]bool{}
	for _, l := range w.leases {
		parts[l.Part] = true
	}
	want(t, "leases", len(w.leases), w.partitions())
	want(t, "different partitions", len(parts), w.partitions())
	want(t, "acquired when all are held", len(w.acquire(1000, false)), 0)
}

func acquireRace(t *testing.T, h Harness) {
	table := h.New(t, Options{})
	workers := make([]*worker, 8)
	for i := range workers {
		workers[i] = join(t, table, string(rune('a'+i)))
	}
	var wg sync.WaitGroup
	taken := make([][]core.Acquired, len(workers))
	errs := make([]error, len(workers))
	for i, w := range workers {
		wg.Go(func() { taken[i], errs[i] = w.src.Acquire(w.ctx, w.owner, 1000, long, false) })
	}
	wg.Wait()
	owners := map[int]int{}
	for i := range workers {
		if errs[i] != nil {
			t.Errorf("acquirer %d: %v", i, errs[i])
		}
		for _, a := range taken[i] {
			owners[a.Lease.Part]++
		}
	}
	for part, n := range owners {
		if n > 1 {
			t.Errorf("partition %d was given to %d acquirers", part, n)
		}
	}
	// Rows that another transaction has locked may be skipped; they are free afterwards.
	rest := workers[0].acquire(1000, false)
	want(t, "partitions acquired in the end", len(owners)+len(rest), workers[0].partitions())
}

func epochRises(t *testing.T, h Harness) {
	_, w := start(t, h)
	before := w.lease(0).Epoch
	w.release()
	w.acquireAll()
	if after := w.lease(0).Epoch; after <= before {
		t.Errorf("epoch went from %d to %d", before, after)
	}
}

func acquireFreeOrExpired(t *testing.T, h Harness) {
	table, one := start(t, h)
	two := join(t, table, "two")
	want(t, "acquired while held", len(two.acquire(1000, false)), 0)
	one.expire()
	for _, a := range two.acquireAll() {
		want(t, "TakenOver of an expired lease", a.TakenOver, true)
		if a.Lease.Epoch <= one.lease(a.Lease.Part).Epoch {
			t.Errorf("the epoch did not rise: %+v", a.Lease)
		}
	}
	two.release()
	for _, a := range join(t, table, "three").acquireAll() {
		want(t, "TakenOver of a free lease", a.TakenOver, false)
	}
}

// The page of leases that must be left alone, looked at again and again: https://github.com/riverqueue/river/pull/1318
func acquireBehindHeld(t *testing.T, h Harness) {
	table, one := start(t, h)
	last := one.lease(one.partitions() - 1)
	if last.Part == 0 {
		t.Log("not tested: the table has one partition")
		return
	}
	kept, err := one.src.Renew(one.ctx, one.owner, []core.Lease{last}, time.Millisecond)
	one.must(err)
	want(t, "leases renewed", len(kept), 1)
	two := join(t, table, "two")
	var taken []core.Acquired
	two.until("the expired lease to be taken", func() bool {
		taken = two.acquire(1, false)
		return len(taken) > 0
	})
	want(t, "partitions taken", len(taken), 1)
	want(t, "partition taken", taken[0].Lease.Part, last.Part)
	want(t, "partitions taken after it", len(two.acquire(1000, false)), 0)
}

// The lease that somebody on the way made shorter: https://github.com/hookdeck/outpost/pull/869
func leaseLasts(t *testing.T, h Harness) {
	for _, asked := range []time.Duration{2 * time.Minute, 47 * time.Hour} {
		w := join(t, h.New(t, Options{}), "one")
		lasts := func(what string) {
			t.Helper()
			infos, err := w.op.Leases(w.ctx)
			w.must(err)
			for _, l := range infos {
				if l.Left > asked || l.Left < asked-patience {
					t.Errorf("%s of %v has %v left", what, asked, l.Left)
				}
			}
		}
		taken, err := w.src.Acquire(w.ctx, w.owner, 1000, asked, false)
		w.must(err)
		lasts("a lease")
		var leases []core.Lease
		for _, a := range taken {
			leases = append(leases, a.Lease)
		}
		_, err = w.src.Renew(w.ctx, w.owner, leases, time.Second)
		w.must(err)
		_, err = w.src.Renew(w.ctx, w.owner, leases, asked)
		w.must(err)
		lasts("a renewed lease")
	}
}

func renewRevives(t *testing.T, h Harness) {
	table, w := start(t, h)
	w.expire()
	w.refused("Step after the deadline", w.step(0, core.Change{}))
	kept, err := w.src.Renew(w.ctx, w.owner, w.leases, long)
	w.must(err)
	want(t, "leases renewed", len(kept), len(w.leases))
	w.must(w.step(0, core.Change{}))
	want(t, "acquired by another", len(join(t, table, "two").acquire(1000, false)), 0)
}

func renewTaken(t *testing.T, h Harness) {
	table, one := start(t, h)
	one.expire()
	two := join(t, table, "two")
	two.acquireAll()
	kept, err := one.src.Renew(one.ctx, one.owner, one.leases, long)
	one.must(err)
	want(t, "leases renewed after the takeover", len(kept), 0)
	two.must(two.step(0, core.Change{}))
}

// Renewing within one tick of the clock changes no value: https://github.com/pydio/cells/pull/927
func renewGuard(t *testing.T, h Harness) {
	_, w := start(t, h)
	l := w.lease(0)
	for name, try := range map[string]struct {
		owner string
		lease core.Lease
		kept  int
	}{
		"its own":           {w.owner, l, 1},
		"another owner":     {"two", l, 0},
		"an older epoch":    {w.owner, core.Lease{Part: l.Part, Epoch: l.Epoch - 1}, 0},
		"a newer epoch":     {w.owner, core.Lease{Part: l.Part, Epoch: l.Epoch + 1}, 0},
		"another partition": {w.owner, core.Lease{Part: 1_000_000, Epoch: l.Epoch}, 0},
	} {
		for range 20 {
			kept, err := w.src.Renew(w.ctx, try.owner, []core.Lease{try.lease}, long)
			w.must(err)
			want(t, "leases renewed with "+name, len(kept), try.kept)
		}
	}
	kept, err := w.src.Renew(w.ctx, w.owner, nil, long)
	w.must(err)
	want(t, "leases renewed of none", len(kept), 0)
}

// change touches everything a Step can touch.
func change(l core.Lease, r found) core.Change {
	return core.Change{
		Lease:    l,
		Settle:   []core.Settlement{{Seq: r.Record.Seq, Deliveries: r.Deliveries, State: core.Dead, Attempts: 1, Failure: &core.Failure{Code: "x"}}},
		Finished: []core.Finished{{Batch: 1}},
		Announce: []core.Announcement{{Batch: 2, Seqs: []int64{r.Record.Seq}}},
	}
}

// unchanged wants the row as it was, with batch 1 announced and not batch 2.
func unchanged(t *testing.T, w *worker, before core.RowInfo) {
	t.Helper()
	after, history := w.show(before.ID)
	want(t, "state", after.State, before.State)
	want(t, "deliveries", after.Deliveries, before.Deliveries)
	want(t, "attempts", after.Attempts, before.Attempts)
	want(t, "last error", after.LastError, before.LastError)
	want(t, "lines of history", len(history), 0)
	want(t, "rows in flight", w.inFlight(), 1)
}

// A late settlement of a former owner: https://github.com/speakeasy-api/gram/pull/4984,
// https://github.com/rails/solid_queue/issues/589
func staleStep(t *testing.T, h Harness) {
	table, one := start(t, h, keyed("k", "a")...)
	r := one.row("a")
	one.announce(1, r)
	one.expire()
	two := join(t, table, "two")
	two.acquireAll()
	r2 := two.row("a")
	two.announce(1, r2)
	before, _ := two.show("a")
	for _, deliveries := range []int{r.Deliveries, r2.Deliveries} {
		c := change(one.lease(r.part), r)
		c.Settle[0].Deliveries = deliveries
		one.refused("the former owner's Step", one.src.Step(one.ctx, one.owner, c))
	}
	unchanged(t, two, before)
}

func lateStep(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a")...)
	r := w.row("a")
	w.announce(1, r)
	before, _ := w.show("a")
	w.expire()
	w.refused("a Step after the deadline", w.src.Step(w.ctx, w.owner, change(w.lease(r.part), r)))
	unchanged(t, w, before)
}

func foreignStep(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a")...)
	r := w.row("a")
	w.announce(1, r)
	before, _ := w.show("a")
	l := w.lease(r.part)
	w.refused("Step of another owner", w.src.Step(w.ctx, "two", change(l, r)))
	w.refused("Step of no owner", w.src.Step(w.ctx, "", change(l, r)))
	l.Epoch++
	w.refused("Step with a higher epoch", w.src.Step(w.ctx, w.owner, change(l, r)))
	l.Epoch -= 2
	w.refused("Step with a lower epoch", w.src.Step(w.ctx, w.owner, change(l, r)))
	w.refused("Step on a partition that is not", w.src.Step(w.ctx, w.owner, change(core.Lease{Part: 1_000_000, Epoch: 1}, r)))
	unchanged(t, w, before)
}

func staleRelease(t *testing.T, h Harness) {
	table, one := start(t, h)
	stale := slices.Clone(one.leases)
	one.expire()
	one.refused("Release after the deadline", one.src.Release(one.ctx, one.owner, stale[0]))
	two := join(t, table, "two")
	two.acquireAll()
	one.refused("the former owner's Release", one.src.Release(one.ctx, one.owner, stale[0]))
	one.refused("Release with the new epoch", one.src.Release(one.ctx, one.owner, two.lease(stale[0].Part)))
	two.must(two.step(stale[0].Part, core.Change{}))
	infos, err := two.op.Leases(two.ctx)
	two.must(err)
	want(t, "owner of the lease", infos[stale[0].Part].Owner, "two")
}

func releaseFrees(t *testing.T, h Harness) {
	table, one := start(t, h)
	l := one.lease(0)
	one.release()
	one.refused("Step after Release", one.src.Step(one.ctx, one.owner, core.Change{Lease: l}))
	one.refused("a second Release", one.src.Release(one.ctx, one.owner, l))
	kept, err := one.src.Renew(one.ctx, one.owner, []core.Lease{l}, long)
	one.must(err)
	want(t, "leases renewed after Release", len(kept), 0)
	infos, err := one.op.Leases(one.ctx)
	one.must(err)
	want(t, "lease rows", len(infos), one.partitions())
	want(t, "owner of a free lease", infos[0].Owner, "")
	begun := time.Now()
	join(t, table, "two").acquireAll()
	if took := time.Since(begun); took > patience {
		t.Errorf("a free lease was taken after %v", took)
	}
}

func releaseKeepsInflight(t *testing.T, h Harness) {
	table, one := start(t, h, keyed("k", "a")...)
	r := one.row("a")
	one.announce(1, r)
	one.release()
	want(t, "rows in flight after Release", one.inFlight(), 1)
	// Nobody knows what became of the batch, so it counts although the lease was free.
	got := join(t, table, "two").takeOver(false)
	want(t, "recovered", got[r.Record.Seq], core.Recovered{Seq: r.Record.Seq, State: core.Pending, Crashes: 1})
}
