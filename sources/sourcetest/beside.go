package sourcetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

var besideTests = []test{
	{"a receipt is unknown when no table of the database knows its command", besideReceipts},
	{"receipts of another table's rows are that one's to clean", besideCleaned},
	{"a table that is gone keeps receipts in doubt and stops nothing", besideGone},
}

// besideAuditTests are besideTests for a source that is a core.Auditor.
var besideAuditTests = []test{
	{"a receipt of another table's command is no finding", besideAudit},
	{"a table that is gone is said to be what the receipts are not checked for", besideAuditGone},
}

// pair starts a worker on each of two tables that share the receipts. The first has the row "mine", the second has "theirs"
// and has cleaned "gone"; there is a receipt of each of these, one of nobody's command, and one whose id differs in its
// letters' case alone.
func pair(t *testing.T, h Harness) (table, other Table, w, v *worker) {
	t.Helper()
	table, w = startAlone(t, h, keyed("k", "mine")...)
	if table.Beside == nil {
		t.Fatal("the harness has no Beside")
	}
	other = table.Beside(t)
	other.Insert(t, keyed("k", "theirs", "gone")...)
	v = join(t, other, "two")
	v.acquireAll()
	got := w.save(receiptsOf("mine", "theirs", "gone", "nobody", "THEIRS")...)
	want(t, "answers", answers(got), "stored stored stored unknown unknown")
	v.publish("gone")
	r := keepAll
	r.Published = 0
	v.until("the row to be cleaned", func() bool { v.clean(r); return slices.Equal(v.left(), []string{"theirs"}) })
	return table, other, w, v
}

func receiptsOf(ids ...string) []core.Receipt {
	var list []core.Receipt
	for _, id := range ids {
		list = append(list, core.Receipt{Command: id, Status: core.ReceiptDone})
	}
	return list
}

// places reads where the rows of all receipts are.
func (w *worker) places() string {
	w.t.Helper()
	list, err := w.books().Receipts(w.ctx, core.ReceiptFilter{})
	w.must(err)
	var all []string
	for _, r := range list {
		all = append(all, fmt.Sprint(r.Command, ":", r.Row))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func besideReceipts(t *testing.T, h Harness) {
	_, _, w, v := pair(t, h)
	want(t, "answers to all again", answers(w.save(receiptsOf("mine", "theirs", "gone", "nobody", "THEIRS")...)), "repeated repeated repeated unknown unknown")
	want(t, "answers by the other table", answers(v.save(receiptsOf("mine", "theirs", "gone", "nobody", "THEIRS")...)), "repeated repeated repeated unknown unknown")
	want(t, "places", w.places(), "THEIRS:unknown gone:elsewhere mine:there nobody:unknown theirs:elsewhere")
	want(t, "places by the other table", v.places(), "THEIRS:unknown gone:cleaned mine:elsewhere nobody:unknown theirs:there")
	for _, each := range []*worker{w, v} {
		unknown, removed := each.sweep(core.Forever)
		slices.Sort(unknown)
		want(t, "unknown", fmt.Sprint(unknown), "[THEIRS nobody]")
		want(t, "removed", fmt.Sprint(removed), "map[]")
	}
}

func besideCleaned(t *testing.T, h Harness) {
	_, _, w, v := pair(t, h)
	unknown, removed := w.sweep(0)
	want(t, "removed", fmt.Sprint(removed), "map[unknown:2]")
	want(t, "unknown", fmt.Sprint(unknown), "[]")
	want(t, "places", w.places(), "gone:elsewhere mine:there theirs:elsewhere")
	_, removed = v.sweep(0)
	want(t, "removed by the other table", fmt.Sprint(removed), "map[cleaned:1]")
	want(t, "places", v.places(), "mine:elsewhere theirs:there")
	// With its receipts goes what was known of the row, also for the first table.
	want(t, "answer", answers(w.save(receiptsOf("gone")...)), "unknown")
}

func besideGone(t *testing.T, h Harness) {
	_, other, w, _ := pair(t, h)
	if other.Drop == nil {
		t.Log("not tested: a table that is gone")
		return
	}
	other.Drop(t)
	unknown, removed := w.sweep(0)
	want(t, "removed", fmt.Sprint(removed), "map[]")
	want(t, "unknown", fmt.Sprint(unknown), "[]")
	want(t, "answers", answers(w.save(receiptsOf("mine", "theirs", "nobody")...)), "repeated repeated repeated")
	want(t, "places", w.places(), "THEIRS:elsewhere gone:elsewhere mine:there nobody:elsewhere theirs:elsewhere")
}

func besideAudit(t *testing.T, h Harness) {
	table, w, v, req := vandalised(t, h, keyed("k", "mine")...)
	v.Events(t, "mine")
	other := table.Beside(t)
	other.Insert(t, keyed("k", "theirs", "gone")...)
	x := join(t, other, "two")
	x.acquireAll()
	_, err := x.src.Heartbeat(x.ctx, x.owner, nil, long)
	x.must(err)
	x.publish("gone")
	w.receipt(core.ReceiptDone, "mine", "theirs", "gone")
	r := keepAll
	r.Published = 0
	x.until("the row to be cleaned", func() bool { x.clean(r); return slices.Equal(x.left(), []string{"theirs"}) })
	want(t, "checked", w.audit(req)[core.LawReceipts].Checked, true)
	table.Receipt(t, "nobody", core.Receipt{Status: core.ReceiptDone})
	table.Receipt(t, "THEIRS", core.Receipt{Status: core.ReceiptDone})
	law := w.audit(req, core.LawReceipts)[core.LawReceipts]
	w.names(law, "THEIRS", "nobody")
	w.figure(law, "receipts", 5)
	req.Events = nil
	w.names(w.audit(req, core.LawReceipts)[core.LawReceipts], "THEIRS", "nobody")
	x.names(x.audit(req, core.LawReceipts)[core.LawReceipts], "THEIRS", "nobody")
}

func besideAuditGone(t *testing.T, h Harness) {
	table, w, _, req := vandalised(t, h, keyed("k", "mine")...)
	req.Events = nil
	other := table.Beside(t)
	w.receipt(core.ReceiptDone, "mine")
	other.Drop(t)
	want(t, "checked when none is unknown", w.audit(req)[core.LawReceipts].Checked, true)
	table.Receipt(t, "nobody", core.Receipt{Status: core.ReceiptDone})
	law := w.audit(req)[core.LawReceipts]
	want(t, "checked", law.Checked, false)
	w.figure(law, "of unknown commands", 1)
	for _, word := range []string{"not checked", "beside", "connectd init"} {
		if !strings.Contains(law.Say, word) {
			t.Errorf("%q is missing in %q", word, law.Say)
		}
	}
	req.ReceiptWithin = time.Hour
	want(t, "another law is checked", w.audit(req)[core.LawCompletion].Checked, true)
}
