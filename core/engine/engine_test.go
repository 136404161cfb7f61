package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
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
		short := true
		w.sink.After(func(_ context.Context, _ []core.Record, o []core.Outcome) ([]core.Outcome, error) {
			if short {
				short = false
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
		first := true
		w.sink.Decide(func(core.Record) core.Outcome {
			if first {
				first = false
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
				var down atomic.Bool
				down.Store(true)
				w.sink.Before(func(context.Context, []core.Record) error {
					switch {
					case down.Load() && how == "calls fail":
						return errAway
					case down.Load() && how == "died":
						return fmt.Errorf("exit status 2: %w", core.ErrSinkDied)
					}
					return nil
				})
				w.sink.Decide(func(core.Record) core.Outcome {
					switch {
					case !down.Load():
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
				down.Store(false)
				w.publishAll(10 * time.Minute)
			})
		})
	}
}

func TestG7AttemptsAreNotCountedForWhatIsTheSinks(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(20, 20)
		calls := 0
		w.sink.Before(func(context.Context, []core.Record) error {
			if calls++; calls <= 5 {
				return errAway
			}
			return nil
		})
		defer w.start(w.connector(func(c *engine.Connector) { c.Policy.Retry.MaxAttempts = 1 }))()
		w.publishAll(time.Minute)
	})
}

func TestG4AKeyInBackoffHoldsBackOnlyItself(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("slow-0", "slow")
		for i := range 100_000 {
			w.add(fmt.Sprintf("slow-%d", i+1), "slow")
		}
		w.insert(2000, 20)
		w.sink.Decide(func(r core.Record) core.Outcome {
			if r.ID == "slow-0" {
				return core.Outcome{Kind: core.Retryable, RetryAfter: time.Hour}
			}
			return core.Outcome{Kind: core.Delivered}
		})
		defer w.start(w.connector(nil))()
		others := func() bool { return w.states()[core.Published] == 2000 }
		w.wait(5*time.Second, "the other keys published", others)
		if sent := w.sent(); sent["slow-1"] > 0 {
			t.Error("slow-1 overtook slow-0")
		}
		time.Sleep(10 * time.Minute)
		w.insert(500, 20)
		w.wait(2*time.Second, "later rows of other keys published", func() bool { return w.states()[core.Published] == 2500 })
	})
}

func TestG4ASlowCallHoldsUpItsKeyNotTheTable(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("stuck", "s")
		release := make(chan struct{})
		w.sink.Before(func(ctx context.Context, batch []core.Record) error {
			if batch[0].ID == "stuck" {
				return memory.Block(release)(ctx, batch)
			}
			return nil
		})
		defer w.start(w.connector(func(c *engine.Connector) { c.Policy.Timeout = time.Minute }))()
		w.wait(time.Second, "the slow call runs", func() bool { return w.sink.Calls() == 1 })
		w.insert(1000, 10)
		w.wait(5*time.Second, "others published", func() bool { return w.states()[core.Published] == 1000 })
		close(release)
		w.publishAll(time.Second)
	})
}

func TestG4SlowKeysLeaveRoomInMemoryForOthers(t *testing.T) {
	for _, test := range []struct {
		name             string
		rows, keys, size int
	}{
		{"one key of large rows", 300, 1, 100_000},
		{"seven keys of many rows", 28_000, 7, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, 1, func(w *world) {
				for i := range test.rows {
					tx := w.source.Begin()
					tx.Insert(memory.Row{
						ID: fmt.Sprintf("slow-%d", i), Key: fmt.Sprintf("slow%d", i%test.keys), Keyed: true,
						Payload: []byte(strings.Repeat("x", test.size)),
					})
					tx.Commit()
				}
				w.insert(200, 10)
				w.sink.Before(func(ctx context.Context, batch []core.Record) error {
					for _, r := range batch {
						if strings.HasPrefix(r.Key, "slow") {
							return memory.Delay(25*time.Second)(ctx, batch)
						}
					}
					return nil
				})
				defer w.start(w.connector(nil))()
				// Some of them may be in a batch with a slow one.
				w.wait(60*time.Second, "the other keys published", func() bool { return w.row("id-199").State == core.Published })
			})
		})
	}
}

