package sourcetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

var cleanTests = []test{
	{"a published row goes when its retention has passed, with its history, and is counted", cleanPublished},
	{"a published row stays before that, and while rows are kept", cleanTooEarly},
	{"pending and held rows never go", cleanNever},
	{"dead and skipped rows go by retentions of their own only", cleanStopped},
	{"where a receipt is required only one that is done lets a row go", cleanReceipt},
	{"only the worker that holds the lease of partition 0 cleans", cleanOwner},
	{"a stretch is what was asked for, and the answer says where it ended", cleanStretch},
	{"a dead row that was retried meanwhile is not removed", cleanRetried},
	{"two cleaners at once remove and count each row once", cleanTwice},
	{"random rows: what must go goes, and all that was inserted is accounted for", cleanRandom},
}

// keepAll keeps everything.
var keepAll = core.Retention{Published: core.Forever, Dead: core.Forever, Skipped: core.Forever, Receipts: core.Forever}

func (w *worker) books() core.Books {
	w.t.Helper()
	b, is := w.src.(core.Books)
	if !is {
		w.t.Fatalf("%T is no core.Books", w.src)
	}
	return b
}

// clean cleans the whole table and says what was removed.
func (w *worker) clean(r core.Retention) map[core.State]int {
	w.t.Helper()
	removed := map[core.State]int{}
	req := core.CleanRequest{Owner: w.owner, Retention: r, Limit: 3}
	for {
		c, err := w.books().Clean(w.ctx, req)
		w.must(err)
		for state, n := range c.Removed {
			if n == 0 {
				continue
			}
			removed[state] += n
		}
		if c.Looked < req.Limit {
			return removed
		}
		req.After = c.Last
	}
}

// left are the ids of all rows, in order.
func (w *worker) left() []string {
	w.t.Helper()
	list, err := w.op.List(w.ctx, core.Filter{Limit: 10_000})
	w.must(err)
	all := make([]string, len(list))
	for i, r := range list {
		all[i] = r.ID
	}
	return all
}

func (w *worker) publish(ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		w.settle(w.row(id), core.Settlement{State: core.Published})
	}
}

func (w *worker) receipt(status core.ReceiptStatus, commands ...string) {
	w.t.Helper()
	for _, id := range commands {
		_, err := w.books().SaveReceipts(w.ctx, []core.Receipt{{Command: id, Status: status}})
		w.must(err)
	}
}

// wantRows wants these rows to be there and no other, and the ledger to have counted so many as cleaned.
func wantRows(t *testing.T, table Table, w *worker, cleaned map[core.State]int, ids ...string) {
	t.Helper()
	if got := w.left(); !slices.Equal(got, ids) {
		t.Errorf("rows are %q, want %q", got, ids)
	}
	ledger := table.Ledger(t)
	maps.DeleteFunc(ledger, func(_ core.State, n int) bool { return n == 0 })
	if !maps.Equal(ledger, cleaned) {
		t.Errorf("the ledger has %v, want %v", ledger, cleaned)
	}
}

func cleanPublished(t *testing.T, h Harness) {
	table, w := start(t, h, keyed("k", "a", "b", "c", "d", "e")...)
	w.kill("b")
	w.must(w.op.Retry(w.ctx, core.Act{ID: "b", By: "ops"}))
	w.publish("a", "b", "e")
	r := keepAll
	r.Published = 0
	if got := w.clean(r); got[core.Published] != 3 || len(got) != 1 {
		t.Errorf("removed %v", got)
	}
	wantRows(t, table, w, map[core.State]int{core.Published: 3}, "c", "d")
	if table.Lines == nil {
		t.Log("not tested: that the history goes")
	} else {
		want(t, "lines of history", table.Lines(t), 0)
	}
	w.clean(r)
	wantRows(t, table, w, map[core.State]int{core.Published: 3}, "c", "d")
}

func cleanTooEarly(t *testing.T, h Harness) {
	table, w := start(t, h, keyed("k", "a", "b")...)
	w.publish("a", "b")
	r := keepAll
	r.Published = time.Hour
	c, err := w.books().Clean(w.ctx, core.CleanRequest{Owner: w.owner, Retention: r, Limit: 10})
	w.must(err)
	want(t, "looked at", c.Looked, 2)
	want(t, "left", c.Left, 2)
	if c.Again <= 50*time.Minute || c.Again > time.Hour {
		t.Errorf("to be looked at again in %v", c.Again)
	}
	w.clean(keepAll)
	wantRows(t, table, w, map[core.State]int{}, "a", "b")
	r.Published = 20 * time.Millisecond
	w.until("the retention to pass", func() bool { return w.clean(r)[core.Published] > 0 || len(w.left()) == 0 })
}

