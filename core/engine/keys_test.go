package engine_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
)

// A row in retry and fresh ones of its key: https://github.com/timgit/pg-boss/issues/535,
// https://github.com/lightninglabs/wavelength/pull/435
func TestG4AKeyInBackoffHoldsBackOnlyItself(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("slow-0", "slow")
		for i := range 100_000 {
			w.add(fmt.Sprintf("slow-%d", i+1), "slow")
		}
		w.insert(2000, 20)
		w.sink.Decide(func(r core.Record) core.Outcome {
			if r.ID == "slow-0" {
				return core.Outcome{Kind: core.Retryable, RetryAfter: time.Hour}
			}
			return core.Outcome{Kind: core.Delivered}
		})
		defer w.start(w.connector(nil))()
		others := func() bool { return w.states()[core.Published] == 2000 }
		w.wait(5*time.Second, "the other keys published", others)
		if sent := w.sent(); sent["slow-1"] > 0 {
			t.Error("slow-1 overtook slow-0")
		}
		time.Sleep(10 * time.Minute)
		w.insert(500, 20)
		w.wait(2*time.Second, "later rows of other keys published", func() bool { return w.states()[core.Published] == 2500 })
	})
}

func TestG4ASlowCallHoldsUpItsKeyNotTheTable(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("stuck", "s")
		release := make(chan struct{})
		w.sink.Before(func(ctx context.Context, batch []core.Record) error {
			if batch[0].ID == "stuck" {
				return memory.Block(release)(ctx, batch)
			}
			return nil
		})
		defer w.start(w.connector(func(c *engine.Connector) { c.Policy.Timeout = time.Minute }))()
		w.wait(time.Second, "the slow call runs", func() bool { return w.sink.Calls() == 1 })
		w.insert(1000, 10)
		w.wait(5*time.Second, "others published", func() bool { return w.states()[core.Published] == 1000 })
		close(release)
		w.publishAll(time.Second)
	})
}

func TestG4SlowKeysLeaveRoomInMemoryForOthers(t *testing.T) {
	for _, test := range []struct {
		name             string
		rows, keys, size int
	}{
		{"one key of large rows", 300, 1, 100_000},
		{"seven keys of many rows", 28_000, 7, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, 1, func(w *world) {
				for i := range test.rows {
					tx := w.source.Begin()
					tx.Insert(memory.Row{
						ID: fmt.Sprintf("slow-%d", i), Key: fmt.Sprintf("slow%d", i%test.keys), Keyed: true,
						Payload: []byte(strings.Repeat("x", test.size)),
					})
					tx.Commit()
				}
				w.insert(200, 10)
				w.sink.Before(func(ctx context.Context, batch []core.Record) error {
					for _, r := range batch {
						if strings.HasPrefix(r.Key, "slow") {
							return memory.Delay(25*time.Second)(ctx, batch)
						}
					}
					return nil
				})
				defer w.start(w.connector(nil))()
				// Some of them may be in a batch with a slow one.
				w.wait(60*time.Second, "the other keys published", func() bool { return w.row("id-199").State == core.Published })
			})
		})
	}
}

// An old transaction keeps the floor down, and above it more keys wait than a read can leave out by name.
func TestG4ManyWaitingKeysBehindAnOpenTransactionStopNobody(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		open := w.source.Begin()
		open.Insert(memory.Row{ID: "open"})
		for i := range 11_000 {
			w.add(fmt.Sprintf("bad-%d", i), fmt.Sprintf("b%d", i))
			w.add(fmt.Sprintf("good-%d", i), "")
		}
		w.sink.Decide(func(r core.Record) core.Outcome {
			if strings.HasPrefix(r.ID, "bad") {
				return core.Outcome{Kind: core.Retryable, RetryAfter: time.Hour}
			}
			return core.Outcome{Kind: core.Delivered}
		})
		f := &faultySource{Source: w.source}
		defer w.start(w.connector(func(c *engine.Connector) {
			c.Source, c.Policy.MaxRecords, c.Policy.InFlight = f, 50, 2
		}))()
		w.wait(5*time.Minute, "the good ones published", func() bool { return w.states()[core.Published] == 11_000 })
		reads := f.count("fetch")
		time.Sleep(10 * time.Second)
		if n := f.count("fetch") - reads; n > 2000 {
			t.Errorf("%d reads in 10s that found nothing", n)
		}
		w.add("late", "k")
		w.wait(5*time.Second, "a later row published", func() bool { return w.row("late").State == core.Published })
		open.Commit()
		w.wait(5*time.Second, "the old transaction's row published", func() bool { return w.row("open").State == core.Published })
	})
}

