package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
)

type slowReads struct {
	core.Source
	reads, blockings int
	d                time.Duration
}

func (s *slowReads) Fetch(ctx context.Context, reqs []core.FetchRequest) ([]core.Page, error) {
	s.reads++
	time.Sleep(s.d)
	return s.Source.Fetch(ctx, reqs)
}
func (s *slowReads) Blocking(ctx context.Context, part int, dead bool) ([]core.Block, error) {
	s.blockings++
	time.Sleep(s.d)
	return s.Source.Blocking(ctx, part, dead)
}

// blocked rows of one key before n dead rows that a person gives back one by one, one each gap.
func starve(t *testing.T, blocked, n int, gap time.Duration, block bool) {
	inBubble(t, 1, func(w *world) {
		w.excuseAll()
		mended := false
		w.sink.Decide(func(r core.Record) core.Outcome {
			if strings.HasPrefix(r.ID, "hot") || strings.HasPrefix(r.ID, "d") && !mended {
				return core.Outcome{Kind: core.Permanent, Scope: core.ScopeKey, Code: "422"}
			}
			return core.Outcome{Kind: core.Delivered}
		})
		w.add("hot", "H")
		stop := w.start(w.connector(func(c *engine.Connector) { c.Policy.BlockOnDead = true }))
		w.wait(time.Minute, "hot dead", func() bool { return w.states()[core.Dead] == 1 })
		for i := range blocked {
			w.add(fmt.Sprintf("b%d", i), "H")
		}
		for i := range n {
			w.add(fmt.Sprintf("d%d", i), fmt.Sprintf("key%d", i))
		}
		w.wait(10*time.Minute, "all dead", func() bool { return w.states()[core.Dead] == n+1 })
		stop()
		mended = true
		_ = block
		slow := &slowReads{Source: w.source, d: 5 * time.Millisecond}
		defer w.start(w.connector(func(c *engine.Connector) { c.Source, c.Policy.BlockOnDead = slow, true }))()
		time.Sleep(10 * time.Second)
		began, reads := time.Now(), slow.reads
		firstOld, firstNew, done := time.Duration(0), time.Duration(0), time.Duration(0)
		look := func() {
			for _, r := range w.source.Rows() {
				if r.State == core.Published && strings.HasPrefix(r.ID, "d") && firstOld == 0 {
					firstOld = time.Since(began)
				}
				if r.State == core.Published && r.ID == "new" && firstNew == 0 {
					firstNew = time.Since(began)
				}
			}
		}
		for i := range n {
			if i == n/10 {
				w.add("new", "fresh")
			}
			if err := w.source.Retry(t.Context(), core.Act{ID: fmt.Sprintf("d%d", i), By: "person"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(gap)
			if i%50 == 0 {
				look()
			}
		}
		done = time.Since(began)
		pub := w.states()[core.Published]
		r2 := slow.reads
		w.wait(5*time.Minute, "given back are published", func() bool { return w.states()[core.Published] == n+1 })
		look()
		t.Logf("blocked rows %d: bulk of %d rows took %v; of them %d published by then; first given-back row after %v, new row seen after %v, all %v after the bulk; %d reads in the bulk",
			blocked, n, done, pub, firstOld, firstNew, time.Since(began)-done, r2-reads)
	})
}

func TestW3Starve(t *testing.T) {
	for _, blocked := range []int{0, 500, 2000, 8000} {
		starve(t, blocked, 5000, 4*time.Millisecond, true)
	}
}
