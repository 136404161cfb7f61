package sourcetest

import (
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

var traceTests = []test{
	{"Queue finds the row of the key that is in the way", queueOfKey},
	{"Queue counts the rows of the partition before it", queueCounts},
	{"Queue tells when a row was announced", queueSent},
	{"a lease tells since when it has been free", freeSince},
	{"Trace finds receipts, and counts what was cleaned", traceOfID},
}

// first is the id of the row that holds back another one.
func (w *worker) first(id string, held ...core.State) string {
	w.t.Helper()
	info, _ := w.show(id)
	q, err := w.op.Queue(w.ctx, info, held...)
	w.must(err)
	if q.First == nil {
		return ""
	}
	return q.First.ID
}

func queueOfKey(t *testing.T, h Harness) {
	rows := append(keyed("k", "published", "dead", "held", "pending", "last"), keyed("", "empty", "behind empty")...)
	rows = append(rows, append(keyed("K", "other"), Row{ID: "none"}, Row{ID: "none too"})...)
	_, w := start(t, h, rows...)
	w.settle(w.row("published"), core.Settlement{State: core.Published})
	w.kill("dead")
	w.hold("held")
	both := []core.State{core.Held, core.Dead}
	want(t, "behind a dead row", w.first("last", both...), "dead")
	want(t, "behind a held row", w.first("last", core.Held), "held")
	want(t, "without order", w.first("last"), "")
	want(t, "behind an empty key's row", w.first("behind empty", both...), "empty")
	want(t, "first of its key", w.first("empty", both...), "")
	want(t, "of a key in other letters", w.first("other", both...), "")
	want(t, "without a key", w.first("none too", both...), "")
	w.must(w.op.Skip(w.ctx, core.Act{ID: "held", By: "ops"}))
	want(t, "behind a pending row", w.first("last", core.Held), "pending")
	w.announce(1, w.row("pending"))
	info, _ := w.show("last")
	q, err := w.op.Queue(w.ctx, info, core.Held)
	w.must(err)
	want(t, "the row in the way is whole", q.First.Seq < info.Seq && q.First.State == core.Pending && q.First.Sending && q.First.Key == "k", true)
}

func queueCounts(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a", "b", "c", "d")...)
	w.settle(w.row("a"), core.Settlement{State: core.Published})
	w.kill("b")
	for id, n := range map[string]int{"c": 0, "d": 1} {
		info, _ := w.show(id)
		q, err := w.op.Queue(w.ctx, info)
		w.must(err)
		want(t, "rows before "+id, q.Before, n)
		if age := q.Now.Sub(info.CreatedAt); age < 0 || age > patience {
			t.Errorf("by the database's clock %s is %v old", id, age)
		}
	}
}

func queueSent(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a", "b")...)
	r := w.row("a")
	w.announce(1, r)
	for id, sent := range map[string]bool{"a": true, "b": false} {
		info, _ := w.show(id)
		want(t, id+" is on its way", info.Sending, sent)
		q, err := w.op.Queue(w.ctx, info)
		w.must(err)
		if (q.Sent != nil) != sent || sent && (q.Sent.Epoch != w.lease(r.part).Epoch || q.Now.Sub(q.Sent.At) < 0 || q.Now.Sub(q.Sent.At) > patience) {
			t.Errorf("announcement of %s: %+v at %v", id, q.Sent, q.Now)
		}
	}
}

func freeSince(t *testing.T, h Harness) {
	_, w := start(t, h)
	left := func() time.Duration {
		leases, err := w.op.Leases(w.ctx)
		w.must(err)
		return leases[0].Left
	}
	w.release()
	w.until("some time to pass", func() bool { return left() < 0 })
	if got := -left(); got > patience {
		t.Errorf("the lease has been free for %v", got)
	}
	fresh := h.New(t, Options{})
	leases, err := join(t, fresh, "two").op.Leases(w.ctx)
	w.must(err)
	want(t, "a lease that nobody ever had", leases[0].Left, 0)
}

func traceOfID(t *testing.T, h Harness) {
	table := h.New(t, Options{DeletePublished: true, OwnReceipts: true})
	w := join(t, table, "one")
	w.acquireAll()
	table.Insert(t, keyed("k", "a", "b")...)
	trace := func(id string) core.Trace {
		got, err := w.op.Trace(w.ctx, id)
		w.must(err)
		return got
	}
	want(t, "cleaned", trace("a").Cleaned, 0)
	w.settle(w.row("a"), core.Settlement{State: core.Published})
	for _, id := range []string{"nobody", "bad\xffid", "nul\x00id"} {
		want(t, "cleaned", trace(id).Cleaned, 1)
	}
	if table.Receipt == nil {
		t.Log("not tested: the harness has no receipts")
		return
	}
	table.Receipt(t, "a", core.Receipt{Consumer: "mailer", Status: "done", ResultRef: "m-1"})
	table.Receipt(t, "a", core.Receipt{Consumer: "biller", Status: "failed"})
	got := trace("a").Receipts
	if len(got) != 2 || got[0].Consumer != "biller" || got[1].Status != "done" || got[1].ResultRef != "m-1" || time.Since(got[0].At).Abs() > patience {
		t.Errorf("receipts: %+v", got)
	}
	for _, id := range []string{"b", "", "a ", "A"} {
		if other := trace(id).Receipts; len(other) > 0 {
			t.Errorf("receipts of %q: %+v", id, other)
		}
	}
	want(t, "place of a row that was cleaned before its receipts came", got[0].Row, core.RowUnknown)
	table.Receipt(t, "b", core.Receipt{Consumer: "mailer", Status: "done"})
	want(t, "place of a row that is there", trace("b").Receipts[0].Row, core.RowThere)
}

// tellsWho checks what is told of a row that was on its way when its worker went.
func tellsWho(t *testing.T, what, text, worker string) {
	t.Helper()
	if !strings.Contains(text, "worker "+worker+" began to send it at 20") || !strings.Contains(text, "lost its lease before an answer was stored") {
		t.Errorf("%s does not tell whose send it was, and when: %q", what, text)
	}
}
