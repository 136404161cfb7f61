package sourcetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

var receiptTests = []test{
	{"a receipt is stored once, and a repeat is answered with the first", receiptRepeated},
	{"a failed receipt may be replaced, a done one never", receiptReplaced},
	{"a started receipt is replaced by one that is done, and by no other", receiptStarted},
	{"what comes twice in one call is one receipt", receiptFolded},
	{"consumers have receipts of their own", receiptConsumers},
	{"what cannot be stored is refused, and the others are stored", receiptRefused},
	{"a receipt of no row is kept and known for it", receiptUnknown},
	{"calls at once store each receipt once", receiptsAtOnce},
	{"receipts are listed by command and in pages", receiptPages},
	{"a receipt outlives its row for its own retention", receiptOutlives},
	{"a receipt stays as long as its row, however old it is", receiptStays},
}

func (w *worker) save(list ...core.Receipt) []core.ReceiptResult {
	w.t.Helper()
	results, err := w.books().SaveReceipts(w.ctx, list)
	w.must(err)
	if len(results) != len(list) {
		w.t.Fatalf("%d answers to %d receipts", len(results), len(list))
	}
	return results
}

func answers(results []core.ReceiptResult) string {
	var all []string
	for _, r := range results {
		all = append(all, string(r.Answer))
	}
	return strings.Join(all, " ")
}

// stored reads the receipts of a command, as text.
func (w *worker) stored(command string) []string {
	w.t.Helper()
	list, err := w.books().Receipts(w.ctx, core.ReceiptFilter{Command: command})
	w.must(err)
	var all []string
	for _, r := range list {
		if r.At.IsZero() {
			w.t.Errorf("no time: %+v", r)
		}
		all = append(all, fmt.Sprint(r.Consumer, " ", r.Status, " ", r.ResultRef, " ", r.Row))
	}
	return all
}

func wantStored(t *testing.T, w *worker, command string, want ...string) {
	t.Helper()
	if got := w.stored(command); !slices.Equal(got, want) {
		t.Errorf("receipts of %s are %q, want %q", command, got, want)
	}
}

func receiptRepeated(t *testing.T, h Harness) {
	_, w := startAlone(t, h, keyed("k", "a")...)
	first := core.Receipt{Command: "a", Consumer: "billing", Status: core.ReceiptDone, ResultRef: "one"}
	one := w.save(first)[0]
	want(t, "answer", one.Answer, core.ReceiptStored)
	want(t, "row", one.Receipt.Row, core.RowThere)
	for _, again := range []core.Receipt{first, {Command: "a", Consumer: "billing", Status: core.ReceiptDone, ResultRef: "two"}} {
		two := w.save(again)[0]
		want(t, "answer", two.Answer, core.ReceiptRepeated)
		want(t, "receipt", two.Receipt, one.Receipt)
	}
	wantStored(t, w, "a", "billing done one there")
}

func receiptReplaced(t *testing.T, h Harness) {
	_, w := startAlone(t, h, keyed("k", "a")...)
	for _, c := range []struct {
		status core.ReceiptStatus
		ref    string
		answer core.ReceiptAnswer
		stored string
	}{
		{core.ReceiptFailed, "1", core.ReceiptStored, " failed 1 there"},
		{core.ReceiptFailed, "2", core.ReceiptStored, " failed 2 there"},
		{core.ReceiptDone, "", core.ReceiptStored, " done  there"},
		{core.ReceiptFailed, "4", core.ReceiptRepeated, " done  there"},
		{core.ReceiptDone, "5", core.ReceiptRepeated, " done  there"},
	} {
		want(t, "answer", w.save(core.Receipt{Command: "a", Status: c.status, ResultRef: c.ref})[0].Answer, c.answer)
		wantStored(t, w, "a", c.stored)
	}
}

// A started receipt keeps package inbox from running the command again; a failed one would let it.
func receiptStarted(t *testing.T, h Harness) {
	table, w := startAlone(t, h, keyed("k", "a", "b")...)
	if table.Receipt == nil {
		t.Log("not tested: a consumer's receipt by SQL")
		return
	}
	for _, id := range []string{"a", "b"} {
		table.Receipt(t, id, core.Receipt{Consumer: "x", Status: core.ReceiptStarted, ResultRef: "token"})
	}
	failed := core.Receipt{Command: "a", Consumer: "x", Status: core.ReceiptFailed, ResultRef: "no"}
	got := w.save(failed, core.Receipt{Command: "b", Consumer: "x", Status: core.ReceiptFailed}, core.Receipt{Command: "a", Consumer: "y", Status: core.ReceiptFailed})
	want(t, "answers", answers(got), "refused refused stored")
	want(t, "what was refused", got[0].Receipt, failed)
	if !strings.Contains(got[0].Why, `"started"`) {
		t.Errorf("the reason is %q", got[0].Why)
	}
	wantStored(t, w, "a", "x started token there", "y failed  there")
	want(t, "answer", w.save(core.Receipt{Command: "a", Consumer: "x", Status: core.ReceiptDone})[0].Answer, core.ReceiptStored)
	wantStored(t, w, "a", "x done  there", "y failed  there")
	// Both in one call: the one that is done counts.
	got = w.save(core.Receipt{Command: "b", Consumer: "x", Status: core.ReceiptFailed}, core.Receipt{Command: "b", Consumer: "x", Status: core.ReceiptDone, ResultRef: "yes"})
	want(t, "answers", answers(got), "stored stored")
	wantStored(t, w, "b", "x done yes there")
}

