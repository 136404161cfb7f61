package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
)

func TestG5AWorkerThatLostItsLeaseChangesNothing(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.zombies = true
		w.insert(10, 10)
		f := &faultySource{Source: w.source}
		release := make(chan struct{})
		var later atomic.Bool
		w.sink.Before(func(ctx context.Context, b []core.Record) error {
			if !later.Swap(true) {
				f.frozen() // the first worker's database connection hangs from here on
				<-release  // and its call ends late, whatever its context says
			}
			return nil
		})
		stopZombie := w.start(w.connector(func(c *engine.Connector) { c.Source, c.Policy.Timeout = f, 5*time.Minute }))
		w.wait(5*time.Second, "the first worker's call runs", func() bool { return w.sink.Calls() == 1 })
		defer w.start(w.connector(nil))()
		w.publishAll(45 * time.Second)
		before := fmt.Sprint(w.source.Rows())
		close(release)
		f.set(nil)
		time.Sleep(time.Minute)
		stopZombie()
		if after := fmt.Sprint(w.source.Rows()); after != before {
			t.Errorf("the first worker changed rows after its lease was gone:\n%s\n%s", before, after)
		}
		marked := map[string]bool{}
		for _, a := range w.sink.Arrivals() {
			marked[a.Record.ID] = marked[a.Record.ID] || a.Record.PossibleDuplicate()
		}
		for id, n := range w.sent() {
			if n > 1 && !marked[id] {
				t.Errorf("row %s was sent %d times and no copy is marked", id, n)
			}
		}
	})
}

// The step that follows a send fails: it is repeated, not the send: https://github.com/InditexTech/scs-outbox/pull/94
func TestTheDatabaseAwayLongerThanTheLeaseRepeatsNothing(t *testing.T) {
	inBubble(t, 2, func(w *world) {
		w.insert(200, 20)
		f := &faultySource{Source: w.source}
		w.sink.Before(func(context.Context, []core.Record) error {
			f.away()
			return nil
		})
		defer w.start(w.connector(func(c *engine.Connector) { c.Source, c.Policy.HoldUncertain = f, true }))()
		w.wait(5*time.Second, "calls ran", func() bool { return w.sink.Calls() > 0 })
		time.Sleep(10 * time.Minute)
		w.sink.Before(nil)
		f.set(nil)
		w.publishAll(time.Minute) // nothing is held: what was answered is settled under the revived lease
		for id, n := range w.sent() {
			if n != 1 {
				t.Errorf("row %s was sent %d times", id, n)
			}
		}
	})
}

// A loop that ends with the first restart of its database: https://github.com/latitude-dev/latitude-llm/issues/3835
// Errors in milliseconds while it is away: https://github.com/MassTransit/MassTransit/issues/5944
func TestLoopsSurviveDaysOfErrors(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		f := &faultySource{Source: w.source}
		c := w.connector(func(c *engine.Connector) { c.Source = f })
		defer w.start(c)()
		w.insert(5, 5)
		w.publishAll(5 * time.Second)
		f.away()
		time.Sleep(5 * 24 * time.Hour)
		if s := c.Status(); s.SourceError == "" || time.Since(s.LastRead) < 24*time.Hour {
			t.Errorf("status does not tell that the source is away: %+v", s)
		}
		if n := f.count("renew") + f.count("heartbeat") + f.count("fetch") + f.count("acquire"); n > 5*24*3600*5 {
			t.Errorf("%d calls in five days: no backoff", n)
		}
		f.set(nil)
		w.insert(5, 5)
		w.publishAll(10 * time.Second)
	})
}

// A table that cannot be read while the rest of the database works, as one that lacks a column: said once, and not said
// to be over each time that another call succeeds.
// Thousands of lines about a database that is away: https://github.com/MassTransit/MassTransit/issues/5944
func TestACallThatFailsBesideOthersIsToldOnce(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		f := &faultySource{Source: w.source}
		log := &strings.Builder{}
		c := w.connector(func(c *engine.Connector) {
			c.Source = f
			c.Log = slog.New(slog.NewTextHandler(log, nil))
		})
		stop := w.start(c)
		w.insert(5, 5)
		w.publishAll(5 * time.Second)
		f.set(func(_ context.Context, call string) error {
			if call == "fetch" {
				return errAway
			}
			return nil
		})
		before := f.count("fetch")
		w.insert(5, 5)
		for range 3600 {
			time.Sleep(time.Second)
			if s := c.Status(); s.SourceError == "" {
				t.Fatal("status forgets what fails")
			}
		}
		if n := f.count("fetch") - before; n > 2*3600 {
			t.Errorf("%d fetches in an hour: no backoff", n)
		}
		f.set(nil)
		w.publishAll(10 * time.Second)
		if s := c.Status(); s.SourceError != "" {
			t.Errorf("when it is over: %s", s.SourceError)
		}
		stop()
		failed, again := strings.Count(log.String(), "source call failed"), strings.Count(log.String(), "source answers again")
		if failed != 1 || again != 1 {
			t.Errorf("told %d times and taken back %d times:\n%s", failed, again, log)
		}
	})
}

func TestTheHeartbeatTellsWhenTheSourceWasRead(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		defer w.start(w.connector(nil))()
		time.Sleep(time.Minute)
		workers, err := w.source.Workers(t.Context())
		if err != nil || len(workers) != 1 {
			t.Fatalf("%d workers, %v", len(workers), err)
		}
		var s engine.Status
		if err := json.Unmarshal(workers[0].Info, &s); err != nil {
			t.Fatal(err)
		}
		if age := time.Since(s.LastRead); age > time.Minute {
			t.Errorf("the last read was %v ago", age)
		}
	})
}

