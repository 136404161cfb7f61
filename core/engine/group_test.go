package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
)

// lockedSource is a source of which one partition can be locked by somebody: a call that is for it hangs until its context
// ends. Each call takes its time.
type lockedSource struct {
	*faultySource
	took            time.Duration
	noFetch, noStep atomic.Int64 // the partition that is locked for reads, for steps; -1: none
	// calls for several partitions
	fetchedTogether, steppedTogether atomic.Int64
}

func newLockedSource(w *world, took time.Duration) *lockedSource {
	s := &lockedSource{faultySource: &faultySource{Source: w.source}, took: took}
	s.noFetch.Store(-1)
	s.noStep.Store(-1)
	return s
}

// Wait never wakes: reads are polls.
func (s *lockedSource) Wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (s *lockedSource) Fetch(ctx context.Context, reqs []core.FetchRequest) ([]core.Page, error) {
	if len(reqs) > 1 {
		s.fetchedTogether.Add(1)
	}
	if slices.ContainsFunc(reqs, func(r core.FetchRequest) bool { return int64(r.Part) == s.noFetch.Load() }) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	time.Sleep(s.took)
	return s.faultySource.Fetch(ctx, reqs)
}

func (s *lockedSource) Step(ctx context.Context, owner string, changes []core.Change) error {
	if len(changes) > 1 {
		s.steppedTogether.Add(1)
	}
	if slices.ContainsFunc(changes, func(c core.Change) bool { return int64(c.Lease.Part) == s.noStep.Load() }) {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(s.took)
	return s.faultySource.Step(ctx, owner, changes)
}

// pendingOutside counts the rows that wait in other partitions.
func (w *world) pendingOutside(part int) int {
	n := 0
	for _, r := range w.source.Rows() {
		if r.Part != part && r.State == core.Pending {
			n++
		}
	}
	return n
}

// Sixteen partitions with nothing to say cost a read for each pause between polls, and a thousand as many as they fill.
func TestIdlePartitionsAreReadTogether(t *testing.T) {
	for partitions, most := range map[int]int{1: 150, 16: 250, 1024: 3500} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			inBubble(t, partitions, func(w *world) {
				s := newLockedSource(w, 0)
				defer w.start(w.connector(func(c *engine.Connector) { c.Source = s }))()
				time.Sleep(10 * time.Second)
				before := s.count("fetch")
				time.Sleep(time.Minute)
				if n := s.count("fetch") - before; n > most {
					t.Errorf("%d reads in a minute, want at most %d", n, most)
				}
			})
		})
	}
}

// What becomes ready while a step runs goes together in the next.
func TestStepsThatAreReadyGoTogether(t *testing.T) {
	inBubble(t, 16, func(w *world) {
		s := newLockedSource(w, 50*time.Millisecond)
		defer w.start(w.connector(func(c *engine.Connector) { c.Source = s }))()
		time.Sleep(time.Second)
		before := s.count("step")
		for range 1000 {
			w.insert(1, 500)
			time.Sleep(10 * time.Millisecond)
		}
		w.publishAll(time.Second)
		// Two may run at a time, each for 50 ms, and a thousand rows of ten seconds would each be announced and settled.
		if n := s.count("step") - before; n > 450 {
			t.Errorf("%d steps in eleven seconds", n)
		}
		if n := s.steppedTogether.Load(); n < 100 {
			t.Errorf("%d steps were of several partitions", n)
		}
	})
}

// A call that waits for one partition fails at its deadline; then each partition goes alone, and the others go on.
func TestAPartitionThatHangsHoldsUpTheOthersForOneDeadline(t *testing.T) {
	for _, call := range []string{"fetch", "step"} {
		t.Run(call, func(t *testing.T) {
			inBubble(t, 16, func(w *world) {
				s := newLockedSource(w, time.Millisecond)
				c := w.connector(func(c *engine.Connector) { c.Source = s })
				deadline := c.Policy.Lease / 2
				defer w.start(c)()
				w.insert(200, 200)
				w.publishAll(10 * time.Second)
				locked := &s.noStep
				if call == "fetch" {
					locked = &s.noFetch
				}
				locked.Store(3)
				w.insert(200, 200)
				w.wait(deadline+2*time.Second, "the others", func() bool { return w.pendingOutside(3) == 0 })
				for range 5 {
					w.insert(200, 200)
					w.wait(2*time.Second, "the others, once it is known", func() bool { return w.pendingOutside(3) == 0 })
					time.Sleep(3 * time.Second)
				}
				locked.Store(-1)
				w.publishAll(time.Minute)
				together := s.fetchedTogether.Load()
				time.Sleep(time.Minute)
				if s.fetchedTogether.Load() == together {
					t.Error("they are not read together again")
				}
			})
		})
	}
}

// longTailSource is a source in which passing over the rows of keys that wait takes a second.
type longTailSource struct {
	*lockedSource
	long atomic.Int64 // such reads
}

