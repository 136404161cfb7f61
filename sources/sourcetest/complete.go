package sourcetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

var completeTests = []test{
	{"a completed row has its receipt with its settlement", completeStored},
	{"where the fence refuses there is no receipt", completeFenced},
	{"a settlement that finds its row changed stores none", completeGuard},
	{"of a repeated Step the first receipt stays", completeTwice},
	{"a consumer's own receipt is not overwritten", completeOwn},
	{"a row that is deleted with its settlement is known as cleaned", completeDeleted},
	{"where a receipt is required it lets the row go", completeCleaned},
	{"of many rows exactly the completed ones have receipts", completeMany},
	{"receipts that come at the same time are in nobody's way", completeAtOnce},
}

// complete is how a row's settlement says that its consumer is done with it.
func complete(r found, consumer string) core.Settlement {
	return core.Settlement{Seq: r.Record.Seq, Deliveries: r.Deliveries, State: core.Published, Receipt: consumer}
}

// receipts lists all receipts as "command consumer status row".
func (w *worker) receipts() []string {
	w.t.Helper()
	list, err := w.books().Receipts(w.ctx, core.ReceiptFilter{Limit: 10_000})
	w.must(err)
	all := []string{}
	for _, r := range list {
		all = append(all, fmt.Sprint(r.Command, " ", r.Consumer, " ", r.Status, " ", r.Row))
	}
	return all
}

func wantReceipts(t *testing.T, w *worker, want ...string) {
	t.Helper()
	if got := w.receipts(); !slices.Equal(got, want) {
		t.Errorf("receipts are %q, want %q", got, want)
	}
}

func completeStored(t *testing.T, h Harness) {
	_, w := startAlone(t, h, keyed("k", "done", "delivered", "failed", "dead", "held", "Ünï — 'x'; --")...)
	rows := w.pending()
	var c core.Change
	for id, s := range map[string]core.Settlement{
		"done": {State: core.Published}, "Ünï — 'x'; --": {State: core.Published}, "delivered": {State: core.Published},
		"failed": {State: core.Pending, Attempts: 1, Failure: &core.Failure{Code: "x"}},
		"dead":   {State: core.Dead, Attempts: 1, Failure: &core.Failure{Code: "x"}},
		"held":   {State: core.Held, Attempts: 1, Failure: &core.Failure{Code: "x"}},
	} {
		s.Seq = rows[id].Record.Seq
		if id != "delivered" {
			s.Receipt = "orders"
		}
		c.Settle = append(c.Settle, s)
	}
	w.must(w.step(rows["done"].part, c))
	wantReceipts(t, w, "done orders done there", "Ünï — 'x'; -- orders done there")
	list, err := w.books().Receipts(w.ctx, core.ReceiptFilter{Command: "done"})
	w.must(err)
	if age := time.Since(list[0].At); age > patience || age < -patience {
		t.Errorf("stored at %v", list[0].At)
	}
	info, _ := w.show("done")
	want(t, "state", info.State, core.Published)
	want(t, "deliveries", info.Deliveries, 1)
}

func completeFenced(t *testing.T, h Harness) {
	table := h.New(t, Options{OwnReceipts: true})
	rows := keyed("k", "a")
	for i := range 12 {
		rows = append(rows, keyed(fmt.Sprint("key", i), fmt.Sprint("row", i))...)
	}
	table.Insert(t, rows...)
	one := join(t, table, "one")
	one.acquireAll()
	var changes []core.Change
	for part := range one.partitions() {
		c := core.Change{Lease: one.lease(part)}
		for _, r := range one.pending() {
			if r.part == part {
				c.Settle = append(c.Settle, complete(r, "orders"))
			}
		}
		changes = append(changes, c)
	}
	one.refused("a step of somebody else", one.src.Step(one.ctx, "another", changes))
	changes[0].Lease.Epoch++
	one.refused("a step with one lease of another epoch", one.src.Step(one.ctx, one.owner, changes))
	changes[0].Lease.Epoch--
	one.expire()
	one.refused("a step after the lease ran out", one.src.Step(one.ctx, one.owner, changes))
	two := join(t, table, "two")
	two.takeOver(false)
	one.refused("a step after the takeover", one.src.Step(one.ctx, one.owner, changes))
	wantReceipts(t, two)
	for i := range changes {
		changes[i].Lease = two.lease(i)
	}
	two.must(two.src.Step(two.ctx, two.owner, changes))
	want(t, "receipts of all partitions", len(two.receipts()), len(rows))
}

