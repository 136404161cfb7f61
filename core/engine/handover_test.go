package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
)

// What runs is finished, and its answers are settled with a context that the signal has not ended:
// https://github.com/pal-tamas/rask/pull/566, https://github.com/Trendyol/go-pq-cdc/pull/149
func TestDrainFinishesWhatRunsAndDuplicatesNothing(t *testing.T) {
	inBubble(t, 4, func(w *world) {
		w.insert(3000, 100)
		w.sink.Before(memory.Delay(300 * time.Millisecond))
		stop := w.start(w.connector(nil))
		w.wait(10*time.Second, "calls run", func() bool { return w.sink.Calls() >= 4 })
		stop()
		for part := range 4 {
			if owner, _, _ := w.source.Lease(part); owner != "" {
				t.Errorf("partition %d still belongs to %s", part, owner)
			}
			if in := w.source.Inflight(part); len(in) > 0 {
				t.Errorf("partition %d: inflight rows left: %v", part, in)
			}
		}
		w.sink.Before(nil)
		defer w.start(w.connector(nil))()
		w.publishAll(10 * time.Second)
		if n := len(w.sink.Arrivals()); n != w.n {
			t.Errorf("%d arrivals for %d rows", n, w.n)
		}
	})
}

// Our own cancellation is nobody's failed attempt: https://github.com/dapr/dapr/issues/7258,
// https://github.com/dapr/components-contrib/issues/4449
func TestDrainCutShortSettlesAsUnknownAndReleases(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(5, 5)
		w.sink.Before(memory.Block(nil)) // until its context ends
		c := w.connector(func(c *engine.Connector) { c.Policy.Timeout, c.Policy.Drain = time.Hour, 2*time.Second })
		stop := w.start(c)
		w.wait(5*time.Second, "a call runs", func() bool { return w.sink.Calls() > 0 })
		began := time.Now()
		stop()
		if d := time.Since(began); d < 2*time.Second || d > 3*time.Second {
			t.Errorf("the drain took %v, want 2s and a little", d)
		}
		if owner, _, _ := w.source.Lease(0); owner != "" {
			t.Error("the lease was not released")
		}
		for _, r := range w.source.Rows() {
			if r.State != core.Pending || r.Deliveries != 1 || r.Attempts != 0 || r.Crashes != 0 {
				t.Errorf("row %s: %+v", r.ID, r)
			}
		}
		w.sink.Before(nil)
		defer w.start(w.connector(nil))()
		w.publishAll(5 * time.Second)
		for _, a := range w.sink.Arrivals() {
			if !a.Record.PossibleDuplicate() {
				t.Errorf("row %s was sent again without the mark", a.Record.ID)
			}
		}
	})
}

func TestASecondSignalCutsTheDrainShort(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(5, 5)
		w.sink.Before(memory.Block(nil))
		c := w.connector(func(c *engine.Connector) { c.Policy.Timeout, c.Policy.Drain = time.Hour, time.Hour })
		stop := w.start(c)
		w.wait(5*time.Second, "a call runs", func() bool { return w.sink.Calls() > 0 })
		began := time.Now()
		time.AfterFunc(time.Second, c.Stop)
		stop()
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("the drain took %v after a second signal at 1s", d)
		}
		c.Stop() // again, and after the end: harmless
	})
}

func TestADrainWithTheDatabaseAwayEnds(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(5, 5)
		f := &faultySource{Source: w.source}
		w.sink.Before(func(context.Context, []core.Record) error { f.away(); return nil })
		stop := w.start(w.connector(func(c *engine.Connector) { c.Source, c.Policy.Drain = f, time.Second }))
		w.wait(5*time.Second, "a call ran", func() bool { return w.sink.Calls() > 0 })
		began := time.Now()
		stop()
		if d := time.Since(began); d > 15*time.Second {
			t.Errorf("the drain took %v", d)
		}
		if owner, _, _ := w.source.Lease(0); owner == "" {
			t.Error("the lease was given back although the batch could not be settled")
		}
	})
}

// A partition given away while its rows are on their way: https://github.com/namastack/namastack-outbox/issues/204
func TestPartitionsAreSharedEvenlyAndHandedOverCleanly(t *testing.T) {
	inBubble(t, 16, func(w *world) {
		lease := engine.DefaultPolicy().Lease
		w.sink.Before(memory.Delay(50 * time.Millisecond))
		owned := func(c *engine.Connector) int {
			n := 0
			for part := range 16 {
				if owner, _, _ := w.source.Lease(part); owner == c.Owner {
					n++
				}
			}
			return n
		}
		working := make(chan struct{})
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for range 6000 {
				w.insert(1, 97)
				select {
				case <-working:
					return
				case <-time.After(50 * time.Millisecond):
				}
			}
		}()
		a, b, c := w.connector(nil), w.connector(nil), w.connector(nil)
		stopA := w.start(a)
		w.wait(time.Second, "the first has all", func() bool { return owned(a) == 16 })
		stopB := w.start(b)
		w.wait(2*lease, "two share evenly", func() bool { return owned(a) == 8 && owned(b) == 8 })
		stopC := w.start(c)
		w.wait(2*lease, "three share evenly", func() bool { return owned(a) <= 6 && owned(b) <= 6 && owned(c) >= 4 })
		stopA()
		w.wait(2*lease, "two share evenly again", func() bool { return owned(b) == 8 && owned(c) == 8 })
		stopB()
		w.wait(2*lease, "the last has all", func() bool { return owned(c) == 16 })
		close(working)
		<-stopped
		w.publishAll(10 * time.Second)
		stopC()
		for id, n := range w.sent() {
			if n != 1 {
				t.Errorf("row %s was sent %d times in a clean hand-over", id, n)
			}
		}
	})
}

func TestARenewalThatMeetsAReleaseLosesNothing(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		var seen leaseObserver
		stop := w.start(w.connector(func(c *engine.Connector) {
			c.Source, c.Observer, c.Policy.Drain = &slowSource{Source: w.source}, &seen, time.Minute
		}))
		time.Sleep(5 * time.Second)
		stop()
		if seen.lost != 0 || seen.released != 1 {
			t.Errorf("%d lost, %d released, want 0 and 1", seen.lost, seen.released)
		}
	})
}
