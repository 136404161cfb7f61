package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
)

// A sink that ignores its context keeps its call running after its connector has ended. The process's other connectors
// must not wait for that call when they want the send gate alone, or they would never send anything again.
func TestACallLeftBehindDoesNotKeepTheSendGate(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		stuck, stuckSink := memory.NewSource(1, time.Now), memory.NewSink()
		release := make(chan struct{})
		defer close(release)
		stuckSink.Before(func(context.Context, []core.Record) error { <-release; return nil })
		tx := stuck.Begin()
		tx.Insert(memory.Row{ID: "x"})
		tx.Commit()
		stop := w.start(w.connector(func(c *engine.Connector) {
			c.Name, c.Source, c.Sink, c.Policy.Drain = "stuck", stuck, stuckSink, time.Second
		}))
		w.wait(5*time.Second, "the call runs", func() bool { return stuckSink.Calls() == 1 })
		stop()
		w.add("kill", "k")
		w.insert(100, 10)
		w.killers()
		w.sink.Excuse("kill")
		defer w.start(w.connector(nil))()
		w.wait(10*time.Minute, "one dead, the rest published", func() bool {
			s := w.states()
			return s[core.Dead] == 1 && s[core.Published] == 100
		})
	})
}
