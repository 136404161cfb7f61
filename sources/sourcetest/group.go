package sourcetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/connectd/connectd/core"
)

var groupTests = []test{
	{"no requests have no pages and no changes change nothing", groupEmpty},
	{"pages that are read together are what each is alone", groupPages},
	{"a Step writes for all its partitions", groupStep},
	{"a Step with one lease that is not owned writes nothing", groupRefused},
	{"Steps in any order beside Renew and Acquire wait for nobody in a circle", groupOrder},
}

func groupEmpty(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a")...)
	pages, err := w.src.Fetch(w.ctx, nil)
	w.must(err)
	want(t, "pages", len(pages), 0)
	w.must(w.src.Step(w.ctx, w.owner, nil))
	w.must(w.src.Step(w.ctx, "nobody", nil))
	want(t, "rows pending", len(w.pending()), 1)
}

// spread makes rows of many keys, so of all partitions; some have none.
func spread(n int) []Row {
	rows := make([]Row, n)
	for i := range rows {
		rows[i] = Row{ID: fmt.Sprint("row", i), Key: fmt.Sprint("key", i%40), Keyed: i%7 > 0, Payload: make([]byte, 50*(i%9))}
	}
	return rows
}

func groupPages(t *testing.T, h Harness) {
	_, w := start(t, h, spread(400)...)
	r := rand.New(rand.NewPCG(1, 2))
	var all []found
	for _, row := range w.pending() {
		all = append(all, row)
	}
	slices.SortFunc(all, func(a, b found) int { return int(a.Record.Seq - b.Record.Seq) })
	for round := range 40 {
		var reqs []core.FetchRequest
		for _, part := range r.Perm(w.partitions() + 1) { // one is not there
			req := core.FetchRequest{Part: part, Limit: 1 + r.IntN(40), MaxBytes: int64(r.IntN(3) * 700)}
			if r.IntN(2) == 0 {
				req.After = all[r.IntN(len(all))].Record.Seq
			}
			for _, row := range all {
				if row.part != part {
					continue
				}
				if r.IntN(4) == 0 && round%2 == 0 {
					req.Known = append(req.Known, row.Record.Seq)
				}
				if row.Record.Keyed && r.IntN(20) == 0 && round%3 == 0 && !slices.Contains(req.Exclude, row.Record.Key) {
					req.Exclude = append(req.Exclude, row.Record.Key)
				}
			}
			reqs = append(reqs, req)
		}
		pages, err := w.src.Fetch(w.ctx, reqs)
		w.must(err)
		if len(pages) != len(reqs) {
			t.Fatalf("%d pages for %d requests", len(pages), len(reqs))
		}
		for i, req := range reqs {
			alone := w.fetch(req)
			// A source may end a page early: then the rows are the first ones, and there are more.
			got, whole := ids(pages[i].Rows), ids(alone.Rows)
			same := slices.Equal(got, whole) && pages[i].More == alone.More
			early := pages[i].More && len(got) > 0 && len(got) < len(whole) && slices.Equal(got, whole[:len(got)])
			if !same && !early {
				t.Fatalf("request %+v: together %q, more %v; alone %q, more %v", req, got, pages[i].More, whole, alone.More)
			}
			if (pages[i].Horizon == nil) != (alone.Horizon == nil) && req.Part < w.partitions() {
				t.Errorf("horizon together %v, alone %v", pages[i].Horizon, alone.Horizon)
			}
		}
	}
}

// firsts are the first pending rows of each partition that has some, by partition.
func (w *worker) firsts(n int) [][]found {
	w.t.Helper()
	byPart := make([][]found, w.partitions())
	for _, r := range w.pending() {
		byPart[r.part] = append(byPart[r.part], r)
	}
	byPart = slices.DeleteFunc(byPart, func(rows []found) bool { return len(rows) < n })
	for i, rows := range byPart {
		slices.SortFunc(rows, func(a, b found) int { return int(a.Record.Seq - b.Record.Seq) })
		byPart[i] = rows[:n]
	}
	return byPart
}

// announceAll makes a change for each partition that announces its rows one by one: batches 1, 2, and so on.
func (w *worker) announceAll(parts [][]found) []core.Change {
	w.t.Helper()
	changes := make([]core.Change, len(parts))
	for i, rows := range parts {
		changes[i].Lease = w.lease(rows[0].part)
		for j, r := range rows {
			changes[i].Announce = append(changes[i].Announce, core.Announcement{Batch: int64(j + 1), Seqs: []int64{r.Record.Seq}})
		}
	}
	return changes
}