// PostgreSQL refuses a statement that would write one row twice, and with it all others:
// https://github.com/hookdeck/outpost/pull/953.
func receiptFolded(t *testing.T, h Harness) {
	_, w := startAlone(t, h, keyed("k", "a", "b")...)
	r := func(command string, status core.ReceiptStatus, ref string) core.Receipt {
		return core.Receipt{Command: command, Status: status, ResultRef: ref}
	}
	got := w.save(r("b", "done", "1"), r("a", "failed", "2"), r("b", "done", "3"), r("a", "done", "4"), r("a", "failed", "5"), r("b", "failed", "6"))
	want(t, "answers", answers(got), "stored stored repeated stored repeated repeated")
	wantStored(t, w, "a", " done 4 there")
	wantStored(t, w, "b", " done 1 there")
	want(t, "answers to all again", answers(w.save(r("b", "done", "1"), r("a", "failed", "2"), r("b", "done", "3"))), "repeated repeated repeated")
	want(t, "answers to none", len(w.save()), 0)
}

func receiptConsumers(t *testing.T, h Harness) {
	_, w := startAlone(t, h, keyed("k", "a")...)
	got := w.save(core.Receipt{Command: "a", Consumer: "one", Status: "done"}, core.Receipt{Command: "a", Consumer: "two", Status: "failed"}, core.Receipt{Command: "a", Status: "done"})
	want(t, "answers", answers(got), "stored stored stored")
	wantStored(t, w, "a", " done  there", "one done  there", "two failed  there")
}

func receiptRefused(t *testing.T, h Harness) {
	_, w := startAlone(t, h, keyed("k", "a")...)
	long := strings.Repeat("é", core.MaxReceiptName)
	bad := []core.Receipt{
		{Status: "done"}, {Command: "a", Status: "ok"}, {Command: "a"}, {Command: long + "x", Status: "done"}, {Command: "a", Consumer: long + "x", Status: "done"},
		{Command: "a", Status: "done", ResultRef: strings.Repeat("x", core.MaxResultRef+1)}, {Command: "a\x00", Status: "done"}, {Command: "\xff", Status: "done"},
	}
	got := w.save(append(bad, core.Receipt{Command: "a", Status: "done", ResultRef: strings.Repeat("é", core.MaxResultRef)})...)
	want(t, "answers", answers(got), strings.Repeat("refused ", len(bad))+"stored")
	for _, r := range got[:len(bad)] {
		if r.Why == "" {
			t.Errorf("no reason: %+v", r)
		}
	}
	want(t, "answer", w.save(core.Receipt{Command: "a", Consumer: "'; DROP TABLE outbox; --", Status: "done", ResultRef: "\\"})[0].Answer, core.ReceiptStored)
}

// unknown sweeps all receipts and gives the ids of those of no row.
func (w *worker) sweep(retention time.Duration) (unknown []string, removed map[core.RowPlace]int) {
	w.t.Helper()
	removed = map[core.RowPlace]int{}
	req := core.ReceiptsRequest{Owner: w.owner, Retention: retention, Limit: 2}
	for {
		c, err := w.books().CleanReceipts(w.ctx, req)
		w.must(err)
		for _, r := range c.Unknown {
			unknown = append(unknown, r.Command)
		}
		for place, n := range c.Removed {
			removed[place] += n
		}
		if c.Looked < req.Limit {
			return unknown, removed
		}
		req.After = c.Last
	}
}

func receiptUnknown(t *testing.T, h Harness) {
	table, w := startAlone(t, h, keyed("k", "a", "b", "c")...)
	got := w.save(core.Receipt{Command: "nobody", Status: "done"}, core.Receipt{Command: "a", Status: "done"})
	want(t, "answers", answers(got), "unknown stored")
	if got[0].Why == "" {
		t.Error("no reason is given")
	}
	want(t, "answer to a repeat", w.save(core.Receipt{Command: "nobody", Status: "done"})[0].Answer, core.ReceiptUnknown)
	wantStored(t, w, "nobody", " done  unknown")
	// One row is cleaned with its receipt, one before its receipt comes.
	w.publish("a", "b")
	w.clean(core.Retention{Dead: core.Forever, Skipped: core.Forever})
	wantRows(t, table, w, map[core.State]int{core.Published: 2}, "c")
	got = w.save(core.Receipt{Command: "a", Status: "done"}, core.Receipt{Command: "a", Consumer: "late", Status: "done"}, core.Receipt{Command: "b", Status: "done"})
	want(t, "answers", answers(got), "repeated stored unknown")
	wantStored(t, w, "a", " done  cleaned", "late done  cleaned")
	unknown, removed := w.sweep(time.Hour)
	want(t, "unknown", fmt.Sprint(unknown), "[b nobody]")
	want(t, "removed", fmt.Sprint(removed), "map[]")
	unknown, removed = w.sweep(core.Forever)
	want(t, "unknown", fmt.Sprint(unknown), "[b nobody]")
	want(t, "removed", fmt.Sprint(removed), "map[]")
}

