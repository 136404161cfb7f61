package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
)

// receipts lists them as "command consumer status".
func (w *world) receipts() []string {
	w.t.Helper()
	list, err := w.source.Receipts(w.t.Context(), core.ReceiptFilter{Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	all := []string{}
	for _, r := range list {
		all = append(all, fmt.Sprint(r.Command, " ", r.Consumer, " ", r.Status))
	}
	return all
}

// Only a record that was delivered and is called completed has a receipt, in the connector's name.
func TestCompletedRecordsHaveReceipts(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		long := strings.Repeat("é", core.MaxReceiptName+1) // no receipt can name it
		for _, id := range []string{"completed", "delivered", "mended", "refused", "lost", long} {
			w.add(id, id)
		}
		tries := map[string]int{}
		w.sink.Decide(func(r core.Record) core.Outcome {
			tries[r.ID]++
			switch {
			case r.ID == "delivered":
				return core.Outcome{Kind: core.Delivered}
			case r.ID == "mended" && tries[r.ID] < 3:
				return core.Outcome{Kind: core.Retryable, Completed: true, Code: "x"}
			case r.ID == "refused":
				return core.Outcome{Kind: core.Permanent, Completed: true, Code: "x"}
			case r.ID == "lost" && tries[r.ID] < 3:
				return core.Outcome{Kind: core.Unspecified, Completed: true}
			}
			return core.Outcome{Kind: core.Delivered, Completed: true}
		})
		check := func(when string, want ...string) {
			if got := w.receipts(); !slices.Equal(got, want) {
				t.Errorf("%s the receipts are %q, want %q", when, got, want)
			}
		}
		stop := w.start(w.connector(func(c *engine.Connector) { c.Name = "orders" }))
		w.wait(time.Second, "the first three published", func() bool { return w.states()[core.Published] == 3 && w.states()[core.Dead] == 1 })
		check("at first", "completed orders done")
		w.wait(time.Minute, "the others published", func() bool { return w.states()[core.Published] == 5 })
		stop()
		check("at last", "completed orders done", "lost orders done", "mended orders done")
	})
}

// A row that is sent twice has one receipt, the first.
func TestACompletedRecordSentTwiceHasOneReceipt(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("a", "k")
		w.sink.Decide(func(core.Record) core.Outcome { return core.Outcome{Kind: core.Delivered, Completed: true} })
		// The first worker's settlement never reaches the source; another takes over when its lease has run out.
		first := w.connector(nil)
		source := &faultySource{Source: w.source}
		source.set(func(_ context.Context, call string) error {
			if call == "step" && len(w.sink.Arrivals()) > 0 {
				return errAway
			}
			return nil
		})
		first.Source = source
		stopFirst := w.start(first)
		w.wait(time.Minute, "the first send", func() bool { return len(w.sink.Arrivals()) == 1 })
		if got := w.receipts(); len(got) != 0 {
			t.Errorf("receipts without a settlement: %q", got)
		}
		first.Stop()
		stopFirst()
		stop := w.start(w.connector(nil))
		w.publishAll(5 * time.Minute)
		stop()
		if sent := w.sent()["a"]; sent != 2 {
			t.Errorf("sent %d times", sent)
		}
		if got := w.receipts(); !slices.Equal(got, []string{"a test done"}) {
			t.Errorf("receipts are %q", got)
		}
	})
}
