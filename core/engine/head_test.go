package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
)

// A full batch of bad rows at the head of the table, as many as a batch may have, must not fill every batch from then on:
// the good rows behind them are delivered soon, whatever is bad about the others:
// https://github.com/MarcosRabadan/Agendia/issues/260
func TestAFullBatchOfBadRowsAtTheHeadStopsNobody(t *testing.T) {
	const batch = 100
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, c := range map[string]struct {
		decide func(core.Record) core.Outcome
		call   func(ctx context.Context) error // what becomes of a call with a bad row
		soon   time.Duration
	}{
		"refused for now":  {decide: func(core.Record) core.Outcome { return core.Outcome{Kind: core.Retryable, Code: "500"} }, soon: 20 * time.Second},
		"refused for good": {decide: func(core.Record) core.Outcome { return core.Outcome{Kind: core.Permanent, Code: "422"} }, soon: 20 * time.Second},
		"fail their calls": {call: func(context.Context) error { return errAway }, soon: 30 * time.Second},
		"kill the sink":    {call: func(context.Context) error { return fmt.Errorf("killed: %w", core.ErrSinkDied) }, soon: 30 * time.Second},
		"hang":             {call: hang, soon: time.Minute},
	} {
		for _, keyed := range []string{"", "own key "} {
			t.Run(name+" "+keyed, func(t *testing.T) {
				inBubble(t, 1, func(w *world) {
					bad := func(r core.Record) bool { return strings.HasPrefix(r.ID, "bad") }
					for i := range batch {
						key := keyed
						if keyed != "" {
							key += fmt.Sprint(i)
						}
						w.add(fmt.Sprint("bad-", i), key)
					}
					w.excuseAll()
					good := func(n int) {
						for i := range n {
							w.add(fmt.Sprint("good-", w.n), fmt.Sprint("good-key-", i%50))
						}
					}
					good(300)
					w.sink.Decide(func(r core.Record) core.Outcome {
						if bad(r) && c.decide != nil {
							return c.decide(r)
						}
						return core.Outcome{Kind: core.Delivered}
					})
					w.sink.Before(func(ctx context.Context, batch []core.Record) error {
						for _, r := range batch {
							if bad(r) && c.call != nil {
								return c.call(ctx)
							}
						}
						return nil
					})
					// One call at a time: nothing else goes while a bad batch is on its way.
					defer w.start(w.connector(func(c *engine.Connector) {
						c.Policy.MaxRecords, c.Policy.InFlight, c.Policy.Timeout = batch, 1, 2*time.Second
					}))()
					w.wait(c.soon, "the good rows published", func() bool { return w.states()[core.Published] == 300 })
					time.Sleep(2 * time.Minute)
					good(300)
					w.wait(c.soon, "later ones too", func() bool { return w.states()[core.Published] == 600 })
				})
			})
		}
	}
}

// With nothing else left, rows that fail every call and rows suspected of killing are tried by turns while the gate is closed:
// neither keeps the others waiting for ever.
func TestSuspectsAndRowsThatFailTheirCallsGoByTurns(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		for i := range 30 {
			w.add(fmt.Sprint("spoil-", i), fmt.Sprint("k", i))
		}
		w.add("kill", "")
		w.add("innocent", "")
		w.excuseAll()
		var mended atomic.Bool
		w.sink.Before(func(_ context.Context, batch []core.Record) error {
			for _, r := range batch {
				if r.ID == "kill" {
					return fmt.Errorf("killed: %w", core.ErrSinkDied)
				}
				if strings.HasPrefix(r.ID, "spoil") && !mended.Load() {
					return errAway
				}
			}
			return nil
		})
		defer w.start(w.connector(func(c *engine.Connector) { c.Policy.InFlight = 1 }))()
		w.wait(3*time.Hour, "the killer dead and the innocent one published", func() bool {
			return w.row("kill").State == core.Dead && w.row("innocent").State == core.Published
		})
		mended.Store(true)
		w.wait(5*time.Minute, "the others published", func() bool { return w.states()[core.Published] == w.n-1 })
	})
}

// The worker dies while the last permitted attempt of a row runs. What came of that attempt is unknown, so it counts
// nothing; the next worker sends the row once more, and its end is that of any last attempt:
// https://github.com/graphile/worker/issues/254
func TestAWorkerThatDiesDuringTheLastAttemptLeavesNothingStuck(t *testing.T) {
	for name, c := range map[string]struct {
		block, works bool
		state        core.State // of the row in the end
		next         core.State // of the next one of its key
	}{
		"fails again":          {state: core.Dead, next: core.Published},
		"fails again, block":   {block: true, state: core.Dead, next: core.Pending},
		"works at last":        {works: true, state: core.Published, next: core.Published},
		"works at last, block": {block: true, works: true, state: core.Published, next: core.Published},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(w *world) {
				w.add("a", "k")
				w.add("next", "k")
				fails := func(r core.Record) core.Outcome {
					if r.ID == "a" {
						return core.Outcome{Kind: core.Retryable, Code: "500"}
					}
					return core.Outcome{Kind: core.Delivered}
				}
				w.sink.Decide(fails)
				w.sink.Excuse("a") // it may end dead
				policy := func(c2 *engine.Connector) { c2.Policy.Retry.MaxAttempts, c2.Policy.BlockOnDead = 3, c.block }
				stop := w.start(w.connector(policy))
				w.wait(time.Minute, "two attempts", func() bool { return w.row("a").Attempts == 2 })
				stop()
				w.dies("a")
				if c.works {
					w.sink.Decide(nil)
				}
				defer w.start(w.connector(policy))()
				w.wait(time.Minute, "an end", func() bool { return w.row("a").State != core.Pending })
				time.Sleep(10 * time.Minute)
				a, next := w.row("a"), w.row("next")
				if a.State != c.state || next.State != c.next {
					t.Fatalf("a is %s (%s), the next one of its key %s", a.State, a.LastError, next.State)
				}
				if want := map[core.State]int{core.Dead: 3, core.Published: 2}[c.state]; a.Attempts != want || a.Deliveries != 4 {
					t.Errorf("%d attempts, %d deliveries, want %d and 4", a.Attempts, a.Deliveries, want)
				}
				if next.State == core.Pending {
					if err := w.source.Skip(t.Context(), core.Act{ID: "a", By: "person"}); err != nil {
						t.Fatal(err)
					}
					w.wait(15*time.Second, "the key goes on", func() bool { return w.row("next").State == core.Published })
				}
			})
		})
	}
}

// dies lets a worker announce the row and vanish; its lease runs out.
func (w *world) dies(id string) {
	w.t.Helper()
	got, err := w.source.Acquire(w.t.Context(), "dies", 1, time.Second, false)
	if err != nil || len(got) != 1 {
		w.t.Fatal(got, err)
	}
	announce := []core.Announcement{{Batch: 1, Seqs: []int64{w.row(id).Seq}}}
	if err := w.source.Step(w.t.Context(), "dies", []core.Change{{Lease: got[0].Lease, Announce: announce}}); err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(time.Second)
}