// An old transaction keeps the floor down, and above it more keys wait than a read can leave out by name.
func TestG4ManyWaitingKeysBehindAnOpenTransactionStopNobody(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		open := w.source.Begin()
		open.Insert(memory.Row{ID: "open"})
		for i := range 11_000 {
			w.add(fmt.Sprintf("bad-%d", i), fmt.Sprintf("b%d", i))
			w.add(fmt.Sprintf("good-%d", i), "")
		}
		w.sink.Decide(func(r core.Record) core.Outcome {
			if strings.HasPrefix(r.ID, "bad") {
				return core.Outcome{Kind: core.Retryable, RetryAfter: time.Hour}
			}
			return core.Outcome{Kind: core.Delivered}
		})
		f := &faultySource{Source: w.source}
		defer w.start(w.connector(func(c *engine.Connector) {
			c.Source, c.Policy.MaxRecords, c.Policy.InFlight = f, 50, 2
		}))()
		w.wait(5*time.Minute, "the good ones published", func() bool { return w.states()[core.Published] == 11_000 })
		reads := f.count("fetch")
		time.Sleep(10 * time.Second)
		if n := f.count("fetch") - reads; n > 2000 {
			t.Errorf("%d reads in 10s that found nothing", n)
		}
		w.add("late", "k")
		w.wait(5*time.Second, "a later row published", func() bool { return w.row("late").State == core.Published })
		open.Commit()
		w.wait(5*time.Second, "the old transaction's row published", func() bool { return w.row("open").State == core.Published })
	})
}

func TestInvalidAndTooLargeRowsAreBuriedAlone(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		for i, row := range []memory.Row{
			{ID: "a", Key: "k", Keyed: true},
			{ID: "broken", Key: "k", Keyed: true, Headers: "{nonsense"},
			{ID: "b", Key: "k", Keyed: true},
			{ID: "huge", Key: "k", Keyed: true, Payload: []byte(strings.Repeat("x", 5000))},
			{ID: "c", Key: "k", Keyed: true},
			{ID: "d"},
		} {
			tx := w.source.Begin()
			tx.Insert(row)
			tx.Commit()
			w.n = i + 1
		}
		defer w.start(w.connector(func(c *engine.Connector) { c.Limits.MaxRecordBytes = 4000 }))()
		w.wait(10*time.Second, "four published, two dead", func() bool {
			s := w.states()
			return s[core.Published] == 4 && s[core.Dead] == 2
		})
		for id, want := range map[string]string{"broken": core.ReasonInvalid, "huge": core.ReasonTooLarge} {
			if r := w.row(id); !strings.HasPrefix(r.LastError, want) {
				t.Errorf("%s: last error %q, want reason %s", id, r.LastError, want)
			}
		}
		if sent := w.sent(); sent["broken"]+sent["huge"] > 0 {
			t.Errorf("unsendable rows were sent: %v", sent)
		}
	})
}

func TestThrottledWritesNothing(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(10, 10)
		until := time.Now().Add(time.Minute)
		w.sink.Decide(func(core.Record) core.Outcome {
			if time.Now().Before(until) {
				return core.Outcome{Kind: core.Throttled, RetryAfter: time.Second}
			}
			return core.Outcome{Kind: core.Delivered}
		})
		defer w.start(w.connector(nil))()
		w.publishAll(3 * time.Minute)
		for _, r := range w.source.Rows() {
			if r.Deliveries != 1 {
				t.Errorf("row %s: deliveries %d after being throttled, want 1", r.ID, r.Deliveries)
			}
		}
	})
}

func TestABatchAlreadyOnItsWayDoesNotEndAThrottle(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(100, 100)
		began := time.Now()
		w.sink.Before(func(ctx context.Context, b []core.Record) error {
			if since := time.Since(began); since > 50*time.Millisecond && since < time.Minute {
				t.Errorf("sent %v after the sink asked for a minute", since)
			}
			if b[0].ID == "id-0" {
				return nil
			}
			return memory.Delay(100*time.Millisecond)(ctx, b)
		})
		w.sink.Decide(func(r core.Record) core.Outcome {
			if r.ID == "id-0" && time.Since(began) < time.Minute {
				return core.Outcome{Kind: core.Throttled, RetryAfter: time.Minute}
			}
			return core.Outcome{Kind: core.Delivered}
		})
		defer w.start(w.connector(func(c *engine.Connector) { c.Policy.MaxRecords, c.Policy.InFlight = 5, 4 }))()
		w.publishAll(3 * time.Minute)
	})
}

