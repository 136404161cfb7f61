package retention_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/memory"
	"github.com/connectd/connectd/core/retention"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watched is a table that notes what a cleaner asks of it.
type watched struct {
	*memory.Source
	mu sync.Mutex
	notes
	held time.Duration
	fail func(core.CleanRequest, core.Cleaned) error
}

type notes struct {
	looked  int
	most    []int
	unknown int
	cleaned map[core.State]int
	// forgotten is receipts that were removed.
	forgotten map[core.RowPlace]int
}

func (w *watched) Clean(ctx context.Context, req core.CleanRequest) (core.Cleaned, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most = append(w.most, req.Most)
	if w.fail != nil {
		dry := req
		dry.Retention = core.Retention{Published: core.Forever, Dead: core.Forever, Skipped: core.Forever}
		would, err := w.Source.Clean(ctx, dry)
		if err == nil {
			err = w.fail(req, would)
		}
		if err != nil {
			return would, err
		}
	}
	c, err := w.Source.Clean(ctx, req)
	if c.Removed[core.Published] > 0 {
		c.Held = w.held
	}
	w.looked += c.Looked
	return c, err
}

func (w *watched) Cleaned(removed map[core.State]int, _ time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for state, n := range removed {
		w.cleaned[state] += n
	}
}

func (w *watched) Forgotten(removed map[core.RowPlace]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for place, n := range removed {
		w.forgotten[place] += n
	}
}

func (w *watched) Unknown(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unknown = n
}

// seen is what was noted so far.
func (w *watched) seen() notes {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.notes
	n.most, n.cleaned, n.forgotten = slices.Clone(n.most), maps.Clone(n.cleaned), maps.Clone(n.forgotten)
	return n
}

// insert commits rows and publishes them.
func (w *watched) insert(t *testing.T, owner string, lease core.Lease, ids ...string) {
	t.Helper()
	tx := w.Begin()
	c := core.Change{Lease: lease}
	for _, id := range ids {
		c.Settle = append(c.Settle, core.Settlement{Seq: tx.Insert(memory.Row{ID: id}), State: core.Published})
	}
	tx.Commit()
	if err := w.Step(t.Context(), owner, []core.Change{c}); err != nil {
		t.Fatal(err)
	}
}

func (w *watched) lease(t *testing.T, owner string, d time.Duration) core.Lease {
	t.Helper()
	taken, err := w.Acquire(t.Context(), owner, 1, d, false)
	if err != nil || len(taken) != 1 {
		t.Fatal(taken, err)
	}
	return taken[0].Lease
}

func numbered(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%05d", prefix, i)
	}
	return ids
}

