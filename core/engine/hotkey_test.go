package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
)

// countingSource counts the rows that are read. A read takes five milliseconds.
type countingSource struct {
	*memory.Source
	rows atomic.Int64
}

func (c *countingSource) Fetch(ctx context.Context, reqs []core.FetchRequest) ([]core.Page, error) {
	time.Sleep(5 * time.Millisecond)
	pages, err := c.Source.Fetch(ctx, reqs)
	for _, page := range pages {
		c.rows.Add(int64(len(page.Rows)))
	}
	return pages, err
}

// Where partitions are many and keys are few, the few go in whole batches, and are not read again and again for it.
func TestAHotKeyIsSentInWholeBatchesAndHardlyReadTwice(t *testing.T) {
	for _, test := range []struct {
		partitions, keys int
		batch            int // rows of a batch, on average, at least
	}{{16, 1, 400}, {256, 1, 350}, {16, 3, 400}, {16, 16, 200}} {
		t.Run(fmt.Sprintf("%d partitions, %d keys", test.partitions, test.keys), func(t *testing.T) {
			inBubble(t, test.partitions, func(w *world) {
				w.insert(20_000, test.keys)
				w.sink.Before(memory.Delay(10 * time.Millisecond))
				source := &countingSource{Source: w.source}
				defer w.start(w.connector(func(c *engine.Connector) { c.Source = source }))()
				w.publishAll(time.Minute)
				if n := source.rows.Load(); n > 2*int64(w.n) {
					t.Errorf("%d rows were read to send %d", n, w.n)
				}
				if n := w.n / w.sink.Calls(); n < test.batch {
					t.Errorf("%d rows a batch, want %d", n, test.batch)
				}
			})
		})
	}
}
