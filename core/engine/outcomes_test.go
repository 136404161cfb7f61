package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
)

// What cannot be sent is not tried again: https://github.com/JasperFx/wolverine/issues/3926
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

// The settlement of the last failure is what buries the row, not the next look at it:
// https://github.com/constructorfabric/gears-rust/pull/3782
func TestRetryLimits(t *testing.T) {
	fails := func(core.Record) core.Outcome { return core.Outcome{Kind: core.Retryable, Code: "500", Message: "no"} }
	t.Run("max_attempts", func(t *testing.T) {
		inBubble(t, 1, func(w *world) {
			w.add("a", "k")
			w.sink.Decide(fails)
			defer w.start(w.connector(func(c *engine.Connector) { c.Policy.Retry.MaxAttempts = 3 }))()
			w.wait(10*time.Minute, "dead", func() bool { return w.states()[core.Dead] == 1 })
			if r := w.row("a"); r.Attempts != 3 || !strings.HasPrefix(r.LastError, core.ReasonGaveUp+": gave up after 3 attempts: 500: no") {
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

// Whether later rows of a key may pass one that failed for good is for the operator to say:
// https://github.com/thomhurst/Dekaf/pull/3054
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
			if err := w.source.Skip(t.Context(), core.Act{ID: "bad", By: "person"}); err != nil {
				t.Fatal(err)
			}
			w.wait(15*time.Second, "next published after the skip", func() bool { return w.row("next").State == core.Published })
		})
	})
}

func TestAGateThatNothingTriesIsNotCalledClosed(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("a", "k")
		w.sink.Before(memory.Fail(errAway))
		c := w.connector(func(c *engine.Connector) { c.Policy.HoldUncertain = true })
		defer w.start(c)()
		w.wait(5*time.Second, "held", func() bool { return w.row("a").State == core.Held })
		w.wait(time.Minute, "open", func() bool { return c.Status().Gate == "open" })
	})
}

// The gate's reason is all that status, explain and the log have to say, so it is the sink's own word.
func TestAGateClosedByABatchThatWasNotAttemptedSaysWhy(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("a", "k")
		w.sink.Decide(func(core.Record) core.Outcome {
			return core.Outcome{Kind: core.NotAttempted, Code: "no_time", Message: "the call ended before"}
		})
		c := w.connector(nil)
		defer w.start(c)()
		w.wait(5*time.Second, "closed, with the sink's reason", func() bool {
			return strings.Contains(c.Status().GateReason, "no_time: the call ended before")
		})
	})
}
