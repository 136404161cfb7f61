package engine_test

import (
	"context"
	"fmt"
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

// Careful batches hold the process's send gate alone, one after another; the other connectors send in between.
func TestSuspectsOfOneConnectorDoNotStarveAnother(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(3200, 3200)
		// Two workers died with all of it in flight.
		for range 2 {
			got, err := w.source.Acquire(t.Context(), "dead", 1, time.Second, false)
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			var seqs []int64
			for _, r := range w.source.Rows() {
				seqs = append(seqs, r.Seq)
			}
			if err := w.source.Step(t.Context(), "dead", []core.Change{{Lease: got[0].Lease, Announce: []core.Announcement{{Batch: 1, Seqs: seqs}}}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		w.sink.Before(memory.Delay(time.Second))
		other, otherSink := memory.NewSource(1, time.Now), memory.NewSink()
		defer w.start(w.connector(nil))()
		defer w.start(w.connector(func(c *engine.Connector) { c.Name, c.Source, c.Sink = "other", other, otherSink }))()
		longest := time.Duration(0)
		for i := range 60 {
			tx := other.Begin()
			tx.Insert(memory.Row{ID: fmt.Sprint(i)})
			tx.Commit()
			at := time.Now()
			for len(otherSink.Delivered()) <= i && time.Since(at) < 2*time.Minute {
				time.Sleep(50 * time.Millisecond)
			}
			longest = max(longest, time.Since(at))
		}
		if longest > 5*time.Second {
			t.Errorf("a row of the other connector waited %v", longest)
		}
	})
}