func TestRetryLimits(t *testing.T) {
	fails := func(core.Record) core.Outcome { return core.Outcome{Kind: core.Retryable, Code: "500", Message: "no"} }
	t.Run("max_attempts", func(t *testing.T) {
		inBubble(t, 1, func(w *world) {
			w.add("a", "k")
			w.sink.Decide(fails)
			defer w.start(w.connector(func(c *engine.Connector) { c.Policy.Retry.MaxAttempts = 3 }))()
			w.wait(10*time.Minute, "dead", func() bool { return w.states()[core.Dead] == 1 })
			if r := w.row("a"); r.Attempts != 3 || !strings.HasPrefix(r.LastError, core.ReasonGaveUp) {
				t.Errorf("attempts %d, last error %q", r.Attempts, r.LastError)
			}
		})
	})
	t.Run("give_up_after", func(t *testing.T) {
		inBubble(t, 1, func(w *world) {
			w.add("a", "k")
			w.sink.Decide(fails)
			began := time.Now()
			defer w.start(w.connector(func(c *engine.Connector) { c.Policy.Retry.GiveUpAfter = 2 * time.Hour }))()
			w.wait(3*time.Hour, "dead", func() bool { return w.states()[core.Dead] == 1 })
			if d := time.Since(began); d < 2*time.Hour || d > 2*time.Hour+10*time.Minute {
				t.Errorf("given up after %v, want about 2h", d)
			}
		})
	})
}

func TestOnDead(t *testing.T) {
	refuse := func(r core.Record) core.Outcome {
		if r.ID == "bad" {
			return core.Outcome{Kind: core.Permanent, Code: "422"}
		}
		return core.Outcome{Kind: core.Delivered}
	}
	t.Run("continue", func(t *testing.T) {
		inBubble(t, 1, func(w *world) {
			w.add("bad", "k")
			w.add("next", "k")
			w.sink.Decide(refuse)
			defer w.start(w.connector(nil))()
			w.wait(5*time.Second, "next published", func() bool { return w.row("next").State == core.Published })
		})
	})
	t.Run("block", func(t *testing.T) {
		inBubble(t, 1, func(w *world) {
			w.add("bad", "k")
			w.add("next", "k")
			w.add("other", "o")
			w.sink.Decide(refuse)
			defer w.start(w.connector(func(c *engine.Connector) { c.Policy.BlockOnDead = true }))()
			w.wait(5*time.Second, "other published", func() bool { return w.row("other").State == core.Published })
			time.Sleep(10 * time.Minute)
			if s := w.row("next").State; s != core.Pending {
				t.Fatalf("next is %s behind a dead row", s)
			}
			if err := w.source.Skip(t.Context(), "bad", "person"); err != nil {
				t.Fatal(err)
			}
			w.wait(15*time.Second, "next published after the skip", func() bool { return w.row("next").State == core.Published })
		})
	})
}

// What a person changes while a reading from the start is under way may be behind it, or its key was read as blocked.
func TestAPersonsChangeDuringAReadingFromTheStartIsSeenSoon(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("bad", "k")
		w.add("next", "k")
		w.sink.Decide(func(r core.Record) core.Outcome {
			if r.ID == "bad" {
				return core.Outcome{Kind: core.Permanent, Code: "422"}
			}
			return core.Outcome{Kind: core.Delivered}
		})
		f := &faultySource{Source: w.source}
		defer w.start(w.connector(func(c *engine.Connector) { c.Source, c.Policy.BlockOnDead = f, true }))()
		w.wait(5*time.Second, "bad is dead", func() bool { return w.row("bad").State == core.Dead })
		f.set(func(ctx context.Context, call string) error { // a page takes longer than the pause between heartbeats
			if call == "fetch" {
				return memory.Delay(12*time.Second)(ctx, nil)
			}
			return nil
		})
		before := f.count("blocking")
		w.wait(3*time.Minute, "a reading from the start", func() bool { return f.count("blocking") > before })
		time.Sleep(time.Second)
		if err := w.source.Skip(t.Context(), "bad", "person"); err != nil {
			t.Fatal(err)
		}
		w.wait(40*time.Second, "next published", func() bool { return w.row("next").State == core.Published })
	})
}

// farSource says of every row that it is due in the far future.
type farSource struct{ *faultySource }

func (f *farSource) Fetch(ctx context.Context, req core.FetchRequest) (core.Page, error) {
	page, err := f.faultySource.Fetch(ctx, req)
	for i := range page.Rows {
		page.Rows[i].Wait = math.MaxInt64
	}
	return page, err
}

func TestRowsDueInTheFarFutureCostNoReadings(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("never", "")
		w.add("never either", "k")
		f := &farSource{&faultySource{Source: w.source}}
		defer w.start(w.connector(func(c *engine.Connector) { c.Source = f }))()
		time.Sleep(10 * time.Minute)
		if n := f.count("blocking"); n > 15 {
			t.Errorf("%d readings from the start in ten minutes", n)
		}
	})
}