func completeGuard(t *testing.T, h Harness) {
	_, w := startAlone(t, h, keyed("k", "a", "b", "c", "d", "e")...)
	old := w.pending()
	part := old["a"].part
	fails := &core.Failure{Code: "x"}
	w.must(w.step(part, core.Change{Settle: []core.Settlement{
		{Seq: old["a"].Record.Seq, State: core.Pending, Attempts: 1, Failure: fails},
		{Seq: old["b"].Record.Seq, State: core.Published}, // now has the deliveries of one that is settled as completed
		{Seq: old["d"].Record.Seq, State: core.Dead, Attempts: 1, Failure: fails},
	}}))
	late := core.Change{}
	for _, id := range []string{"a", "b", "c", "d"} {
		late.Settle = append(late.Settle, complete(old[id], "orders"))
	}
	late.Settle = append(late.Settle, core.Settlement{Seq: old["e"].Record.Seq + 1000, State: core.Published, Receipt: "orders"})
	w.must(w.step(part, late))
	wantReceipts(t, w, "c orders done there")
	w.settle(w.row("a"), core.Settlement{State: core.Published, Attempts: 1, Receipt: "orders"})
	wantReceipts(t, w, "a orders done there", "c orders done there")
}

func completeTwice(t *testing.T, h Harness) {
	for _, deletes := range []bool{false, true} {
		table := h.New(t, Options{OwnReceipts: true, DeletePublished: deletes})
		table.Insert(t, keyed("k", "a", "b")...)
		w := join(t, table, "one")
		w.acquireAll()
		rows := w.pending()
		c := core.Change{Settle: []core.Settlement{complete(rows["a"], "orders"), complete(rows["b"], "orders")}}
		w.must(w.step(rows["a"].part, c))
		before, err := w.books().Receipts(w.ctx, core.ReceiptFilter{})
		w.must(err)
		want(t, "receipts", len(before), 2)
		w.must(w.step(rows["a"].part, c))
		after, err := w.books().Receipts(w.ctx, core.ReceiptFilter{})
		w.must(err)
		if !slices.Equal(before, after) {
			t.Errorf("a repeat changed %+v into %+v", before, after)
		}
	}
}

func completeOwn(t *testing.T, h Harness) {
	_, w := startAlone(t, h, keyed("k", "done", "failed", "other", "none")...)
	w.save(core.Receipt{Command: "done", Consumer: "orders", Status: core.ReceiptDone, ResultRef: "mine"},
		core.Receipt{Command: "failed", Consumer: "orders", Status: core.ReceiptFailed, ResultRef: "mine"},
		core.Receipt{Command: "other", Consumer: "billing", Status: core.ReceiptFailed})
	for _, id := range []string{"done", "failed", "other", "none"} {
		w.settle(w.row(id), core.Settlement{State: core.Published, Receipt: "orders"})
	}
	wantStored(t, w, "done", "orders done mine there")
	wantStored(t, w, "failed", "orders failed mine there")
	wantStored(t, w, "other", "billing failed  there", "orders done  there")
	wantStored(t, w, "none", "orders done  there")
	// What comes later is a repeat, as after any receipt.
	want(t, "answer", w.save(core.Receipt{Command: "none", Consumer: "orders", Status: core.ReceiptDone})[0].Answer, core.ReceiptRepeated)
	want(t, "answer", w.save(core.Receipt{Command: "failed", Consumer: "orders", Status: core.ReceiptDone})[0].Answer, core.ReceiptStored)
}