func cleanNever(t *testing.T, h Harness) {
	table, w := startAlone(t, h, keyed("k", "pending", "held", "sending", "retried")...)
	w.hold("held")
	w.settle(w.row("retried"), core.Settlement{State: core.Pending, Attempts: 1, Failure: &core.Failure{Code: "x"}})
	w.announce(1, w.row("sending"))
	w.receipt(core.ReceiptDone, "pending", "held", "sending", "retried")
	w.clean(core.Retention{})
	wantRows(t, table, w, map[core.State]int{}, "pending", "held", "sending", "retried")
}

// A careless purge would take what is parked along with what is done: https://github.com/pal-tamas/rask/pull/533.
func cleanStopped(t *testing.T, h Harness) {
	table, w := start(t, h, keyed("k", "dead", "skipped", "published")...)
	w.kill("dead")
	w.kill("skipped")
	w.must(w.op.Skip(w.ctx, core.Act{ID: "skipped", By: "ops"}))
	w.publish("published")
	r := keepAll
	r.Dead, r.Skipped = time.Hour, time.Hour
	w.clean(r)
	wantRows(t, table, w, map[core.State]int{}, "dead", "skipped", "published")
	r = keepAll
	r.Dead = 0
	w.clean(r)
	wantRows(t, table, w, map[core.State]int{core.Dead: 1}, "skipped", "published")
	r = keepAll
	r.Skipped = 0
	w.clean(r)
	wantRows(t, table, w, map[core.State]int{core.Dead: 1, core.Skipped: 1}, "published")
}

func cleanReceipt(t *testing.T, h Harness) {
	table, w := startAlone(t, h, keyed("k", "none", "failed", "done", "early", "mended")...)
	w.publish("none", "failed", "done", "mended")
	w.receipt(core.ReceiptFailed, "failed", "mended")
	w.receipt(core.ReceiptDone, "done", "early", "somebody else's", "mended")
	r := keepAll
	r.RequireReceipt, r.Published = true, time.Hour
	w.clean(r)
	wantRows(t, table, w, map[core.State]int{}, "none", "failed", "done", "early", "mended")
	r.Published = 0
	w.clean(r)
	wantRows(t, table, w, map[core.State]int{core.Published: 2}, "none", "failed", "early")
	if table.Receipt == nil {
		t.Log("not tested: a consumer's receipt by SQL")
	} else {
		table.Receipt(t, "none", core.Receipt{Status: core.ReceiptDone})
		w.clean(r)
		wantRows(t, table, w, map[core.State]int{core.Published: 3}, "failed", "early")
	}
	r.RequireReceipt = false
	w.clean(r)
	if got := w.left(); !slices.Equal(got, []string{"early"}) {
		t.Errorf("without the rule %q are left", got)
	}
}

// Every instance that cleans is one more to deadlock with: https://github.com/Particular/NServiceBus.Persistence.Sql/issues/778.
func cleanOwner(t *testing.T, h Harness) {
	table, one := start(t, h, keyed("k", "a")...)
	one.publish("a")
	two := join(t, table, "two")
	_, err := two.books().Clean(two.ctx, core.CleanRequest{Owner: "two", Limit: 10})
	two.refused("clean without the lease", err)
	_, err = two.books().CleanReceipts(two.ctx, core.ReceiptsRequest{Owner: "two", Limit: 10})
	two.refused("clean receipts without the lease", err)
	one.expire()
	_, err = one.books().Clean(one.ctx, core.CleanRequest{Owner: "one", Limit: 10})
	one.refused("clean under a lease that ran out", err)
	two.takeOver(false)
	_, err = one.books().Clean(one.ctx, core.CleanRequest{Owner: "one", Limit: 10})
	one.refused("clean under a lease that was taken over", err)
	wantRows(t, table, two, map[core.State]int{}, "a")
	two.clean(core.Retention{})
	wantRows(t, table, two, map[core.State]int{core.Published: 1})
}

func cleanStretch(t *testing.T, h Harness) {
	table, w := start(t, h, keyed("k", "a", "b", "c", "d", "e", "f")...)
	rows := w.pending()
	seq := func(id string) int64 { return rows[id].Record.Seq }
	w.publish("a", "b", "d", "e", "f")
	clean := func(req core.CleanRequest) core.Cleaned {
		t.Helper()
		req.Owner, req.Retention = w.owner, core.Retention{Dead: core.Forever, Skipped: core.Forever}
		c, err := w.books().Clean(w.ctx, req)
		w.must(err)
		return c
	}
	c := clean(core.CleanRequest{After: seq("a"), Limit: 2})
	want(t, "looked at", c.Looked, 2)
	want(t, "the last one", c.Last, seq("c"))
	want(t, "left", c.Left, 1)
	wantRows(t, table, w, map[core.State]int{core.Published: 1}, "a", "c", "d", "e", "f")
	c = clean(core.CleanRequest{UpTo: seq("e"), Limit: 10})
	want(t, "looked at", c.Looked, 4)
	want(t, "the last one", c.Last, seq("e"))
	wantRows(t, table, w, map[core.State]int{core.Published: 4}, "c", "f")
	c = clean(core.CleanRequest{After: seq("f"), Limit: 10})
	want(t, "looked at behind the end", c.Looked, 0)
	// A row that commits late, below what was looked at, is found by the next look.
	c = clean(core.CleanRequest{Limit: 10})
	want(t, "left", c.Left, 1)
	wantRows(t, table, w, map[core.State]int{core.Published: 5}, "c")
}