// cleaning runs f beside a cleaner of a table of one partition, which the cleaner's owner has leased.
func cleaning(t *testing.T, r core.Retention, f func(t *testing.T, w *watched, l core.Lease)) string {
	t.Helper()
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		w := &watched{Source: memory.NewSource(1, time.Now), notes: notes{cleaned: map[core.State]int{}, forgotten: map[core.RowPlace]int{}}}
		w.KeepPublished = true
		l := w.lease(t, "one", 10_000*time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		c := retention.Cleaner{Books: w, Owner: "one", Retention: r, Log: slog.New(slog.NewTextHandler(&log, nil)), Observer: w}
		wg.Go(func() { c.Run(ctx) })
		f(t, w, l)
		cancel()
		wg.Wait()
	})
	return log.String()
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func keep(published time.Duration) core.Retention {
	return core.Retention{Published: published, Dead: core.Forever, Skipped: core.Forever, Receipts: core.Forever}
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// https://github.com/hexpm/bob/pull/279: one batch a night.
func TestAllIsCleanedInOneGo(t *testing.T) {
	cleaning(t, keep(time.Hour), func(t *testing.T, w *watched, l core.Lease) {
		w.insert(t, "one", l, numbered("old", 20_000)...)
		after(2 * time.Hour)
		w.insert(t, "one", l, numbered("new", 100)...)
		after(5 * time.Minute)
		want(t, "rows left", len(w.Rows()), 100)
		want(t, "rows cleaned", w.seen().cleaned[core.Published], 20_000)
		want(t, "rows in the ledger", w.Ledger()[core.Published], 20_000)
		after(2 * time.Hour)
		want(t, "rows left at last", len(w.Rows()), 0)
	})
}

func TestARowGoesSoonAfterItsTime(t *testing.T) {
	for _, published := range []time.Duration{0, time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		cleaning(t, keep(published), func(t *testing.T, w *watched, l core.Lease) {
			for i := range 5 {
				w.insert(t, "one", l, fmt.Sprint(i))
				after(published * 9 / 10)
				want(t, "rows that are too young", len(w.Rows()) > 0 || published == 0, true)
				after(published/10 + published/32 + 3*time.Second)
				want(t, fmt.Sprint("rows left after ", published), len(w.Rows()), 0)
			}
		})
	}
}

func TestKeptRowsAreNotWalkedThroughAgainAndAgain(t *testing.T) {
	cleaning(t, keep(24*time.Hour), func(t *testing.T, w *watched, l core.Lease) {
		w.insert(t, "one", l, numbered("kept", 10_000)...)
		after(23 * time.Hour)
		if w.seen().looked > 10_000 {
			t.Errorf("looked at %d rows in a day, of 10,000 that are kept for a day", w.seen().looked)
		}
		after(48 * time.Hour)
		want(t, "rows left", len(w.Rows()), 0)
		if w.seen().looked > 25_000 {
			t.Errorf("looked at %d rows to remove 10,000", w.seen().looked)
		}
	})
}

// What is kept for ever beside rows that go at once is not read all the time.
func TestRowsThatOnlyAPersonMakesDueAreLookedAtSeldom(t *testing.T) {
	r := keep(0)
	r.RequireReceipt = true
	cleaning(t, r, func(t *testing.T, w *watched, l core.Lease) {
		tx := w.Begin()
		c := core.Change{Lease: l}
		for i := range 300 {
			c.Settle = append(c.Settle, core.Settlement{Seq: tx.Insert(memory.Row{ID: fmt.Sprint("dead", i)}), State: core.Dead, Failure: &core.Failure{Code: "x"}})
		}
		tx.Commit()
		if err := w.Step(t.Context(), "one", []core.Change{c}); err != nil {
			t.Fatal(err)
		}
		after(6 * time.Hour)
		if per := w.seen().looked / 300; per > 7 {
			t.Errorf("each of the dead rows was looked at %d times in six hours", per)
		}
	})
}

func TestAHeadOfRowsWithoutReceipt(t *testing.T) {
	r := keep(time.Hour)
	r.RequireReceipt = true
	cleaning(t, r, func(t *testing.T, w *watched, l core.Lease) {
		w.insert(t, "one", l, numbered("head", 300)...)
		w.insert(t, "one", l, numbered("tail", 300)...)
		for _, id := range numbered("tail", 300) {
			if _, err := w.SaveReceipts(t.Context(), []core.Receipt{{Command: id, Status: core.ReceiptDone}}); err != nil {
				t.Fatal(err)
			}
		}
		after(2 * time.Hour)
		want(t, "rows left", len(w.Rows()), 300)
		after(24 * time.Hour)
		if most := 300 * 60; w.seen().looked > most {
			t.Errorf("looked at %d rows, more than %d", w.seen().looked, most)
		}
		before := w.seen().looked
		after(24 * time.Hour)
		if per := (w.seen().looked - before) / 300; per > 25 {
			t.Errorf("each of the waiting rows was looked at %d times a day", per)
		}
		if _, err := w.SaveReceipts(t.Context(), []core.Receipt{{Command: "head00007", Status: core.ReceiptDone}}); err != nil {
			t.Fatal(err)
		}
		after(2 * time.Hour)
		want(t, "rows left", len(w.Rows()), 299)
	})
}

func TestAnotherWorkerGoesOn(t *testing.T) {
	cleaning(t, keep(0), func(t *testing.T, w *watched, l core.Lease) {
		w.insert(t, "one", l, "a")
		after(5 * time.Second)
		want(t, "rows left", len(w.Rows()), 0)
		if err := w.Release(t.Context(), "one", l); err != nil {
			t.Fatal(err)
		}
		two := w.lease(t, "two", time.Minute)
		w.insert(t, "two", two, "b")
		after(50 * time.Second)
		want(t, "rows left while another has the lease", len(w.Rows()), 1)
		after(15 * time.Second)
		w.lease(t, "one", time.Hour)
		after(10 * time.Second)
		want(t, "rows left when it came back", len(w.Rows()), 0)
	})
}

func TestABadRowDoesNotKeepTheOthers(t *testing.T) {
	log := cleaning(t, keep(0), func(t *testing.T, w *watched, l core.Lease) {
		w.fail = func(req core.CleanRequest, would core.Cleaned) error {
			if req.After < 500 && would.Last >= 500 {
				return errors.New("a foreign key does not let row 500 go")
			}
			return nil
		}
		w.insert(t, "one", l, numbered("row", 3_000)...)
		after(30 * time.Minute)
		if left := len(w.Rows()); left > 1000 {
			t.Errorf("%d rows are left", left)
		}
		w.mu.Lock()
		w.fail = nil
		w.mu.Unlock()
		after(10 * time.Minute)
		want(t, "rows left at last", len(w.Rows()), 0)
	})
	want(t, "lines of log for the error", strings.Count(log, "cleaning failed"), 1)
}

// A batch that is too large for its time is not tried again and again as it is; smaller ones get through, and what they did
// is kept. (https://github.com/riverqueue/river/issues/575)
func TestABatchThatRunsOutOfTimeIsFollowedBySmallerOnes(t *testing.T) {
	cleaning(t, keep(time.Hour), func(t *testing.T, w *watched, l core.Lease) {
		w.insert(t, "one", l, numbered("row", 5_000)...)
		w.mu.Lock()
		w.fail = func(req core.CleanRequest, would core.Cleaned) error {
			if min(would.Left, req.Most) > 60 {
				return fmt.Errorf("clean: %w", context.DeadlineExceeded)
			}
			return nil
		}
		w.mu.Unlock()
		after(2 * time.Hour)
		want(t, "rows left", len(w.Rows()), 0)
		want(t, "rows in the ledger", w.Ledger()[core.Published], 5_000)
	})
}

func TestAnOutageIsLoggedOnceAndOutlived(t *testing.T) {
	log := cleaning(t, keep(0), func(t *testing.T, w *watched, l core.Lease) {
		after(time.Second)
		w.mu.Lock()
		w.fail = func(core.CleanRequest, core.Cleaned) error { return errors.New("the database is away") }
		w.mu.Unlock()
		w.insert(t, "one", l, numbered("row", 10)...)
		after(time.Hour)
		if n := len(w.seen().most); n > 150 {
			t.Errorf("%d calls in an hour", n)
		}
		w.mu.Lock()
		w.fail = nil
		w.mu.Unlock()
		after(10 * time.Minute)
		want(t, "rows left", len(w.Rows()), 0)
	})
	want(t, "lines of log", strings.Count(log, "\n"), 2)
}

func TestABatchThatLocksForLongMakesTheNextSmaller(t *testing.T) {
	cleaning(t, keep(0), func(t *testing.T, w *watched, l core.Lease) {
		w.insert(t, "one", l, numbered("fast", 20_000)...)
		after(10 * time.Minute)
		want(t, "rows left", len(w.Rows()), 0)
		want(t, "the largest batch", last(w.seen().most), 500)
		w.mu.Lock()
		w.held = 200 * time.Millisecond
		w.mu.Unlock()
		w.insert(t, "one", l, numbered("slow", 5_000)...)
		after(10 * time.Minute)
		want(t, "rows left", len(w.Rows()), 0)
		want(t, "the smallest batch", last(w.seen().most), 50)
	})
}

func TestReceiptsAreSweptAndUnknownOnesCounted(t *testing.T) {
	r := keep(core.Forever)
	r.Receipts = 30 * time.Hour
	log := cleaning(t, r, func(t *testing.T, w *watched, l core.Lease) {
		w.insert(t, "one", l, "known")
		for _, id := range append(numbered("unknown", 300), "known") {
			if _, err := w.SaveReceipts(t.Context(), []core.Receipt{{Command: id, Status: core.ReceiptDone}}); err != nil {
				t.Fatal(err)
			}
		}
		after(5 * time.Minute)
		want(t, "unknown receipts", w.seen().unknown, 300)
		want(t, "looks at rows that are kept for ever", w.seen().looked, 0)
		after(31 * time.Hour)
		want(t, "unknown receipts at last", w.seen().unknown, 0)
		want(t, "unknown receipts that were removed", fmt.Sprint(w.seen().forgotten), "map[unknown:300]")
		left, err := w.Receipts(t.Context(), core.ReceiptFilter{})
		if err != nil || len(left) != 1 {
			t.Errorf("%v, %v", left, err)
		}
	})
	if !strings.Contains(log, "no table of the database knew were removed") {
		t.Errorf("what is forgotten is not in the log: %s", log)
	}
}

func last(list []int) int { return list[len(list)-1] }
