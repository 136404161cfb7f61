package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
)

// killers makes the sink die on records whose id begins with "kill", and hang on those that begin with "hang".
func (w *world) killers() {
	w.sink.Before(func(ctx context.Context, batch []core.Record) error {
		for _, r := range batch {
			switch {
			case strings.HasPrefix(r.ID, "kill"):
				return fmt.Errorf("signal: killed: %w", core.ErrSinkDied)
			case strings.HasPrefix(r.ID, "hang"):
				<-ctx.Done()
				return ctx.Err()
			}
		}
		return nil
	})
}

// excuseAll lets every row be buried without the sink taking it for a fault.
func (w *world) excuseAll() {
	for _, r := range w.source.Rows() {
		w.sink.Excuse(r.ID)
	}
}

func TestG7ARecordThatKillsTheSinkEndsDeadAlone(t *testing.T) {
	inBubble(t, 2, func(w *world) {
		w.insert(300, 30)
		w.add("kill-1", "k1")
		w.insert(300, 30)
		w.add("kill-2", "")
		w.insert(300, 30)
		w.killers()
		w.sink.Excuse("kill-1")
		defer w.start(w.connector(nil))()
		w.wait(10*time.Minute, "two dead, the rest published", func() bool {
			s := w.states()
			return s[core.Dead] == 2 && s[core.Published] == w.n-2
		})
		for _, id := range []string{"kill-1", "kill-2"} {
			if r := w.row(id); r.Crashes != core.MaxCrashes || r.Attempts != 0 || !strings.HasPrefix(r.LastError, core.ReasonCrash) {
				t.Errorf("%s: %d crashes, %d attempts, last error %q", id, r.Crashes, r.Attempts, r.LastError)
			}
		}
		for _, r := range w.source.Rows() {
			if r.State == core.Published && r.Attempts > 0 {
				t.Errorf("neighbour %s was charged %d attempts", r.ID, r.Attempts)
			}
		}
	})
}

// Also where nothing else is there to be delivered, and so to clear the sink: it is the person's word, and one crash, not six,
// each time. D7: https://github.com/hookdeck/outpost/pull/670
func TestARetriedKillerIsBuriedByOneCrash(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("kill", "k")
		w.killers()
		w.sink.Excuse("kill")
		defer w.start(w.connector(nil))()
		dead := func() bool { return w.row("kill").State == core.Dead }
		w.wait(10*time.Minute, "the killer dead", dead)
		for n := 1; n <= 3; n++ {
			if err := w.source.Retry(t.Context(), core.Act{ID: "kill", By: "ops"}); err != nil {
				t.Fatal(err)
			}
			w.wait(2*time.Minute, "the killer dead again", dead)
			if r := w.row("kill"); r.Crashes != core.MaxCrashes+n || r.Attempts != 0 {
				t.Errorf("after retry %d: %d crashes, %d attempts", n, r.Crashes, r.Attempts)
			}
		}
		w.insert(10, 3)
		w.wait(time.Minute, "others published", func() bool { return w.states()[core.Published] == 10 })
	})
}

// Rows that hang, found again first by each worker, starve nobody: https://github.com/graphile/worker/pull/313
func TestARecordThatHangsEndsDeadAlone(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(100, 30)
		w.add("hang", "k1")
		w.insert(100, 30)
		w.killers()
		w.sink.Excuse("hang")
		defer w.start(w.connector(func(c *engine.Connector) { c.Policy.Timeout = 5 * time.Second }))()
		w.wait(10*time.Minute, "one dead, the rest published", func() bool {
			s := w.states()
			return s[core.Dead] == 1 && s[core.Published] == w.n-1
		})
	})
}

// Nobody knows which record makes a call fail. It must not be in every call.
func TestARecordWhoseCallsFailHoldsUpItsKeyNotTheTable(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("poison", "p")
		w.add("behind it", "p")
		w.insert(1000, 100)
		w.sink.Before(func(_ context.Context, batch []core.Record) error {
			for _, r := range batch {
				if r.ID == "poison" {
					return errors.New("index out of range")
				}
			}
			return nil
		})
		defer w.start(w.connector(nil))()
		w.wait(time.Minute, "the others published", func() bool { return w.states()[core.Published] == 1000 })
		time.Sleep(time.Hour)
		w.insert(1000, 100)
		w.wait(2*time.Minute, "later ones published", func() bool { return w.states()[core.Published] == 2000 })
		if s := w.row("poison"); s.State != core.Pending || s.Attempts > 0 {
			t.Errorf("poison is %s after %d attempts", s.State, s.Attempts)
		}
	})
}