// What a person changes while a reading from the start is under way may be behind it, or its key was read as blocked.
func TestAPersonsChangeDuringAReadingFromTheStartIsSeenSoon(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("bad", "k")
		w.add("next", "k")
		w.sink.Decide(func(r core.Record) core.Outcome {
			if r.ID == "bad" {
				return core.Outcome{Kind: core.Permanent, Code: "422"}
			}
			return core.Outcome{Kind: core.Delivered}
		})
		f := &faultySource{Source: w.source}
		defer w.start(w.connector(func(c *engine.Connector) { c.Source, c.Policy.BlockOnDead = f, true }))()
		w.wait(5*time.Second, "bad is dead", func() bool { return w.row("bad").State == core.Dead })
		f.set(func(ctx context.Context, call string) error { // a page takes longer than the pause between heartbeats
			if call == "fetch" {
				return memory.Delay(12*time.Second)(ctx, nil)
			}
			return nil
		})
		before := f.count("blocking")
		w.wait(3*time.Minute, "a reading from the start", func() bool { return f.count("blocking") > before })
		time.Sleep(time.Second)
		if err := w.source.Skip(t.Context(), core.Act{ID: "bad", By: "person"}); err != nil {
			t.Fatal(err)
		}
		w.wait(40*time.Second, "next published", func() bool { return w.row("next").State == core.Published })
	})
}

// interleaved is a source in which something happens before a read or before the answer of a step.
type interleaved struct {
	*memory.Source
	beforeFetch, afterStep func()
}

func (s *interleaved) Fetch(ctx context.Context, reqs []core.FetchRequest) ([]core.Page, error) {
	s.beforeFetch()
	return s.Source.Fetch(ctx, reqs)
}

func (s *interleaved) Step(ctx context.Context, owner string, changes []core.Change) error {
	err := s.Source.Step(ctx, owner, changes)
	s.afterStep()
	return err
}

// badOnce refuses the row bad the first time.
func badOnce() func(core.Record) core.Outcome {
	refused := false
	return func(r core.Record) core.Outcome {
		if r.ID == "bad" && !refused {
			refused = true
			return core.Outcome{Kind: core.Permanent, Code: "422"}
		}
		return core.Outcome{Kind: core.Delivered}
	}
}

// The first page may tell of a change that its blocked keys do not show yet.
func TestAKeyFreedBetweenBlockedKeysAndRowsGoesOnSoon(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("bad", "k")
		w.add("next", "k")
		w.excuseAll() // bad comes again after next was in a batch with it
		w.sink.Decide(badOnce())
		block := func(c *engine.Connector) { c.Policy.BlockOnDead = true }
		stop := w.start(w.connector(block))
		w.wait(5*time.Second, "bad is dead", func() bool { return w.row("bad").State == core.Dead })
		stop()
		retry := sync.OnceFunc(func() {
			if err := w.source.Retry(t.Context(), core.Act{ID: "bad", By: "person"}); err != nil {
				t.Error(err)
			}
		})
		source := &interleaved{Source: w.source, beforeFetch: retry, afterStep: func() {}}
		defer w.start(w.connector(func(c *engine.Connector) { block(c); c.Source = source }))()
		w.publishAll(2 * time.Second)
	})
}

// An operator is quicker than the answer that tells the engine of the row's death.
func TestARowGivenBackBeforeItsStopIsKnownComesSoon(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("bad", "")
		w.sink.Decide(badOnce())
		given := false
		source := &interleaved{Source: w.source, beforeFetch: func() {}, afterStep: func() {
			if given || w.row("bad").State != core.Dead {
				return
			}
			given = true
			if err := w.source.Retry(t.Context(), core.Act{ID: "bad", By: "person"}); err != nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Second) // pages and a heartbeat tell of it meanwhile
		}}
		defer w.start(w.connector(func(c *engine.Connector) { c.Source = source }))()
		w.publishAll(15 * time.Second)
	})
}

