package sourcetest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

// Odd is what an application that may insert anything writes into one of the relay's columns, in SQL.
type Odd struct{ Column, Value string }

// RunOdd wants no odd row, and no receipt of an odd time, to keep others from anything. Rows that are published when they
// come are among them. execute runs statements as an application does, in one transaction.
func RunOdd(t *testing.T, newTable func(t *testing.T) (table Table, name string, execute func(statements ...string)), odd []Odd, ats []string) {
	for name, first := range map[string]func(*odds){"fetched": (*odds).nothing, "settled": (*odds).fail, "taken over": (*odds).takeOver} {
		t.Run(name, func(t *testing.T) {
			table, name, execute := newTable(t)
			o := &odds{table: table, odd: odd}
			var rows []string
			for i, each := range odd {
				rows = append(rows,
					fmt.Sprintf(`INSERT INTO %s (id, payload, %s) VALUES ('odd%d', 'x', %s)`, name, each.Column, i, each.Value),
					fmt.Sprintf(`INSERT INTO %s (id, payload, state, %s) VALUES ('past%d', 'x', 'published', %s)`, name, each.Column, i, each.Value),
					fmt.Sprintf(`INSERT INTO %s (id, payload) VALUES ('good%d', 'x')`, name, i))
			}
			execute(rows...)
			o.worker = join(t, o.table, "one")
			o.acquireAll()
			first(o)
			o.publish()
			o.clean(t)
		})
	}
	t.Run("receipts", func(t *testing.T) {
		table, _, execute := newTable(t)
		w := join(t, table, "one")
		w.acquireAll()
		for i, at := range ats {
			execute(fmt.Sprintf(`INSERT INTO connectd_receipt (command_id, consumer, at) VALUES ('odd%d', 'c', %s)`, i, at))
		}
		receiptsOdd(t, w, len(ats))
	})
}

// odds is a worker on a table with odd rows among good ones.
type odds struct {
	*worker
	table Table
	odd   []Odd
}

func (o *odds) nothing() {}

// fail lets each row that can be sent fail once.
func (o *odds) fail() {
	for _, r := range o.pending() {
		if r.Invalid == "" {
			o.settle(r, core.Settlement{State: core.Pending, Attempts: r.Attempts + 1, Failure: &core.Failure{Code: "away", Message: "not now"}})
		}
	}
}

// takeOver has another worker find every row announced.
func (o *odds) takeOver() {
	batch := int64(1)
	for _, r := range o.pending() {
		o.announce(batch, r)
		batch++
	}
	o.expire()
	next := join(o.t, o.table, "two")
	next.takeOver(false)
	o.worker = next
}

// publish does with all rows what the engine does, and wants each to be settled by it.
func (o *odds) publish() {
	o.t.Helper()
	groups := map[int]core.Change{}
	for _, r := range o.pending() {
		s := core.Settlement{Seq: r.Record.Seq, Deliveries: r.Deliveries, State: core.Published, Attempts: r.Attempts, Crashes: r.Crashes}
		if r.Invalid != "" {
			s.State, s.Attempts, s.Failure = core.Dead, r.Attempts+1, &core.Failure{Code: core.ReasonInvalid, Message: r.Invalid, Unsent: true}
		}
		c := groups[r.part]
		c.Settle = append(c.Settle, s)
		groups[r.part] = c
	}
	for part, c := range groups {
		o.must(o.step(part, c))
	}
	if rows, err := o.op.List(o.ctx, core.Filter{Limit: 10_000}); err != nil || len(rows) != 3*len(o.odd) {
		o.t.Errorf("%d rows are listed: %v", len(rows), err)
	} else if _, err := json.Marshal(rows); err != nil {
		o.t.Error(err)
	}
	for i, each := range o.odd {
		if info, _ := o.show(fmt.Sprint("good", i)); info.State != core.Published {
			o.t.Errorf("beside %+v a row is %s", each, info.State)
		}
		info, _ := o.show(fmt.Sprint("odd", i))
		if info.State != core.Published && info.State != core.Dead || info.Deliveries < 1 || info.Deliveries > 3 {
			o.t.Errorf("%+v: the row is %s, with %d deliveries", each, info.State, info.Deliveries)
		}
		if info.State == core.Dead { // and once a person retries it, it goes
			o.must(o.op.Retry(o.ctx, core.Act{ID: info.ID, By: "ops"}))
			if r := o.row(info.ID); r.Invalid != "" {
				o.t.Errorf("%+v: a retried row is invalid: %s", each, r.Invalid)
			}
			o.settle(o.row(info.ID), core.Settlement{State: core.Published})
		}
	}
	if _, err := o.op.Lag(o.ctx); err != nil {
		o.t.Error(err)
	}
}

// clean wants no row to keep the cleaner from others.
func (o *odds) clean(t *testing.T) {
	t.Helper()
	req := core.CleanRequest{Owner: o.owner, Limit: 10, Retention: core.Retention{Dead: core.Forever, Skipped: core.Forever, Receipts: core.Forever}}
	removed := 0
	for {
		c, err := o.books().Clean(o.ctx, req)
		o.must(err)
		removed += c.Removed[core.Published]
		if req.After = c.Last; c.Looked < req.Limit {
			break
		}
	}
	if removed < 2*len(o.odd) {
		t.Errorf("%d rows are cleaned, at least %d can be", removed, 2*len(o.odd))
	}
}

// receiptsOdd wants receipts without a time that can be told to be listed, answered with, and kept.
func receiptsOdd(t *testing.T, w *worker, n int) {
	t.Helper()
	w.save(core.Receipt{Command: "good", Consumer: "c", Status: core.ReceiptDone})
	list, err := w.books().Receipts(w.ctx, core.ReceiptFilter{})
	w.must(err)
	if _, err := json.Marshal(list); err != nil || len(list) != n+1 {
		t.Errorf("%d receipts are listed: %v", len(list), err)
	}
	w.until("the good one to be old enough", func() bool {
		c, err := w.books().CleanReceipts(w.ctx, core.ReceiptsRequest{Owner: w.owner, Limit: 100, Retention: time.Millisecond})
		w.must(err)
		return c.Removed[core.RowUnknown] == 1
	})
	if list, err = w.books().Receipts(w.ctx, core.ReceiptFilter{}); err != nil || len(list) != n {
		t.Errorf("%d receipts are kept, want %d: %v", len(list), n, err)
	}
	for i := range n {
		w.save(core.Receipt{Command: fmt.Sprint("odd", i), Consumer: "c", Status: core.ReceiptDone})
	}
}
