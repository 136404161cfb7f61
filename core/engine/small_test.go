package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
)

// oneByOne is what a sink prefers that sends record by record.
var oneByOne = core.Preferences{MaxRecords: 1, InFlight: 64}

func TestThePreferenceOfTheSinkCountsWhereTheOperatorHasNoSay(t *testing.T) {
	for _, c := range []struct {
		name              string
		set               engine.Policy
		prefers           core.Preferences
		records, inFlight int
	}{
		{name: "nobody", records: 500, inFlight: 8},
		{name: "the sink", prefers: oneByOne, records: 1, inFlight: 64},
		{name: "the operator", set: engine.Policy{MaxRecords: 7, InFlight: 3}, prefers: oneByOne, records: 7, inFlight: 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, 1, func(w *world) {
				w.insert(6000, 6000)
				var mu sync.Mutex
				records, inFlight, most := 0, 0, 0
				w.sink.Before(func(ctx context.Context, b []core.Record) error {
					mu.Lock()
					records, inFlight = max(records, len(b)), inFlight+1
					most = max(most, inFlight)
					mu.Unlock()
					defer func() {
						mu.Lock()
						inFlight--
						mu.Unlock()
					}()
					return memory.Delay(time.Second)(ctx, b)
				})
				defer w.start(w.connector(func(e *engine.Connector) {
					e.Policy.MaxRecords, e.Policy.InFlight, e.Prefers = c.set.MaxRecords, c.set.InFlight, c.prefers
				}))()
				w.wait(time.Minute, "a few batches", func() bool { return w.states()[core.Published] >= 3*c.records })
				mu.Lock()
				defer mu.Unlock()
				if records != c.records || most != c.inFlight {
					t.Errorf("batches of up to %d, %d at once; want %d and %d", records, most, c.records, c.inFlight)
				}
			})
		})
	}
}

// TestASlowRecordHoldsUpOnlyItsKey: sent one by one, the others do not feel it.
func TestASlowRecordHoldsUpOnlyItsKey(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("slow", "s")
		w.add("behind", "s")
		w.insert(1000, 100)
		w.sink.Before(func(ctx context.Context, b []core.Record) error {
			if b[0].ID == "slow" {
				return memory.Delay(20*time.Second)(ctx, b)
			}
			return memory.Delay(10*time.Millisecond)(ctx, b)
		})
		defer w.start(w.connector(func(c *engine.Connector) { c.Prefers = oneByOne }))()
		w.wait(3*time.Second, "all others published", func() bool { return w.states()[core.Published] == 1000 })
		w.publishAll(30 * time.Second)
	})
}

// TestAFewBadRowsAreNoOutage: half of the rows fail, some in a row, and the valve stays open, although each row is a
// batch of its own.
func TestAFewBadRowsAreNoOutage(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		for i := range 400 {
			w.add(fmt.Sprintf("%s-%d", []string{"good", "bad"}[i/10%2], i), fmt.Sprintf("k%d", i))
		}
		w.sink.Before(memory.Delay(10 * time.Millisecond))
		w.sink.Decide(func(r core.Record) core.Outcome {
			if strings.HasPrefix(r.ID, "bad") {
				return core.Outcome{Kind: core.Retryable, Code: "500"}
			}
			return core.Outcome{Kind: core.Delivered}
		})
		c := w.connector(func(c *engine.Connector) { c.Prefers = core.Preferences{MaxRecords: 1, InFlight: 4} })
		defer w.start(c)()
		w.wait(5*time.Second, "200 published", func() bool {
			if s := c.Status(); s.Gate == "closed" {
				t.Fatalf("the gate is closed: %s", s.GateReason)
			}
			return w.states()[core.Published] == 200
		})
	})
}

// TestAnOutageIsSeenThroughSmallBatches: every row fails, and after as many as make a usual batch nothing is charged but
// probes, which grow as if batches were large.
func TestAnOutageIsSeenThroughSmallBatches(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(600, 600)
		began := time.Now()
		w.sink.Decide(func(core.Record) core.Outcome {
			if time.Since(began) < 10*time.Minute {
				return core.Outcome{Kind: core.Retryable, Code: "500"}
			}
			return core.Outcome{Kind: core.Delivered}
		})
		c := w.connector(func(c *engine.Connector) { c.Prefers = oneByOne })
		defer w.start(c)()
		w.wait(10*time.Second, "the gate is closed", func() bool { return c.Status().Gate == "closed" })
		if n := len(w.sent()); n > 256+64 {
			t.Errorf("%d rows were charged before the gate closed", n)
		}
		w.publishAll(time.Hour)
		for _, r := range w.source.Rows() {
			if r.State != core.Published {
				t.Fatalf("row %s is %s after an outage of ten minutes", r.ID, r.State)
			}
		}
	})
}

// TestAFailureThatLeavesOtherKeysAlone says nothing about the sink, however often it comes.
func TestAFailureThatLeavesOtherKeysAlone(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		for i := range 300 {
			w.add(fmt.Sprintf("bad-%d", i), fmt.Sprintf("b%d", i))
		}
		w.insert(100, 100)
		w.n = 400
		w.sink.Decide(func(r core.Record) core.Outcome {
			if strings.HasPrefix(r.ID, "bad") {
				return core.Outcome{Kind: core.Retryable, Scope: core.ScopeKey, Code: "endpoint"}
			}
			return core.Outcome{Kind: core.Delivered}
		})
		c := w.connector(func(c *engine.Connector) { c.Prefers = oneByOne })
		defer w.start(c)()
		w.wait(time.Second, "100 published", func() bool {
			if s := c.Status(); s.Gate == "closed" {
				t.Fatalf("the gate is closed: %s", s.GateReason)
			}
			return w.states()[core.Published] == 100
		})
	})
}

// TestWhatASinkSaysOfItselfIsKept: a failure of the whole sink after which the record may have arrived has a reason too.
func TestWhatASinkSaysOfItselfIsKept(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(1, 1)
		w.sink.Decide(func(core.Record) core.Outcome {
			return core.Outcome{Kind: core.Retryable, Scope: core.ScopeSink, Unknown: true, Code: "http_207", Message: "rows fared differently"}
		})
		defer w.start(w.connector(func(c *engine.Connector) { c.Prefers = oneByOne }))()
		w.wait(10*time.Second, "a second send", func() bool { return w.source.Rows()[0].Deliveries > 1 })
		if got := w.source.Rows()[0].LastError; !strings.Contains(got, "http_207: rows fared differently") {
			t.Errorf("the row's last error is %q", got)
		}
	})
}
