package engine_test

import (
	"testing"
	"time"

	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
)

// longCalls is a connector whose calls outlast its lease many times over.
func (w *world) longCalls() *engine.Connector {
	w.sink.Before(memory.Delay(4 * time.Minute))
	return w.connector(func(c *engine.Connector) {
		c.Policy.Lease, c.Policy.Timeout, c.Policy.Drain = 5*time.Second, 5*time.Minute, 5*time.Minute
	})
}

// onceAndUnmarked wants every row to have arrived once, with no mark.
func (w *world) onceAndUnmarked() {
	w.t.Helper()
	for id, n := range w.sent() {
		if n != 1 {
			w.t.Errorf("row %s was sent %d times", id, n)
		}
	}
	for _, a := range w.sink.Arrivals() {
		if a.Record.PossibleDuplicate() {
			w.t.Errorf("row %s bears a mark", a.Record.ID)
		}
	}
}

// A lease is renewed while its calls run, so their timeout may exceed it, and nobody takes over what is being sent:
// https://github.com/svix/svix-webhooks/pull/2181, https://github.com/InsForge/InsForge/pull/1795
func TestACallMayOutlastItsLease(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(20, 5)
		defer w.start(w.longCalls())()
		w.wait(time.Minute, "all is on its way", func() bool { return len(w.source.Inflight(0)) > 0 })
		defer w.start(w.longCalls())() // it would take what is free
		w.publishAll(time.Hour)
		w.onceAndUnmarked()
	})
}

// Renewals go on until the last call of a drain is settled: https://github.com/rails/solid_queue/commit/098a0048d68596a7807b1406a13c8e76b83870d2
func TestADrainMayOutlastItsLease(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(20, 5)
		stop := w.start(w.longCalls())
		w.wait(time.Minute, "all is on its way", func() bool { return w.sink.Calls() > 0 })
		defer w.start(w.longCalls())()
		time.Sleep(10 * time.Second)
		stop()
		w.sink.Before(nil)
		w.publishAll(time.Hour)
		w.onceAndUnmarked()
	})
}
