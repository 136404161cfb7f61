package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
)

// Both ways to stop, from many sides at once, neither hang nor panic: https://github.com/riverqueue/river/pull/376,
// https://github.com/riverqueue/river/pull/401
func TestAllWaysToStopAtOnce(t *testing.T) {
	for name, calls := range map[string]func(context.Context, []core.Record) error{
		"nothing runs": nil,
		"a call runs":  memory.Block(nil),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, func(w *world) {
				w.insert(5, 5)
				w.sink.Before(calls)
				c := w.connector(func(c *engine.Connector) { c.Policy.Timeout, c.Policy.Drain = time.Hour, time.Hour })
				ctx, cancel := context.WithCancel(w.t.Context())
				defer cancel()
				ended := make(chan error, 1)
				go func() { ended <- c.Run(ctx) }()
				time.Sleep(5 * time.Second)
				began := time.Now()
				var wg sync.WaitGroup
				for range 10 {
					wg.Go(c.Stop)
					wg.Go(cancel)
				}
				wg.Wait()
				if err := <-ended; err != nil {
					t.Errorf("Run: %v", err)
				}
				if d := time.Since(began); d > 2*time.Second {
					t.Errorf("stopped after %v", d)
				}
			})
		})
	}
}

// No wait of a connector outlasts its end, whatever it waits for: https://github.com/xmtp/xmtpd/issues/1865
func TestAConnectorThatWaitsStopsAtOnce(t *testing.T) {
	for name, begin := range map[string]func(w *world, f *faultySource, c *engine.Connector){
		"for the sink": func(w *world, _ *faultySource, c *engine.Connector) {
			w.sink.Before(memory.Fail(errAway))
			w.wait(time.Hour, "the gate is closed", func() bool { return c.Status().Gate == "closed" })
		},
		"for the source": func(_ *world, f *faultySource, _ *engine.Connector) { f.away() },
		"for a source that hangs": func(_ *world, f *faultySource, _ *engine.Connector) {
			f.frozen()
		},
		"for its rows to be due": func(w *world, _ *faultySource, _ *engine.Connector) {
			w.sink.Decide(func(core.Record) core.Outcome { return core.Outcome{Kind: core.Retryable, RetryAfter: time.Hour} })
		},
		"for a throttle to end": func(w *world, _ *faultySource, _ *engine.Connector) {
			w.sink.Decide(func(core.Record) core.Outcome { return core.Outcome{Kind: core.Throttled, RetryAfter: time.Hour} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(w *world) {
				f := &faultySource{Source: w.source}
				c := w.connector(func(c *engine.Connector) { c.Source = f })
				stop := w.start(c)
				w.insert(20, 5)
				begin(w, f, c)
				time.Sleep(30 * time.Minute)
				began := time.Now()
				stop()
				// A source that hangs is left to its calls' deadline.
				if d := time.Since(began); d > 6*time.Second {
					t.Errorf("stopped after %v", d)
				}
			})
		})
	}
}