func completeDeleted(t *testing.T, h Harness) {
	table := h.New(t, Options{OwnReceipts: true, DeletePublished: true})
	table.Insert(t, keyed("k", "a", "again", "plain", "stale", "own")...)
	w := join(t, table, "one")
	w.acquireAll()
	w.settle(w.row("again"), core.Settlement{State: core.Pending, Attempts: 1, Failure: &core.Failure{Code: "x"}})
	w.save(core.Receipt{Command: "own", Consumer: "orders", Status: core.ReceiptFailed})
	rows := w.pending()
	stale := complete(rows["stale"], "orders")
	stale.Deliveries = 7
	w.must(w.step(rows["a"].part, core.Change{Settle: []core.Settlement{
		complete(rows["a"], "orders"), complete(rows["again"], "orders"), complete(rows["plain"], ""), stale, complete(rows["own"], "orders"),
	}}))
	wantReceipts(t, w, "a orders done cleaned", "again orders done cleaned", "own orders failed cleaned")
	wantRows(t, table, w, map[core.State]int{core.Published: 4}, "stale")
	unknown, removed := w.sweep(time.Hour)
	want(t, "unknown", len(unknown), 0)
	want(t, "removed", removed, 0)
	_, removed = w.sweep(0)
	want(t, "removed in the end", removed, 3)
	wantReceipts(t, w)
}

func completeCleaned(t *testing.T, h Harness) {
	table, w := startAlone(t, h, keyed("k", "a", "b", "c")...)
	w.settle(w.row("a"), complete(w.row("a"), "orders"))
	w.settle(w.row("b"), complete(w.row("b"), ""))
	r := keepAll
	r.RequireReceipt, r.Published = true, 0
	w.clean(r)
	wantRows(t, table, w, map[core.State]int{core.Published: 1}, "b", "c")
	wantReceipts(t, w, "a orders done cleaned")
}

// completeMany settles neighbours, rows with gaps between them, and rows far apart: sources look them up in different ways.
func completeMany(t *testing.T, h Harness) {
	const n = 1200
	rows := make([]Row, n)
	for i := range rows {
		rows[i] = Row{ID: fmt.Sprintf("row%04d", i), Key: "k", Keyed: true, Payload: []byte("x")}
	}
	for _, deletes := range []bool{false, true} {
		table := h.New(t, Options{OwnReceipts: true, DeletePublished: deletes})
		table.Insert(t, rows...)
		w := join(t, table, "one")
		w.acquireAll()
		pending := w.pending()
		var wanted []string
		var c core.Change
		for i := range n {
			id := fmt.Sprintf("row%04d", i)
			consumer := [...]string{"orders", "", "other"}[i%3*min(i/300, 1)] // at first all of one
			switch {
			case i >= 600 && i%2 == 0, i >= 900 && i%50 != 1:
				continue
			}
			c.Settle = append(c.Settle, complete(pending[id], consumer))
			place := map[bool]string{false: "there", true: "cleaned"}[deletes]
			if consumer != "" {
				wanted = append(wanted, id+" "+consumer+" done "+place)
			}
		}
		w.must(w.step(pending["row0000"].part, c))
		got := w.receipts()
		if !slices.Equal(got, wanted) {
			t.Errorf("deleted %v: there are %d receipts, want %d", deletes, len(got), len(wanted))
		}
		want(t, "rows pending", len(w.pending()), n-len(c.Settle))
	}
}

func completeAtOnce(t *testing.T, h Harness) {
	const n = 100
	rows := make([]Row, n)
	var posted []core.Receipt
	for i := range rows {
		rows[i] = Row{ID: fmt.Sprintf("row%03d", i), Key: "k", Keyed: true}
		posted = append(posted, core.Receipt{Command: fmt.Sprintf("row%03d", n-1-i), Consumer: "orders", Status: core.ReceiptDone, ResultRef: "posted"})
	}
	table, w := startAlone(t, h, rows...)
	other := join(t, table, "consumer")
	pending := w.pending()
	var c core.Change
	for _, row := range rows {
		c.Settle = append(c.Settle, complete(pending[row.ID], "orders"))
	}
	var wg sync.WaitGroup
	var saveErr error
	wg.Go(func() {
		for some := range slices.Chunk(posted, 5) {
			if _, err := other.books().SaveReceipts(other.ctx, some); err != nil {
				saveErr = err
			}
		}
	})
	stepErr := w.step(pending["row000"].part, c)
	wg.Wait()
	w.must(stepErr)
	w.must(saveErr)
	want(t, "receipts", len(w.receipts()), n)
}