func receiptsAtOnce(t *testing.T, h Harness) {
	table, w := startAlone(t, h, keyed("k", "a")...)
	const n = 100
	var wg sync.WaitGroup
	stored := make([]int, 4)
	for i := range stored {
		other := join(t, table, fmt.Sprint("consumer", i))
		wg.Go(func() {
			var list []core.Receipt
			for j := range n {
				list = append(list, core.Receipt{Command: fmt.Sprintf("c%02d", j), Consumer: "x", Status: "done", ResultRef: other.owner})
			}
			if i%2 == 1 {
				slices.Reverse(list)
			}
			results, err := other.books().SaveReceipts(other.ctx, list)
			if err != nil {
				t.Errorf("save: %v", err)
			}
			for _, r := range results {
				if r.Receipt.ResultRef == other.owner {
					stored[i]++
				}
			}
		})
	}
	wg.Wait()
	want(t, "receipts that won", stored[0]+stored[1]+stored[2]+stored[3], n)
	list, err := w.books().Receipts(w.ctx, core.ReceiptFilter{Limit: 1000})
	w.must(err)
	want(t, "receipts", len(list), n)
}

func receiptPages(t *testing.T, h Harness) {
	_, w := startAlone(t, h, keyed("k", "a")...)
	var all []core.Receipt
	for i := range 130 {
		all = append(all, core.Receipt{Command: fmt.Sprintf("c%03d", i/2), Consumer: fmt.Sprint(i % 2), Status: "failed"})
	}
	w.save(all...)
	first, err := w.books().Receipts(w.ctx, core.ReceiptFilter{})
	w.must(err)
	want(t, "receipts without a limit", len(first), 100)
	var got []string
	f := core.ReceiptFilter{Limit: 7}
	for {
		page, err := w.books().Receipts(w.ctx, f)
		w.must(err)
		for _, r := range page {
			got = append(got, r.Command+" "+r.Consumer)
		}
		if len(page) < f.Limit {
			break
		}
		f.After = page[len(page)-1].Key()
	}
	want(t, "receipts in pages", len(got), len(all))
	want(t, "each once", len(slices.Compact(got)), len(all))
	wantStored(t, w, "c003", "0 failed  unknown", "1 failed  unknown")
}

func receiptOutlives(t *testing.T, h Harness) {
	table, w := startAlone(t, h, keyed("k", "a", "b", "c")...)
	w.save(core.Receipt{Command: "a", Status: "done"}, core.Receipt{Command: "a", Consumer: "x", Status: "failed"}, core.Receipt{Command: "nobody", Status: "done"})
	w.publish("a")
	if table.AgeReceipts == nil {
		t.Log("not tested: that the retention begins with the cleaning")
	} else {
		table.AgeReceipts(t, 2*time.Hour)
	}
	w.clean(core.Retention{Dead: core.Forever, Skipped: core.Forever})
	unknown, removed := w.sweep(time.Hour)
	wantStored(t, w, "a", " done  cleaned", "x failed  cleaned")
	if table.AgeReceipts != nil { // the receipt of no row is the only one whose time has passed
		want(t, "removed", fmt.Sprint(removed), "map[unknown:1]")
		want(t, "unknown", fmt.Sprint(unknown), "[]")
	}
	_, removed = w.sweep(0)
	wantStored(t, w, "a")
	want(t, "removed at last", removed[core.RowCleaned], 2)
	wantStored(t, w, "nobody")
	// With its receipts goes what was known of the row.
	want(t, "answer", w.save(core.Receipt{Command: "a", Status: "done"})[0].Answer, core.ReceiptUnknown)
}

func receiptStays(t *testing.T, h Harness) {
	table, w := startAlone(t, h, keyed("k", "pending", "dead", "published")...)
	w.kill("dead")
	w.publish("published")
	w.receipt(core.ReceiptDone, "pending", "dead", "published")
	if table.AgeReceipts != nil {
		table.AgeReceipts(t, 1000*time.Hour)
	}
	unknown, removed := w.sweep(0)
	want(t, "removed", fmt.Sprint(removed), "map[]")
	want(t, "unknown", len(unknown), 0)
	r := keepAll
	r.Published, r.RequireReceipt = 0, true
	w.clean(r)
	wantRows(t, table, w, map[core.State]int{core.Published: 1}, "pending", "dead")
}
