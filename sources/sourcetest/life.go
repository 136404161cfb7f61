package sourcetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

var lifeTests = []test{
	{"eight workers lose and double none of 1,000 rows", manyWorkers},
	{"one source serves many callers at once", manyCallers},
	{"a cancelled context returns soon and leaves nothing locked", cancelledCalls},
	{"a call that waits for a lock ends with its context", cancelledWait},
	{"Close twice is harmless", closeTwice},
	{"Wait returns within a second of a commit", waitWakes},
	{"Wait ends with its context", waitEnds},
}

// tally counts how often each row was sent.
type tally struct {
	mu    sync.Mutex
	times map[string]int
}

func (s *tally) send(rows []core.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rows {
		s.times[r.Record.ID]++
	}
}

func (s *tally) rows() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.times)
}

// Relays side by side without a claim send everything twice: https://github.com/xavierjohn/Trellis/pull/644
func manyWorkers(t *testing.T, h Harness) {
	const total = 1000
	table := h.New(t, Options{})
	insert := func(from, to int) {
		for i := from; i < to; i += 10 {
			var rows []Row
			for n := i; n < i+10; n++ {
				rows = append(rows, Row{ID: fmt.Sprint("row", n), Key: fmt.Sprint("key", n%37), Keyed: n%5 > 0, Payload: []byte("x")})
			}
			table.Insert(t, rows...)
		}
	}
	insert(0, total/2)
	sent := &tally{times: map[string]int{}}
	var wg sync.WaitGroup
	for n := range 8 {
		w := join(t, table, fmt.Sprint("worker", n))
		wg.Go(func() {
			if err := drain(w, sent, total); err != nil {
				t.Errorf("%s: %v", w.owner, err)
			}
		})
	}
	insert(total/2, total)
	wg.Wait()
	want(t, "rows sent", sent.rows(), total)
	for id, n := range sent.times {
		want(t, "times that "+id+" was sent", n, 1)
	}
	w := join(t, table, "end")
	list, err := w.op.List(w.ctx, core.Filter{State: core.Published, Limit: 2 * total})
	w.must(err)
	want(t, "rows published", len(list), total)
	for _, r := range list {
		want(t, "deliveries of "+r.ID, r.Deliveries, 1)
	}
}

// drain takes what partitions are free, sends and settles a page of each and gives them back, until all rows are sent.
func drain(w *worker, sent *tally, total int) error {
	for sent.rows() < total {
		taken, err := w.src.Acquire(w.ctx, w.owner, 1000, long, false)
		if err != nil {
			return err
		}
		for _, a := range taken {
			if err := drainPage(w, a.Lease, sent); err != nil {
				return err
			}
		}
		if len(taken) == 0 {
			// Nobody asks without a pause, and seven who do leave the one who works no processor.
			time.Sleep(5 * time.Millisecond)
		}
	}
	return nil
}

func drainPage(w *worker, l core.Lease, sent *tally) error {
	page, err := Page(w.ctx, w.src, core.FetchRequest{Part: l.Part, Limit: 40})
	if err != nil {
		return err
	}
	if len(page.Rows) > 0 {
		announced := core.Announcement{Batch: 1}
		settled := core.Change{Lease: l, Finished: []core.Finished{{Batch: 1}}}
		for _, r := range page.Rows {
			announced.Seqs = append(announced.Seqs, r.Record.Seq)
			settled.Settle = append(settled.Settle, core.Settlement{Seq: r.Record.Seq, Deliveries: r.Deliveries, State: core.Published})
		}
		if err := w.src.Step(w.ctx, w.owner, []core.Change{{Lease: l, Announce: []core.Announcement{announced}}}); err != nil {
			return err
		}
		sent.send(page.Rows)
		if err := w.src.Step(w.ctx, w.owner, []core.Change{settled}); err != nil {
			return err
		}
	}
	return w.src.Release(w.ctx, w.owner, l)
}