func (s *longTailSource) Fetch(ctx context.Context, reqs []core.FetchRequest) ([]core.Page, error) {
	if slices.ContainsFunc(reqs, func(r core.FetchRequest) bool { return r.After == 0 && len(r.Exclude) > 0 }) {
		s.long.Add(1)
		time.Sleep(time.Second)
	}
	return s.lockedSource.Fetch(ctx, reqs)
}

// A partition is read from the start whenever a key of it may go on. When it has a long tail of another that waits, those
// reads take long, and the other partitions' do not.
func TestAPartitionWithALongTailDoesNotHoldUpTheOthers(t *testing.T) {
	inBubble(t, 16, func(w *world) {
		s := &longTailSource{lockedSource: newLockedSource(w, time.Millisecond)}
		w.insert(200, 200)
		away := map[string]bool{} // the rows of one partition, each of a key of its own
		for _, r := range w.source.Rows() {
			away[r.ID] = r.Part == 0
		}
		w.sink.Decide(func(r core.Record) core.Outcome {
			if away[r.ID] {
				return core.Outcome{Kind: core.Retryable, Scope: core.ScopeKey, Code: "away"}
			}
			return core.Outcome{Kind: core.Delivered}
		})
		defer w.start(w.connector(func(c *engine.Connector) { c.Source, c.Policy.Retry.Max = s, 5*time.Second }))()
		time.Sleep(10 * time.Second)
		for range 60 {
			w.insert(100, 100)
			w.wait(700*time.Millisecond, "the other partitions", func() bool { return w.pendingOutside(0) == 0 })
			time.Sleep(time.Second)
		}
		if n := s.long.Load(); n < 10 {
			t.Errorf("only %d reads took long", n)
		}
	})
}

// robbedSource takes a lease of the first step that settles rows of several partitions, just before that is carried out.
type robbedSource struct {
	*lockedSource
	t      *testing.T
	robbed atomic.Int64 // the partition, 1 the first
}

func (s *robbedSource) Step(ctx context.Context, owner string, changes []core.Change) error {
	settles := 0
	for _, c := range changes {
		settles += min(len(c.Settle), 1)
	}
	l := changes[0].Lease
	if settles > 1 && s.robbed.CompareAndSwap(0, int64(l.Part+1)) {
		if _, err := s.Renew(ctx, owner, []core.Lease{l}, 0); err != nil {
			s.t.Error(err)
		}
		if got, err := s.Acquire(ctx, "thief", 1, time.Hour, false); err != nil || len(got) != 1 {
			s.t.Error(got, err)
		}
	}
	return s.lockedSource.Step(ctx, owner, changes)
}

// One lease of a group is lost: nothing is written, and the others go on without a trace of it.
func TestALostLeaseInAGroupIsNobodyElsesTrouble(t *testing.T) {
	inBubble(t, 16, func(w *world) {
		w.zombies = true
		s := &robbedSource{lockedSource: newLockedSource(w, 10*time.Millisecond), t: t}
		c := w.connector(func(c *engine.Connector) { c.Source, c.Policy.InFlight, c.Policy.MaxRecords = s, 32, 10 })
		w.sink.Before(func(ctx context.Context, batch []core.Record) error {
			return memory.Delay(time.Duration(1+batch[0].Seq%7)*15*time.Millisecond)(ctx, batch)
		})
		w.insert(2000, 2000)
		defer w.start(c)()
		w.wait(5*time.Second, "robbed", func() bool { return s.robbed.Load() > 0 })
		robbed := int(s.robbed.Load() - 1)
		w.wait(20*time.Second, "the others", func() bool { return w.pendingOutside(robbed) == 0 })
		for _, r := range w.source.Rows() {
			if r.Part != robbed && r.Deliveries != 1 {
				t.Errorf("row %s of partition %d: %d deliveries", r.ID, r.Part, r.Deliveries)
			}
		}
		for part := range 16 {
			if in := w.source.Inflight(part); part != robbed && len(in) > 0 {
				t.Errorf("partition %d keeps inflight rows: %v", part, in)
			}
		}
	})
}

// A worker that learns of a lost lease by the fence's answer or by a renewal's cancels the partition's calls.
func TestG5ALostLeaseCancelsItsCalls(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.zombies = true
		w.insert(2, 2)
		var cancelled atomic.Bool
		w.sink.Before(func(ctx context.Context, batch []core.Record) error {
			<-ctx.Done()
			cancelled.Store(true)
			return ctx.Err()
		})
		c := w.connector(func(c *engine.Connector) { c.Policy.Timeout = time.Hour })
		defer w.start(c)()
		w.wait(5*time.Second, "announced", func() bool { return len(w.source.Inflight(0)) > 0 })
		time.Sleep(time.Second)
		if _, err := w.source.Renew(t.Context(), c.Owner, []core.Lease{{Part: 0, Epoch: 1}}, 0); err != nil {
			t.Fatal(err)
		}
		if got, err := w.source.Acquire(t.Context(), "thief", 1, time.Hour, false); err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		w.wait(c.Policy.Lease/2, "cancelled at the next renewal", cancelled.Load)
	})
}