// slowSource answers a release long after it was carried out, and notes the largest step.
type slowSource struct {
	*memory.Source
	settled int
}

func (s *slowSource) Release(ctx context.Context, owner string, l core.Lease) error {
	err := s.Source.Release(ctx, owner, l)
	time.Sleep(12 * time.Second)
	return err
}

func (s *slowSource) Step(ctx context.Context, owner string, c core.Change) error {
	s.settled = max(s.settled, len(c.Settle))
	return s.Source.Step(ctx, owner, c)
}

// leaseObserver counts what became of leases.
type leaseObserver struct {
	engine.NoObserver
	lost, released int
}

func (o *leaseObserver) Lost(n int)     { o.lost += n }
func (o *leaseObserver) Released(n int) { o.released += n }

// A step that cannot be done within its call's timeout would be repeated unchanged for ever.
func TestAStepIsBounded(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(40_000, 40_000)
		w.sink.Before(memory.Delay(time.Second))
		s := &slowSource{Source: w.source}
		defer w.start(w.connector(func(c *engine.Connector) { c.Source, c.Policy.InFlight = s, 64 }))()
		w.publishAll(time.Minute)
		if s.settled > 6000 {
			t.Errorf("a step settled %d rows", s.settled)
		}
	})
}

func TestAFullMemoryIsNoSilenceOfTheSource(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(100, 100)
		w.sink.Before(memory.Delay(25 * time.Second))
		c := w.connector(func(c *engine.Connector) { c.Policy.MaxRecords, c.Policy.InFlight = 5, 2 })
		defer w.start(c)()
		for range 60 {
			time.Sleep(time.Second)
			if age := time.Since(c.Status().LastRead); age > 15*time.Second {
				t.Fatalf("the last read was %v ago", age)
			}
		}
	})
}

// slowHealth takes its time to answer how it is.
type slowHealth struct{ *memory.Sink }

func (s slowHealth) Health(ctx context.Context) error {
	return memory.Delay(1900*time.Millisecond)(ctx, nil)
}

// The sink is asked for its health before a call. When the lease runs out meanwhile, nothing is sent, and nothing is uncertain.
// A worker that cannot renew stops by its own clock: https://github.com/rails/solid_queue/pull/778
func TestNothingIsSentWhenTheLeaseRunsOutBeforeTheCall(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("a", "k")
		f := &faultySource{Source: w.source}
		c := w.connector(func(c *engine.Connector) {
			c.Source, c.Sink, c.Policy.Lease, c.Policy.HoldUncertain = f, slowHealth{w.sink}, time.Second, true
		})
		defer w.start(c)()
		w.wait(time.Second, "announced", func() bool { return len(w.source.Inflight(0)) > 0 })
		f.away()
		time.Sleep(10 * time.Second)
		if n := w.sink.Calls(); n != 0 {
			t.Errorf("%d calls began after the lease had run out", n)
		}
		f.set(nil)
		w.wait(30*time.Second, "settled", func() bool { return w.row("a").State != core.Pending || w.sink.Calls() > 0 })
		w.publishAll(10 * time.Second)
	})
}

// A process started again on its host is not the one that died there: https://github.com/oban-bg/oban/issues/862
func TestNoTwoOwnersAlike(t *testing.T) {
	if a, b := engine.NewOwner(), engine.NewOwner(); a == b || len(a) < 17 {
		t.Errorf("owners %q and %q", a, b)
	}
}

func TestG6OnlyAnnouncedRowsAreMarkedAtATakeover(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.zombies = true
		w.add("failing", "f")
		for i := range 300 {
			w.add(fmt.Sprintf("behind-%d", i), "f")
		}
		w.insert(3000, 500)
		f := &faultySource{Source: w.source}
		w.sink.Decide(func(r core.Record) core.Outcome {
			if r.ID == "failing" {
				return core.Outcome{Kind: core.Retryable, RetryAfter: time.Hour}
			}
			return core.Outcome{Kind: core.Delivered}
		})
		var calls atomic.Int32
		w.sink.Before(func(ctx context.Context, b []core.Record) error {
			if calls.Add(1) == 5 {
				f.frozen() // the first worker is cut off from its database in mid-run
			}
			return nil
		})
		stop := w.start(w.connector(func(c *engine.Connector) { c.Source = f }))
		defer stop()
		w.wait(10*time.Second, "cut off", func() bool { return calls.Load() >= 5 })
		time.Sleep(5 * time.Second)
		announced := map[int64]bool{}
		for _, in := range w.source.Inflight(0) {
			for _, seq := range in.Seqs {
				announced[seq] = true
			}
		}
		if len(announced) == 0 {
			t.Fatal("nothing is announced: the test is blind")
		}
		second := w.connector(nil)
		defer w.start(second)()
		w.wait(time.Minute, "published but for the failing key", func() bool { return w.states()[core.Published] == 3000 })
		for _, r := range w.source.Rows() {
			if marked := r.Deliveries > 1 || r.State == core.Pending && r.Deliveries > 0; marked && !announced[r.Seq] && r.ID != "failing" {
				t.Errorf("row %s has deliveries %d and was never announced at the takeover", r.ID, r.Deliveries)
			}
		}
		f.set(nil)
	})
}
