package engine_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/memory"
)

func TestG1OnlyCommittedRowsAreSent(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		open, undone := w.source.Begin(), w.source.Begin()
		open.Insert(memory.Row{ID: "open", Key: "k", Keyed: true})
		undone.Insert(memory.Row{ID: "undone", Key: "k", Keyed: true})
		w.add("committed", "other")
		defer w.start(w.connector(nil))()
		w.publishAll(5 * time.Second)
		undone.Rollback()
		time.Sleep(5 * time.Minute)
		if sent := w.sent(); sent["open"]+sent["undone"] > 0 {
			t.Errorf("sent without a commit: %v", sent)
		}
		open.Commit()
		w.n++
		w.publishAll(5 * time.Second) // although its seq is below one that was sent long ago
		if sent := w.sent(); sent["open"] != 1 || sent["undone"] != 0 {
			t.Errorf("after the commit: %v", sent)
		}
	})
}

func TestG3EverySendBearsTheSameIdentityAndItsOwnNumber(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("command-1", "k")
		var sends atomic.Int32
		w.sink.Decide(func(core.Record) core.Outcome {
			if sends.Add(1) < 4 {
				return core.Outcome{Kind: core.Retryable, Code: "503"}
			}
			return core.Outcome{Kind: core.Delivered}
		})
		stop := w.start(w.connector(nil))
		w.wait(time.Minute, "two sends", func() bool { return sends.Load() >= 2 })
		stop()
		defer w.start(w.connector(nil))() // another worker takes over
		w.publishAll(time.Minute)
		epoch := int64(0)
		for i, a := range w.sink.Arrivals() {
			r := a.Record
			if r.ID != "command-1" || r.Seq != 1 || r.Deliveries != i+1 || r.PossibleDuplicate() != (i > 0) || r.Epoch < epoch {
				t.Errorf("send %d: id %s, seq %d, deliveries %d, mark %v, epoch %d after %d", i+1, r.ID, r.Seq, r.Deliveries,
					r.PossibleDuplicate(), r.Epoch, epoch)
			}
			epoch = r.Epoch
		}
		if epoch != 2 {
			t.Errorf("the last send was of epoch %d, want 2", epoch)
		}
	})
}