func TestACallThatHangsInAnOutageCountsNothing(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(50, 10)
		w.sink.SetHealth(errAway)
		w.sink.Before(memory.Block(nil))
		defer w.start(w.connector(func(c *engine.Connector) { c.Policy.Timeout = time.Second }))()
		time.Sleep(time.Hour)
		for _, r := range w.source.Rows() {
			if r.State != core.Pending || r.Crashes > 0 || r.Attempts > 0 {
				t.Fatalf("row %s: %s, %d crashes, %d attempts", r.ID, r.State, r.Crashes, r.Attempts)
			}
		}
		w.sink.SetHealth(nil)
		w.sink.Before(nil)
		w.publishAll(5 * time.Minute)
	})
}

// A sink without Health never says that its destination is there, so a timeout may be an outage.
func TestACallThatHangsInASinkWithoutHealthCountsNothing(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(50, 10)
		w.add("hang", "h")
		w.sink.SetHealth(core.ErrNoHealth)
		w.killers()
		defer w.start(w.connector(func(c *engine.Connector) { c.Policy.Timeout = time.Second }))()
		w.wait(time.Minute, "the others published", func() bool { return w.states()[core.Published] == 50 })
		time.Sleep(time.Hour)
		if r := w.row("hang"); r.State != core.Pending || r.Crashes > 0 || r.Attempts > 0 {
			t.Errorf("%s, %d crashes, %d attempts", r.State, r.Crashes, r.Attempts)
		}
	})
}

func TestASinkThatDiesOnEverythingIsQuarantined(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(50, 10)
		w.excuseAll()
		w.sink.Before(memory.Fail(fmt.Errorf("exit status 2: %w", core.ErrSinkDied)))
		c := w.connector(nil)
		defer w.start(c)()
		w.wait(time.Hour, "quarantine", func() bool { return c.Status().Gate == "quarantined" })
		time.Sleep(6 * time.Hour)
		if s := w.states(); s[core.Dead] > 1 {
			t.Errorf("%d rows were buried", s[core.Dead])
		}
		if s := c.Status(); s.GateReason == "" {
			t.Error("the status gives no reason")
		}
		w.sink.Before(nil)
		w.wait(10*time.Minute, "the rest published", func() bool {
			s := w.states()
			return s[core.Published]+s[core.Dead] == w.n
		})
	})
}

// A person retries many dead rows at once while the sink dies on everything: a few are buried again, then the sink is
// blamed, and the others wait, as the person wanted.
func TestManyRetriedKillersDoNotGoWithASinkThatDiesOnEverything(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		const killers = 30
		for n := range killers {
			w.add(fmt.Sprint("kill-", n), "")
			w.insert(5, 5)
		}
		w.excuseAll()
		w.killers()
		c := w.connector(nil)
		defer w.start(c)()
		w.wait(12*time.Hour, "the killers dead, the rest published", func() bool {
			s := w.states()
			return s[core.Dead] == killers && s[core.Published] == w.n-killers
		})
		w.sink.Before(memory.Fail(fmt.Errorf("exit status 2: %w", core.ErrSinkDied)))
		for n := range killers {
			if err := w.source.Retry(t.Context(), core.Act{ID: fmt.Sprint("kill-", n), By: "ops"}); err != nil {
				t.Fatal(err)
			}
		}
		w.wait(time.Hour, "quarantine", func() bool { return c.Status().Gate == "quarantined" })
		time.Sleep(12 * time.Hour)
		if s := w.states(); s[core.Dead] > core.MaxCrashes {
			t.Errorf("%d rows were buried again", s[core.Dead])
		}
		w.sink.Before(nil)
		w.wait(20*time.Minute, "the rest published", func() bool {
			s := w.states()
			return s[core.Published]+s[core.Dead] == w.n
		})
	})
}

func TestCarefulSendsHaveTheProcessForThemselves(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		other := memory.NewSource(1, time.Now)
		otherSink := memory.NewSink()
		var running, together atomic.Int32
		watch := func(sink *memory.Sink, suspects bool) {
			sink.Before(func(ctx context.Context, batch []core.Record) error {
				running.Add(1)
				defer running.Add(-1)
				careful := suspects && batch[0].Deliveries > 3
				time.Sleep(30 * time.Millisecond)
				if careful && running.Load() > 1 {
					together.Add(1)
				}
				for _, r := range batch {
					if strings.HasPrefix(r.ID, "kill") {
						return fmt.Errorf("signal: killed: %w", core.ErrSinkDied)
					}
				}
				return nil
			})
		}
		watch(w.sink, true)
		watch(otherSink, false)
		w.add("kill", "")
		for i := range 3000 {
			tx := other.Begin()
			tx.Insert(memory.Row{ID: fmt.Sprint(i)})
			tx.Commit()
		}
		defer w.start(w.connector(nil))()
		defer w.start(w.connector(func(c *engine.Connector) {
			c.Name, c.Source, c.Sink, c.Policy.MaxRecords = "other", other, otherSink, 5
		}))()
		w.wait(time.Minute, "the killer is dead", func() bool { return w.states()[core.Dead] == 1 })
		if together.Load() > 0 {
			t.Error("another call ran beside a careful one")
		}
	})
}

