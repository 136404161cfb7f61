package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
)

// Workers that began at the same moment do not look at the same moments: https://github.com/oban-bg/oban/commit/7f74dc306f98ef9880eecfc0071b20bbcd3b79de
func TestWorkersDoNotLookAllAtOnce(t *testing.T) {
	inBubble(t, 4, func(w *world) {
		var mu sync.Mutex
		looks := map[string]map[time.Time]int{"fetch": {}, "heartbeat": {}, "renew": {}} // how many at each moment
		for range 4 {
			f := &faultySource{Source: w.source}
			f.set(func(_ context.Context, call string) error {
				mu.Lock()
				defer mu.Unlock()
				if at := looks[call]; at != nil {
					at[time.Now()]++
				}
				return nil
			})
			defer w.start(w.connector(func(c *engine.Connector) { c.Source = f }))()
		}
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		for call, at := range looks {
			all, together := 0, 0
			for _, n := range at {
				all += n
				if n > 1 {
					together += n
				}
			}
			if all < 100 || together > all/20 {
				t.Errorf("%d of %d calls of %s came together", together, all, call)
			}
		}
	})
}

// Rows that fail at one moment do not come back at one moment: https://github.com/svix/svix-webhooks/pull/533
func TestRowsThatFailTogetherComeBackSpread(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(200, 200)
		w.sink.Decide(func(core.Record) core.Outcome { return core.Outcome{Kind: core.Retryable, Code: "500"} })
		stop := w.start(w.connector(func(c *engine.Connector) { c.Policy.Retry.Initial = 10 * time.Second }))
		w.wait(time.Second, "all failed", func() bool { return w.row("id-199").Attempts > 0 })
		stop()
		inSecond := map[int]int{}
		for _, r := range w.source.Rows() {
			inSecond[int(time.Until(r.AvailableAt)/time.Second)]++
		}
		if len(inSecond) < 8 {
			t.Errorf("200 rows come back so: %v", inSecond)
		}
		for second, n := range inSecond {
			if n > 60 {
				t.Errorf("%d of 200 rows come back in second %d", n, second)
			}
		}
	})
}
