package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
)

// asReal: a page has Changes only when it has a row that was sent before, as core.Page says and the three sources do.
type asReal struct{ *interleaved }

func (s *asReal) Fetch(ctx context.Context, reqs []core.FetchRequest) ([]core.Page, error) {
	pages, err := s.interleaved.Fetch(ctx, reqs)
	for i := range pages {
		sent := false
		for _, r := range pages[i].Rows {
			sent = sent || r.Deliveries > 0
		}
		if !sent {
			pages[i].Changes = 0
		}
	}
	return pages, err
}

func w3case(t *testing.T, key string, block, hold, real bool, late time.Duration) {
	inBubble(t, 1, func(w *world) {
		w.add("bad", key)
		refused := false
		w.sink.Decide(func(r core.Record) core.Outcome {
			if !refused {
				refused = true
				if hold {
					return core.Outcome{Kind: core.Retryable, Unknown: true, Code: "503"}
				}
				return core.Outcome{Kind: core.Permanent, Code: "422"}
			}
			return core.Outcome{Kind: core.Delivered}
		})
		given := time.Time{}
		source := &interleaved{Source: w.source, beforeFetch: func() {}}
		source.afterStep = func() {
			st := w.row("bad").State
			if !given.IsZero() || st != core.Dead && st != core.Held {
				return
			}
			given = time.Now()
			act := core.Act{ID: "bad", By: "person"}
			var err error
			if st == core.Held {
				err = w.source.ReleaseRow(t.Context(), act)
			} else {
				err = w.source.Retry(t.Context(), act)
			}
			if err != nil {
				t.Error(err)
			}
			time.Sleep(late)
		}
		var src core.Source = source
		if real {
			src = &asReal{source}
		}
		defer w.start(w.connector(func(c *engine.Connector) {
			c.Source = src
			c.Policy.BlockOnDead, c.Policy.HoldUncertain = block, hold
		}))()
		w.publishAll(5 * time.Minute)
		t.Logf("published %v after it was given back, %v after the step's answer", time.Since(given), time.Since(given)-late)
	})
}

func TestW3Late(t *testing.T) {
	for _, late := range []time.Duration{50 * time.Millisecond, time.Second, 10 * time.Second, 20 * time.Second} {
		for _, c := range []struct {
			name              string
			key               string
			block, hold, real bool
		}{
			{"unkeyed", "", false, false, false}, {"unkeyed, real", "", false, false, true},
			{"keyed", "k", false, false, false}, {"keyed, real", "k", false, false, true},
			{"block", "k", true, false, false}, {"block, real", "k", true, false, true},
			{"hold", "k", false, true, false}, {"hold, real", "k", false, true, true},
		} {
			t.Run(c.name+" "+late.String(), func(t *testing.T) { w3case(t, c.key, c.block, c.hold, c.real, late) })
		}
	}
}