func TestG6HoldPutsUncertainRowsBeforeAPerson(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("a", "k")
		w.add("b", "k")
		w.add("free", "f")
		var later atomic.Bool
		w.sink.Before(func(_ context.Context, batch []core.Record) error {
			if batch[0].ID == "a" && !later.Swap(true) {
				return errAway
			}
			return nil
		})
		c := w.connector(func(c *engine.Connector) { c.Policy.HoldUncertain, c.Policy.MaxRecords = true, 1 })
		defer w.start(c)()
		w.wait(10*time.Second, "a held, free published", func() bool {
			return w.row("a").State == core.Held && w.row("free").State == core.Published
		})
		time.Sleep(5 * time.Minute)
		if s := w.row("b").State; s != core.Pending {
			t.Errorf("b is %s behind a held row", s)
		}
		if sent := w.sent(); sent["a"] > 0 {
			t.Error("a held row was sent again")
		}
		if err := w.source.ReleaseRow(t.Context(), core.Act{ID: "a", By: "person"}); err != nil {
			t.Fatal(err)
		}
		w.publishAll(15 * time.Second)
		for _, a := range w.sink.Arrivals() {
			if marked := a.Record.PossibleDuplicate(); marked != (a.Record.ID == "a") {
				t.Errorf("row %s: mark %v", a.Record.ID, marked)
			}
		}
	})
}

// One dead destination uses all workers: https://github.com/frain-dev/convoy/issues/1926
func TestOneBadConnectorLeavesTheOthersAlone(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		bad := memory.NewSink()
		bad.Before(memory.Fail(errAway))
		broken := memory.NewSource(1, time.Now)
		tx := broken.Begin()
		tx.Insert(memory.Row{ID: "x"})
		tx.Commit()
		defer w.start(w.connector(func(c *engine.Connector) { c.Name, c.Source, c.Sink = "bad", broken, bad }))()
		defer w.start(w.connector(nil))()
		w.insert(1000, 10)
		w.publishAll(5 * time.Second)
	})
}

func TestARecordThatFailsEveryCallStopsNoOther(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(2000, 100)
		w.add("spoil", "s")
		w.insert(2000, 100)
		w.sink.Before(func(_ context.Context, batch []core.Record) error {
			for _, r := range batch {
				if r.ID == "spoil" {
					return errAway
				}
			}
			return nil
		})
		defer w.start(w.connector(nil))()
		w.wait(30*time.Second, "the others published", func() bool { return w.states()[core.Published] == w.n-1 })
		time.Sleep(10 * time.Minute)
		w.insert(2000, 100)
		w.wait(10*time.Second, "later ones published", func() bool { return w.states()[core.Published] == w.n-1 })
		if r := w.row("spoil"); r.State != core.Pending || r.Attempts != 0 || r.Deliveries < 10 {
			t.Errorf("spoil: %s, %d attempts, %d deliveries", r.State, r.Attempts, r.Deliveries)
		}
	})
}

func TestARecordThatFailsEveryCallIsGivenUpOnlyWhileOthersAreDelivered(t *testing.T) {
	for _, outage := range []bool{false, true} {
		t.Run(fmt.Sprintf("outage %v", outage), func(t *testing.T) {
			inBubble(t, 1, func(w *world) {
				w.sink.Excuse("spoil")
				w.add("spoil", "s")
				began := time.Now()
				w.sink.Before(func(_ context.Context, batch []core.Record) error {
					for _, r := range batch {
						if r.ID == "spoil" || outage && time.Since(began) > 10*time.Minute {
							return errAway
						}
					}
					return nil
				})
				defer w.start(w.connector(func(c *engine.Connector) { c.Policy.Retry.GiveUpAfter = time.Hour }))()
				for range 700 {
					w.insert(1, 1)
					time.Sleep(10 * time.Second)
				}
				r := w.row("spoil")
				if outage {
					if r.State != core.Pending {
						t.Errorf("%s in an outage: %s", r.State, r.LastError)
					}
					return
				}
				if r.State != core.Dead || !strings.HasPrefix(r.LastError, core.ReasonGaveUp) {
					t.Errorf("%s: %s", r.State, r.LastError)
				}
			})
		})
	}
}