func cleanRetried(t *testing.T, h Harness) {
	table, w := start(t, h, keyed("k", "a")...)
	r := keepAll
	r.Dead = 0
	for range 20 {
		w.kill("a")
		var wg sync.WaitGroup
		var cleaned core.Cleaned
		var cleanErr, retryErr error
		wg.Go(func() {
			cleaned, cleanErr = w.books().Clean(w.ctx, core.CleanRequest{Owner: w.owner, Retention: r, Limit: 10})
		})
		wg.Go(func() { retryErr = w.op.Retry(w.ctx, core.Act{ID: "a", By: "ops"}) })
		wg.Wait()
		w.must(cleanErr)
		if cleaned.Removed[core.Dead] == 1 {
			if retryErr == nil || !errors.Is(retryErr, core.ErrNoRow) {
				t.Fatalf("a row was removed and its retry answered %v", retryErr)
			}
			wantRows(t, table, w, map[core.State]int{core.Dead: 1})
			return
		}
		w.must(retryErr)
		want(t, "rows left", len(w.left()), 1)
	}
}

func cleanTwice(t *testing.T, h Harness) {
	const n = 200
	rows := make([]Row, n)
	for i := range rows {
		rows[i] = Row{ID: fmt.Sprintf("r%03d", i), Key: "k", Keyed: true}
	}
	table, w := start(t, h, rows...)
	var c core.Change
	all := w.pending()
	part := 0
	for _, r := range all {
		part = r.part
		c.Settle = append(c.Settle, core.Settlement{Seq: r.Record.Seq, State: core.Published})
	}
	w.must(w.step(part, c))
	var wg sync.WaitGroup
	removed := make([]int, 3)
	for i := range removed {
		other := join(t, table, "one")
		wg.Go(func() {
			req := core.CleanRequest{Owner: "one", Limit: 7}
			for {
				c, err := other.books().Clean(other.ctx, req)
				if err != nil {
					t.Errorf("clean: %v", err)
					return
				}
				removed[i] += c.Removed[core.Published]
				if c.Looked < req.Limit {
					return
				}
				req.After = c.Last
			}
		})
	}
	wg.Wait()
	rest := w.clean(core.Retention{})[core.Published]
	want(t, "rows removed", removed[0]+removed[1]+removed[2]+rest, n)
	wantRows(t, table, w, map[core.State]int{core.Published: n})
}

// https://github.com/MassTransit/MassTransit/issues/6145: were rows removed that had not been sent?
func cleanRandom(t *testing.T, h Harness) {
	for round := range 4 {
		rnd := rand.New(rand.NewPCG(7, uint64(round)))
		var rows []Row
		for i := range 24 {
			rows = append(rows, Row{ID: fmt.Sprintf("%d-%02d", round, i), Key: fmt.Sprint(rnd.IntN(4)), Keyed: rnd.IntN(3) > 0})
		}
		table, w := startAlone(t, h, rows...)
		r := core.Retention{Published: some(rnd), Dead: some(rnd), Skipped: some(rnd), RequireReceipt: rnd.IntN(2) == 0}
		cleaned, stays := map[core.State]int{}, []string{}
		for _, row := range rows {
			state, receipt := w.bring(rnd, row.ID), core.ReceiptStatus("")
			switch rnd.IntN(4) {
			case 0:
				receipt = core.ReceiptFailed
				w.receipt(receipt, row.ID)
			case 1:
				receipt = core.ReceiptDone
				w.receipt(receipt, row.ID)
			}
			goes := false
			switch state {
			case core.Published:
				goes = r.Published == 0 && (!r.RequireReceipt || receipt == core.ReceiptDone)
			case core.Dead:
				goes = r.Dead == 0
			case core.Skipped:
				goes = r.Skipped == 0
			}
			if goes {
				cleaned[state]++
			} else {
				stays = append(stays, row.ID)
			}
		}
		w.clean(r)
		wantRows(t, table, w, cleaned, stays...)
		if t.Failed() {
			t.Fatalf("round %d, %+v", round, r)
		}
	}
}

func some(rnd *rand.Rand) time.Duration {
	return []time.Duration{core.Forever, 0, 0, time.Hour}[rnd.IntN(4)]
}

// bring gives a pending row some state.
func (w *worker) bring(rnd *rand.Rand, id string) core.State {
	switch rnd.IntN(6) {
	case 0:
		w.kill(id)
		return core.Dead
	case 1:
		w.hold(id)
		return core.Held
	case 2:
		w.kill(id)
		w.must(w.op.Skip(w.ctx, core.Act{ID: id, By: "ops"}))
		return core.Skipped
	case 3:
		return core.Pending
	default:
		w.publish(id)
		return core.Published
	}
}