func manyCallers(t *testing.T, h Harness) {
	var rows []Row
	for i := range 100 {
		rows = append(rows, keyed("k", fmt.Sprint("row", i))...)
	}
	_, w := start(t, h, rows...)
	pending := w.pending()
	part := pending["row0"].part
	lease := w.lease(part)
	calls := []func(n int) error{
		func(n int) error {
			r := pending[fmt.Sprint("row", n)]
			return w.src.Step(w.ctx, w.owner, []core.Change{{Lease: lease, Settle: []core.Settlement{{Seq: r.Record.Seq, State: core.Published}}}})
		},
		func(int) error { _, err := Page(w.ctx, w.src, core.FetchRequest{Part: part, Limit: 50}); return err },
		func(int) error { _, err := w.src.Heartbeat(w.ctx, w.owner, nil, long); return err },
		func(int) error { _, err := w.src.Renew(w.ctx, w.owner, w.leases, long); return err },
		func(int) error { _, err := w.src.Blocking(w.ctx, part, true); return err },
		func(int) error { _, err := w.op.Lag(w.ctx); return err },
		func(n int) error { _, _, err := w.op.Show(w.ctx, fmt.Sprint("row", n)); return err },
		func(int) error { _, err := w.op.List(w.ctx, core.Filter{Limit: 5}); return err },
	}
	var wg sync.WaitGroup
	for i, call := range calls {
		wg.Go(func() {
			for n := range 100 {
				if err := call(n); err != nil {
					t.Errorf("call %d, time %d: %v", i, n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	want(t, "rows pending", len(w.pending()), 0)
}

// calls are all methods that take a context, but Wait.
func (w *worker) calls(l core.Lease, seq int64) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Heartbeat": func(ctx context.Context) error { _, err := w.src.Heartbeat(ctx, w.owner, nil, long); return err },
		"Leave":     func(ctx context.Context) error { return w.src.Leave(ctx, w.owner) },
		"Acquire":   func(ctx context.Context) error { _, err := w.src.Acquire(ctx, w.owner, 1, long, false); return err },
		"Renew": func(ctx context.Context) error {
			_, err := w.src.Renew(ctx, w.owner, []core.Lease{l}, long)
			return err
		},
		"Release": func(ctx context.Context) error { return w.src.Release(ctx, w.owner, l) },
		"Step": func(ctx context.Context) error {
			return w.src.Step(ctx, w.owner, []core.Change{{Lease: l, Settle: []core.Settlement{{Seq: seq, State: core.Published}}}})
		},
		"Retry":      func(ctx context.Context) error { return w.op.Retry(ctx, core.Act{ID: "a", By: "ops"}) },
		"ReleaseRow": func(ctx context.Context) error { return w.op.ReleaseRow(ctx, core.Act{ID: "a", By: "ops"}) },
		"Skip":       func(ctx context.Context) error { return w.op.Skip(ctx, core.Act{ID: "a", By: "ops"}) },
	}
}

func cancelledCalls(t *testing.T, h Harness) {
	table, w := start(t, h, keyed("k", "a")...)
	r := w.row("a")
	calls := w.calls(w.lease(r.part), r.Record.Seq)
	calls["Fetch"] = func(ctx context.Context) error {
		_, err := Page(ctx, w.src, core.FetchRequest{Part: r.part, Limit: 1})
		return err
	}
	calls["Blocking"] = func(ctx context.Context) error { _, err := w.src.Blocking(ctx, r.part, true); return err }
	calls["Lag"] = func(ctx context.Context) error { _, err := w.op.Lag(ctx); return err }
	calls["List"] = func(ctx context.Context) error { _, err := w.op.List(ctx, core.Filter{}); return err }
	calls["Show"] = func(ctx context.Context) error { _, _, err := w.op.Show(ctx, "a"); return err }
	for name, call := range calls {
		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		begun := time.Now()
		if err := call(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v", name, err)
		}
		if took := time.Since(begun); took > patience/4 {
			t.Errorf("%s with a cancelled context took %v", name, took)
		}
	}
	info, _ := w.show("a")
	want(t, "deliveries", info.Deliveries, 0)
	w.settle(r, core.Settlement{State: core.Published})
	table.Insert(t, keyed("k", "b")...)
	join(t, table, "two").beat("{}", long)
}

func cancelledWait(t *testing.T, h Harness) {
	table, w := start(t, h, keyed("k", "a")...)
	if table.Lock == nil {
		t.Log("not tested: the harness cannot lock the table")
		return
	}
	r := w.row("a")
	unlock := table.Lock(t)
	for name, call := range w.calls(w.lease(r.part), r.Record.Seq) {
		if name == "Acquire" {
			continue // may skip what is locked
		}
		ctx, cancel := context.WithTimeout(w.ctx, 30*time.Millisecond)
		begun := time.Now()
		err := call(ctx)
		if err == nil || errors.Is(err, core.ErrLeaseNotOwned) {
			t.Errorf("%s while all is locked: %v", name, err)
		}
		if took := time.Since(begun); took > patience/4 {
			t.Errorf("%s with a deadline of 30ms took %v", name, took)
		}
		cancel()
	}
	unlock()
	w.until("everything to work again", func() bool {
		_, err := w.src.Heartbeat(w.ctx, w.owner, nil, long)
		return err == nil
	})
	// What ended with its context may take effect all the same, when the server hears too late that nobody waits for it:
	// the row is settled, or the lease given back.
	w.until("the row to be published", func() bool {
		info, _ := w.show("a")
		if info.State == core.Published {
			return true
		}
		err := w.step(r.part, core.Change{Settle: []core.Settlement{{Seq: r.Record.Seq, Deliveries: r.Deliveries, State: core.Published}}})
		if errors.Is(err, core.ErrLeaseNotOwned) {
			w.acquire(1000, false)
			return false
		}
		w.must(err)
		return false
	})
}

func closeTwice(t *testing.T, h Harness) {
	table, w := start(t, h, keyed("k", "a")...)
	for range 2 {
		if err := w.src.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	want(t, "rows another process sees", len(join(t, table, "two").pending()), 1)
}

// waiter is the source as a core.Waiter, or nil.
func waiter(t *testing.T, w *worker) core.Waiter {
	t.Helper()
	waits, is := w.src.(core.Waiter)
	if !is {
		t.Log("not tested: the source is no core.Waiter")
		return nil
	}
	return waits
}

func waitWakes(t *testing.T, h Harness) {
	table, w := start(t, h)
	waits := waiter(t, w)
	if waits == nil {
		return
	}
	for n := range 5 {
		// It may return for nothing. What is asked is that after a commit it does return.
		seen := make(chan time.Time, 1)
		go func() {
			for waits.Wait(w.ctx) == nil {
				list, err := w.op.List(w.ctx, core.Filter{})
				if err != nil {
					t.Error(err)
				}
				if err != nil || len(list) > n {
					break
				}
			}
			seen <- time.Now()
		}()
		runtime.Gosched()
		table.Insert(t, keyed("k", fmt.Sprint("row", n))...)
		committed := time.Now()
		select {
		case at := <-seen:
			if late := at.Sub(committed); late > time.Second {
				t.Errorf("woken %v after the commit", late)
			}
		case <-time.After(patience):
			t.Fatal("never woken")
		}
	}
}

func waitEnds(t *testing.T, h Harness) {
	_, w := start(t, h)
	waits := waiter(t, w)
	if waits == nil {
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, 50*time.Millisecond)
	defer cancel()
	for waits.Wait(ctx) == nil {
		runtime.Gosched() // it may return for nothing
	}
	if err := waits.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
}
