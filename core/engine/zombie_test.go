package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
)

// The late end of a call whose lease was taken does not let its worker go on with the key, which is another's now:
// https://github.com/rails/solid_queue/commit/4f263b25ad40e8dc58eb9fa5de9e987c62620d2f
func TestAZombiesLateEndFreesNoKey(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.zombies = true
		w.insert(5, 1)
		f := &faultySource{Source: w.source}
		late := make(chan struct{})
		var calls, running, together atomic.Int32
		w.sink.Before(func(ctx context.Context, batch []core.Record) error {
			if calls.Add(1) == 1 {
				f.frozen() // the first worker is cut off from its database
				<-late     // and its call ends when it likes, whatever its context says
				return nil
			}
			if running.Add(1) > 1 {
				together.Add(1)
			}
			defer running.Add(-1)
			return memory.Delay(20*time.Second)(ctx, batch)
		})
		oneByOne := func(c *engine.Connector) { c.Policy.MaxRecords, c.Policy.Timeout = 1, 10*time.Minute }
		defer w.start(w.connector(func(c *engine.Connector) { c.Source = f; oneByOne(c) }))()
		w.wait(time.Second, "the first worker's call runs", func() bool { return calls.Load() == 1 })
		defer w.start(w.connector(oneByOne))()
		w.wait(5*time.Minute, "the second worker's first call runs", func() bool { return running.Load() == 1 })
		close(late)
		f.set(nil)
		w.publishAll(10 * time.Minute)
		if together.Load() > 0 {
			t.Error("two rows of the key were on their way at once")
		}
		for _, a := range w.sink.Arrivals() {
			if a.Record.Epoch == 1 && a.Record.Seq > 1 {
				t.Errorf("the worker that had lost its lease sent row %s", a.Record.ID)
			}
		}
	})
}