// A bulk retry changes something every few milliseconds, and a key that waits has more rows than a page.
func TestABulkRetryBehindABlockedKeyStopsNobody(t *testing.T) {
	const dead, blocked, apart = 1000, 8000, 4 * time.Millisecond
	inBubble(t, 1, func(w *world) {
		mended := false
		w.sink.Decide(func(r core.Record) core.Outcome {
			if r.ID == "first" || strings.HasPrefix(r.ID, "dead") && !mended {
				return core.Outcome{Kind: core.Permanent, Code: "422"}
			}
			return core.Outcome{Kind: core.Delivered}
		})
		block := func(c *engine.Connector) { c.Policy.BlockOnDead = true }
		stop := w.start(w.connector(block))
		w.add("first", "blocked")
		w.wait(time.Minute, "it is dead", func() bool { return w.states()[core.Dead] == 1 })
		for i := range blocked {
			w.add(fmt.Sprint("blocked-", i), "blocked")
		}
		for i := range dead {
			w.add(fmt.Sprint("dead-", i), fmt.Sprint("k", i))
		}
		w.wait(10*time.Minute, "all are dead", func() bool { return w.states()[core.Dead] == dead+1 })
		stop()
		mended = true
		slow := func() { time.Sleep(5 * time.Millisecond) }
		source := &interleaved{Source: w.source, beforeFetch: slow, afterStep: slow}
		defer w.start(w.connector(func(c *engine.Connector) { block(c); c.Source = source }))()
		w.add("new", "new")
		w.wait(5*time.Second, "it is read", func() bool { return w.row("new").State == core.Published })
		for i := range dead {
			if i == dead/2 {
				w.add("newer", "newer")
			}
			if err := w.source.Retry(t.Context(), core.Act{ID: fmt.Sprint("dead-", i), By: "person"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(apart)
		}
		if s := w.row("newer").State; s != core.Published {
			t.Errorf("a new row that came in mid-bulk is %s at its end", s)
		}
		if n := w.states()[core.Published]; n < dead/2 {
			t.Errorf("%d of %d rows given back are published when the last one is given back", n, dead)
		}
		w.wait(time.Second, "all published", func() bool { return w.states()[core.Published] == dead+2 })
	})
}

// slowBlocking lets something happen while the blocked keys are read.
type slowBlocking struct {
	*interleaved
	during func()
}

func (s *slowBlocking) Blocking(ctx context.Context, part int, dead bool) ([]core.Block, error) {
	blocks, err := s.Source.Blocking(ctx, part, dead)
	s.during()
	return blocks, err
}

// A row stops after the blocked keys were read, and is given back before the first page, which passes over its key.
func TestARowThatStopsAndComesBackBeforeTheFirstPageComesSoon(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		refused := map[string]bool{}
		sent, answer := make(chan struct{}), make(chan struct{})
		w.sink.Decide(func(r core.Record) core.Outcome {
			if refused[r.ID] {
				return core.Outcome{Kind: core.Delivered}
			}
			refused[r.ID] = true
			if r.ID == "bad" {
				close(sent)
				<-answer
			}
			return core.Outcome{Kind: core.Permanent, Code: "422"}
		})
		retry := func(id string) {
			if err := w.source.Retry(t.Context(), core.Act{ID: id, By: "person"}); err != nil {
				t.Error(err)
			}
		}
		var armed, stopped atomic.Bool
		source := &slowBlocking{&interleaved{Source: w.source, afterStep: func() {}}, func() {
			if armed.CompareAndSwap(true, false) {
				close(answer)
				time.Sleep(100 * time.Millisecond)
				stopped.Store(true)
			}
		}}
		source.beforeFetch = func() {
			if stopped.CompareAndSwap(true, false) {
				retry("bad")
			}
		}
		defer w.start(w.connector(func(c *engine.Connector) { c.Source, c.Policy.BlockOnDead = source, true }))()
		w.add("other", "o")
		w.wait(5*time.Second, "other is dead", func() bool { return w.row("other").State == core.Dead })
		w.add("bad", "k")
		<-sent
		armed.Store(true)
		retry("other")
		w.publishAll(12 * time.Second)
	})
}

// farSource says of every row that it is due in the far future.
type farSource struct{ *faultySource }

func (f *farSource) Fetch(ctx context.Context, reqs []core.FetchRequest) ([]core.Page, error) {
	pages, err := f.faultySource.Fetch(ctx, reqs)
	for _, page := range pages {
		for i := range page.Rows {
			page.Rows[i].Wait = math.MaxInt64
		}
	}
	return pages, err
}

func TestRowsDueInTheFarFutureCostNoReadings(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("never", "")
		w.add("never either", "k")
		f := &farSource{&faultySource{Source: w.source}}
		defer w.start(w.connector(func(c *engine.Connector) { c.Source = f }))()
		time.Sleep(10 * time.Minute)
		if n := f.count("blocking"); n > 15 {
			t.Errorf("%d readings from the start in ten minutes", n)
		}
	})
}
