package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
)

// world is one source, one sink and the connectors that run between them, in a bubble of fake time.
type world struct {
	t      *testing.T
	source *memory.Source
	sink   *memory.Sink
	gate   *engine.Gate
	n      int
	// zombies: a worker that lost its lease may break the sink's contract once, with what it had announced.
	zombies bool
}

// inBubble runs a test in fake time with a fresh world.
func inBubble(t *testing.T, partitions int, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, source: memory.NewSource(partitions, time.Now), sink: memory.NewSink(), gate: engine.NewGate()}
		w.source.KeepPublished = true
		test(w)
		if v := w.sink.Violations(); len(v) > 0 && !w.zombies {
			t.Errorf("the sink saw the contract broken: %v", v)
		}
	})
}

// add commits one row.
func (w *world) add(id, key string) {
	tx := w.source.Begin()
	tx.Insert(memory.Row{ID: id, Key: key, Keyed: key != "", Payload: []byte("{}")})
	tx.Commit()
	w.n++
}

// insert commits n rows over keys keys.
func (w *world) insert(n, keys int) {
	for range n {
		w.add(fmt.Sprintf("id-%d", w.n), fmt.Sprintf("k%d", w.n%keys))
	}
}

func (w *world) connector(change func(c *engine.Connector)) *engine.Connector {
	c := &engine.Connector{
		Name: "test", Source: w.source, Sink: w.sink, Policy: engine.DefaultPolicy(),
		Owner: engine.NewOwner(), Gate: w.gate, Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(c)
	}
	return c
}

// start runs c until the returned function is called, which waits for its end.
func (w *world) start(c *engine.Connector) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	}
}

// wait lets fake time pass until ok holds, for at most d.
func (w *world) wait(d time.Duration, what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(max(5*time.Millisecond, d/2000)) {
		if time.Now().After(end) {
			w.t.Fatalf("after %v: not yet: %s; states %v", d, what, w.states())
		}
	}
}

// publishAll waits until every row is published.
func (w *world) publishAll(d time.Duration) {
	w.t.Helper()
	w.wait(d, "all published", func() bool { return w.states()[core.Published] == w.n })
}

func (w *world) states() map[core.State]int {
	states := map[core.State]int{}
	for _, r := range w.source.Rows() {
		states[r.State]++
	}
	return states
}

func (w *world) row(id string) core.RowInfo {
	w.t.Helper()
	r, _, err := w.source.Show(w.t.Context(), id)
	if err != nil {
		w.t.Fatalf("row %s: %v", id, err)
	}
	return r
}

// sent returns how often each id arrived.
func (w *world) sent() map[string]int {
	sent := map[string]int{}
	for _, a := range w.sink.Arrivals() {
		sent[a.Record.ID]++
	}
	return sent
}

// A key that several loops send at once, which the memory sink finds out: https://github.com/MassTransit/MassTransit/issues/3512
func TestRowsReachTheSinkOnceAndInOrder(t *testing.T) {
	inBubble(t, 4, func(w *world) {
		w.insert(5000, 50)
		stop := w.start(w.connector(nil))
		w.publishAll(10 * time.Second)
		stop()
		if n := len(w.sink.Arrivals()); n != w.n {
			t.Errorf("%d arrivals for %d rows", n, w.n)
		}
		for _, r := range w.source.Rows() {
			if r.Deliveries != 1 || r.Attempts != 0 {
				t.Fatalf("row %s: deliveries %d, attempts %d, want 1 and 0", r.ID, r.Deliveries, r.Attempts)
			}
		}
	})
}

func TestG2AWrongNumberOfOutcomesIsUnknown(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(10, 10)
		var short atomic.Bool
		short.Store(true)
		w.sink.After(func(_ context.Context, _ []core.Record, o []core.Outcome) ([]core.Outcome, error) {
			if short.Swap(false) {
				return o[:len(o)-1], nil
			}
			return o, nil
		})
		defer w.start(w.connector(nil))()
		w.publishAll(time.Minute)
		for _, r := range w.source.Rows() {
			if r.Deliveries != 2 || r.Attempts != 0 {
				t.Errorf("row %s: deliveries %d, attempts %d, want 2 and 0", r.ID, r.Deliveries, r.Attempts)
			}
		}
	})
}

func TestG2AForgottenOutcomeIsNoDelivery(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("a", "k")
		var later atomic.Bool
		w.sink.Decide(func(core.Record) core.Outcome {
			if !later.Swap(true) {
				return core.Outcome{}
			}
			return core.Outcome{Kind: core.Delivered}
		})
		defer w.start(w.connector(nil))()
		w.publishAll(time.Minute)
		if r := w.row("a"); r.Attempts != 1 || r.Deliveries != 2 {
			t.Errorf("attempts %d, deliveries %d, want 1 and 2", r.Attempts, r.Deliveries)
		}
	})
}

func TestG7AnOutageOfAnHourBuriesNothing(t *testing.T) {
	for _, how := range []string{"calls fail", "every record is refused", "sink scope", "throttled", "died"} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, 2, func(w *world) {
				w.insert(1000, 100)
				if how == "died" {
					w.excuseAll()
				}
				var up atomic.Bool
				w.sink.Before(func(context.Context, []core.Record) error {
					switch {
					case !up.Load() && how == "calls fail":
						return errAway
					case !up.Load() && how == "died":
						return fmt.Errorf("exit status 2: %w", core.ErrSinkDied)
					}
					return nil
				})
				w.sink.Decide(func(core.Record) core.Outcome {
					switch {
					case up.Load():
						return core.Outcome{Kind: core.Delivered}
					case how == "sink scope":
						return core.Outcome{Kind: core.Permanent, Scope: core.ScopeSink, Code: "auth", Message: "wrong password"}
					case how == "throttled":
						return core.Outcome{Kind: core.Throttled, RetryAfter: time.Minute}
					}
					return core.Outcome{Kind: core.Retryable, Code: "503"}
				})
				defer w.start(w.connector(nil))()
				time.Sleep(time.Hour)
				states := w.states()
				if how == "died" {
					// Rows that were in flight at six deaths may be buried; the connector is quarantined after the first.
					if states[core.Dead] > 1 {
						t.Errorf("a sink that dies on everything buried %d rows", states[core.Dead])
					}
					return
				}
				if states[core.Pending] != w.n {
					t.Fatalf("after an hour: %v, want all %d pending", states, w.n)
				}
				up.Store(true)
				w.publishAll(10 * time.Minute)
			})
		})
	}
}

func TestG7AttemptsAreNotCountedForWhatIsTheSinks(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(20, 20)
		var calls atomic.Int32
		w.sink.Before(func(context.Context, []core.Record) error {
			if calls.Add(1) <= 5 {
				return errAway
			}
			return nil
		})
		defer w.start(w.connector(func(c *engine.Connector) { c.Policy.Retry.MaxAttempts = 1 }))()
		w.publishAll(time.Minute)
	})
}