func groupStep(t *testing.T, h Harness) {
	for _, deleted := range []bool{false, true} {
		table := h.New(t, Options{DeletePublished: deleted})
		table.Insert(t, spread(200)...)
		w := join(t, table, "one")
		w.acquireAll()
		parts := w.firsts(4)
		slices.Reverse(parts) // the order is the source's business
		w.must(w.src.Step(w.ctx, w.owner, w.announceAll(parts)))
		want(t, "rows in flight", w.inFlight(), 4*len(parts))
		changes := make([]core.Change, len(parts))
		for i, rows := range parts {
			changes[i] = core.Change{Lease: w.lease(rows[0].part),
				Settle: []core.Settlement{
					{Seq: rows[0].Record.Seq, State: core.Published},
					{Seq: rows[1].Record.Seq, State: core.Dead, Attempts: 1 + i, Failure: &core.Failure{Code: "refused", Message: fmt.Sprint("by ", i)}},
					{Seq: rows[2].Record.Seq, Deliveries: 7, State: core.Published}, // another has changed it
				},
				Finished: []core.Finished{{Batch: 1}, {Batch: 2, Keep: true}, {Batch: 3}},
				Announce: []core.Announcement{{Batch: 2, Seqs: []int64{rows[2].Record.Seq}}, {Batch: 5, Seqs: []int64{rows[2].Record.Seq, rows[3].Record.Seq}}},
			}
		}
		w.must(w.src.Step(w.ctx, w.owner, changes))
		want(t, "rows in flight after the second step", w.inFlight(), 3*len(parts)) // batches 4 and 5; 2 is empty and stays so
		want(t, "rows pending", len(w.pending()), 200-2*len(parts))
		for i, rows := range parts {
			info, history := w.show(rows[1].Record.ID)
			want(t, "state", info.State, core.Dead)
			want(t, "attempts", info.Attempts, 1+i)
			want(t, "lines of history", len(history), 1)
			want(t, "message", history[0].Message, fmt.Sprint("by ", i))
		}
	}
}

func groupRefused(t *testing.T, h Harness) {
	_, w := start(t, h, spread(200)...)
	parts := w.firsts(2)
	w.must(w.src.Step(w.ctx, w.owner, w.announceAll(parts)))
	inFlight := w.inFlight()
	touch := func() []core.Change {
		changes := make([]core.Change, len(parts))
		for i, rows := range parts {
			changes[i] = change(w.lease(rows[0].part), rows[0])
			changes[i].Announce[0].Batch = 3
		}
		return changes
	}
	for bad := range parts {
		newer, another := touch(), touch()
		newer[bad].Lease.Epoch++
		w.refused("a Step with one newer epoch", w.src.Step(w.ctx, w.owner, newer))
		another[bad].Lease.Part = 1_000_000
		w.refused("a Step with one partition that is not", w.src.Step(w.ctx, w.owner, another))
		if len(parts) == 1 {
			break
		}
		l := w.lease(parts[bad][0].part)
		_, err := w.src.Renew(w.ctx, w.owner, []core.Lease{l}, 1)
		w.must(err)
		w.until("the lease to run out", func() bool {
			infos, err := w.op.Leases(w.ctx)
			w.must(err)
			return infos[l.Part].Left <= 0
		})
		w.refused("a Step with one lease that ran out", w.src.Step(w.ctx, w.owner, touch()))
		_, err = w.src.Renew(w.ctx, w.owner, []core.Lease{l}, long)
		w.must(err)
	}
	want(t, "rows in flight", w.inFlight(), inFlight)
	want(t, "rows pending", len(w.pending()), 200)
	for _, rows := range parts {
		info, history := w.show(rows[0].Record.ID)
		want(t, "deliveries", info.Deliveries, 0)
		want(t, "lines of history", len(history), 0)
	}
	w.must(w.src.Step(w.ctx, w.owner, touch()))
	want(t, "rows pending after a Step that is not refused", len(w.pending()), 200-len(parts))
}

func groupOrder(t *testing.T, h Harness) {
	table, w := start(t, h, spread(200)...)
	two := join(t, table, "two")
	parts := w.firsts(1)
	forth := w.announceAll(parts)
	back := slices.Clone(forth)
	slices.Reverse(back)
	leases := slices.Clone(w.leases)
	slices.Reverse(leases)
	calls := map[string]func() error{
		"a Step":                        func() error { return w.src.Step(w.ctx, w.owner, forth) },
		"a Step in the other order":     func() error { return w.src.Step(w.ctx, w.owner, back) },
		"a renewal":                     func() error { _, err := w.src.Renew(w.ctx, w.owner, w.leases, long); return err },
		"a renewal in other order":      func() error { _, err := w.src.Renew(w.ctx, w.owner, leases, long); return err },
		"another's look for partitions": func() error { _, err := two.src.Acquire(two.ctx, two.owner, 1000, long, false); return err },
	}
	var wg sync.WaitGroup
	for name, call := range calls {
		wg.Go(func() {
			for range 50 {
				if err := call(); err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
			}
		})
	}
	wg.Wait()
	want(t, "rows in flight", w.inFlight(), len(parts))
}
