package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
)

type slowBlocking struct {
	*asReal
	during func()
}

func (s *slowBlocking) Blocking(ctx context.Context, part int, dead bool) ([]core.Block, error) {
	b, err := s.Source.Blocking(ctx, part, dead)
	s.during()
	return b, err
}

// A settlement stops a row between a rescan's blocked keys and its first page; a person gives it back before that page.
func TestW3FirstPage(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("other", "o")
		refused := map[string]bool{}
		answer := make(chan bool)
		w.sink.Decide(func(r core.Record) core.Outcome {
			if refused[r.ID] {
				return core.Outcome{Kind: core.Delivered}
			}
			refused[r.ID] = true
			if r.ID == "bad" {
				<-answer
			}
			return core.Outcome{Kind: core.Permanent, Scope: core.ScopeKey, Code: "422"}
		})
		var given time.Time
		src := &interleaved{Source: w.source, afterStep: func() {}}
		slow := &slowBlocking{&asReal{src}, func() {}}
		src.beforeFetch = func() {
			if given.IsZero() && w.n == 2 && w.row("bad").State == core.Dead {
				given = time.Now()
				if err := w.source.Retry(t.Context(), core.Act{ID: "bad", By: "person"}); err != nil {
					t.Error(err)
				}
			}
		}
		defer w.start(w.connector(func(c *engine.Connector) { c.Source, c.Policy.BlockOnDead = slow, true }))()
		w.wait(5*time.Second, "other dead", func() bool { return w.row("other").State == core.Dead })
		time.Sleep(time.Second)
		w.add("bad", "k")
		time.Sleep(2 * time.Second)
		slow.during = func() {
			slow.during = func() {}
			close(answer)
			time.Sleep(100 * time.Millisecond)
		}
		if err := w.source.Retry(t.Context(), core.Act{ID: "other", By: "person"}); err != nil {
			t.Fatal(err)
		}
		w.publishAll(5 * time.Minute)
		t.Logf("published %v after it was given back", time.Since(given))
	})
}
