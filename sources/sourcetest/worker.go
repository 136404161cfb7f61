package sourcetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

// long is a lease that does not run out during a test, patience how long a test waits for what must come.
const (
	long     = 10 * time.Minute
	patience = 20 * time.Second
)

// worker is one process on a table, with the leases it took.
type worker struct {
	t      *testing.T
	ctx    context.Context
	src    core.Source
	op     core.Operator
	owner  string
	leases []core.Lease // by partition
}

// join opens the table as owner, with no lease yet.
func join(t *testing.T, table Table, owner string) *worker {
	t.Helper()
	src := table.Open(t)
	op, is := src.(core.Operator)
	if !is {
		t.Fatalf("%T is no core.Operator", src)
	}
	t.Cleanup(func() {
		if err := src.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	// A deadline for all calls of the test, and none is cut short by the test's end before its cleanup.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 6*patience)
	t.Cleanup(cancel)
	return &worker{t: t, ctx: ctx, src: src, op: op, owner: owner}
}

// start makes a table with rows and a worker that holds all its leases.
func start(t *testing.T, h Harness, rows ...Row) (Table, *worker) {
	t.Helper()
	table := h.New(t, Options{})
	table.Insert(t, rows...)
	w := join(t, table, "one")
	w.acquireAll()
	return table, w
}

// startAlone is start with a table that no other shares the receipts of.
func startAlone(t *testing.T, h Harness, rows ...Row) (Table, *worker) {
	t.Helper()
	table := h.New(t, Options{OwnReceipts: true})
	table.Insert(t, rows...)
	w := join(t, table, "one")
	w.acquireAll()
	return table, w
}

func (w *worker) partitions() int {
	w.t.Helper()
	n, err := w.src.Partitions(w.ctx)
	w.must(err)
	return n
}

// acquire takes up to limit partitions for a lease that does not run out.
func (w *worker) acquire(limit int, hold bool) []core.Acquired {
	w.t.Helper()
	taken, err := w.src.Acquire(w.ctx, w.owner, limit, long, hold)
	w.must(err)
	for _, a := range taken {
		w.leases = append(w.leases, a.Lease)
	}
	return taken
}

// acquireAll takes every partition; they must be free.
func (w *worker) acquireAll() []core.Acquired {
	w.t.Helper()
	taken := w.acquire(w.partitions(), false)
	if len(taken) != w.partitions() {
		w.t.Fatalf("%s acquired %d partitions of %d", w.owner, len(taken), w.partitions())
	}
	return taken
}

// takeOver is acquireAll under either setting, with everything recovered by seq.
func (w *worker) takeOver(hold bool) map[int64]core.Recovered {
	w.t.Helper()
	taken := w.acquire(w.partitions(), hold)
	if len(taken) != w.partitions() {
		w.t.Fatalf("%s took over %d partitions of %d", w.owner, len(taken), w.partitions())
	}
	recovered := map[int64]core.Recovered{}
	for _, a := range taken {
		for _, r := range a.Recovered {
			recovered[r.Seq] = r
		}
	}
	return recovered
}

// expire lets the worker's leases run out.
func (w *worker) expire() {
	w.t.Helper()
	kept, err := w.src.Renew(w.ctx, w.owner, w.leases, time.Millisecond)
	w.must(err)
	if len(kept) != len(w.leases) {
		w.t.Fatalf("renewed %d leases of %d", len(kept), len(w.leases))
	}
	w.until("the leases to run out", func() bool {
		infos, err := w.op.Leases(w.ctx)
		w.must(err)
		return !slices.ContainsFunc(infos, func(l core.LeaseInfo) bool { return l.Owner == w.owner && l.Left > 0 })
	})
}

// release gives all leases back.
func (w *worker) release() {
	w.t.Helper()
	for _, l := range w.leases {
		w.must(w.src.Release(w.ctx, w.owner, l))
	}
	w.leases = nil
}

// found is a row and its partition.
type found struct {
	core.Row
	part int
}

// pending reads every pending row, of all partitions, by id.
func (w *worker) pending() map[string]found {
	w.t.Helper()
	rows := map[string]found{}
	for part := range w.partitions() {
		for _, r := range w.fetch(core.FetchRequest{Part: part}).Rows {
			rows[r.Record.ID] = found{r, part}
		}
	}
	return rows
}

// row reads one pending row.
func (w *worker) row(id string) found {
	w.t.Helper()
	r, is := w.pending()[id]
	if !is {
		w.t.Fatalf("row %q is not pending", id)
	}
	return r
}

func (w *worker) fetch(req core.FetchRequest) core.Page {
	w.t.Helper()
	if req.Limit == 0 {
		req.Limit = 10_000
	}
	page, err := Page(w.ctx, w.src, req)
	w.must(err)
	return page
}

// lease is the worker's lease on a partition.
func (w *worker) lease(part int) core.Lease {
	w.t.Helper()
	for _, l := range slices.Backward(w.leases) {
		if l.Part == part {
			return l
		}
	}
	w.t.Fatalf("%s holds no lease on partition %d", w.owner, part)
	return core.Lease{}
}

func (w *worker) step(part int, c core.Change) error {
	w.t.Helper()
	c.Lease = w.lease(part)
	return w.src.Step(w.ctx, w.owner, []core.Change{c})
}

// announce names these rows in one batch.
func (w *worker) announce(batch int64, rows ...found) {
	w.t.Helper()
	a := core.Announcement{Batch: batch}
	for _, r := range rows {
		a.Seqs = append(a.Seqs, r.Record.Seq)
	}
	w.must(w.step(rows[0].part, core.Change{Announce: []core.Announcement{a}}))
}

// settle writes one outcome.
func (w *worker) settle(r found, s core.Settlement) {
	w.t.Helper()
	s.Seq, s.Deliveries = r.Record.Seq, r.Deliveries
	w.must(w.step(r.part, core.Change{Settle: []core.Settlement{s}}))
}

// kill settles a row as dead, hold as held.
func (w *worker) kill(id string) {
	w.t.Helper()
	w.settle(w.row(id), core.Settlement{State: core.Dead, Attempts: 1, Failure: &core.Failure{Code: "refused", Message: "no thanks"}})
}

func (w *worker) hold(id string) {
	w.t.Helper()
	w.settle(w.row(id), core.Settlement{State: core.Held, Attempts: 1, Failure: &core.Failure{Code: core.ReasonUncertain}})
}

func (w *worker) show(id string) (core.RowInfo, []core.Attempt) {
	w.t.Helper()
	info, history, err := w.op.Show(w.ctx, id)
	w.must(err)
	return info, history
}

// inFlight counts the rows that inflight rows name.
func (w *worker) inFlight() int {
	w.t.Helper()
	infos, err := w.op.Leases(w.ctx)
	w.must(err)
	n := 0
	for _, l := range infos {
		n += l.InFlight
	}
	return n
}

func (w *worker) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// refused wants the fence's answer.
func (w *worker) refused(what string, err error) {
	w.t.Helper()
	if !errors.Is(err, core.ErrLeaseNotOwned) {
		w.t.Errorf("%s: got %v, want %v", what, err, core.ErrLeaseNotOwned)
	}
}

// until waits for a condition.
func (w *worker) until(what string, holds func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			w.t.Fatalf("waited %v for %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// keyed makes rows of one key, so of one partition.
func keyed(key string, ids ...string) []Row {
	rows := make([]Row, len(ids))
	for i, id := range ids {
		rows[i] = Row{ID: id, Key: key, Keyed: true, Payload: []byte("payload of " + id)}
	}
	return rows
}

func ids(rows []core.Row) []string {
	list := make([]string, len(rows))
	for i, r := range rows {
		list[i] = r.Record.ID
	}
	return list
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func wantIDs(t *testing.T, what string, rows []core.Row, want ...string) {
	t.Helper()
	if got := ids(rows); !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// Page reads one page.
func Page(ctx context.Context, src core.Source, req core.FetchRequest) (core.Page, error) {
	pages, err := src.Fetch(ctx, []core.FetchRequest{req})
	switch {
	case err != nil:
		return core.Page{}, err
	case len(pages) != 1:
		return core.Page{}, fmt.Errorf("%d pages for one request", len(pages))
	}
	return pages[0], nil
}
