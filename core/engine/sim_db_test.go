package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/memory"
)

// dbOff switches off rules that live in the database's statements.
type dbOff struct {
	fence        bool // a settlement or announcement under a lost lease is carried out
	wholeGroup   bool // of a step, what the fence does not refuse is carried out
	guard        bool // a settlement does not look at deliveries
	blockFirst   bool // rows are read before the blocked keys
	releaseClean bool // a release deletes the inflight rows
}

func (c *simConn) acquire(limit int, d time.Duration) []core.Acquired {
	before := map[int64]core.RowInfo{}
	in := map[int64]announced{}
	for part := range max(c.w.s.sc.partitions, 1) {
		for _, i := range c.source.Inflight(part) {
			for _, seq := range i.Seqs {
				before[seq], _ = c.source.Row(seq)
				in[seq] = announced{batchID{c.table, part, i.Epoch, i.Batch}, len(i.Seqs)}
			}
		}
	}
	got, _ := c.source.Acquire(context.Background(), c.w.owner, limit, d, c.w.s.sc.hold)
	for _, a := range got {
		for _, r := range a.Recovered {
			c.w.s.noteRecovered(rowID{c.table, r.Seq}, before[r.Seq], in[r.Seq])
		}
	}
	return got
}

// leaseRunsOut ends one of the worker's leases before its time: the fence is the first to tell.
func (c *simConn) leaseRunsOut() {
	if n := len(c.m.parts); n > 0 {
		c.w.napped = true
		c.source.Renew(context.Background(), c.w.owner, []core.Lease{c.m.parts[c.w.s.rng.IntN(n)].lease}, 0)
	}
}

func (c *simConn) release(p *partition) error {
	if c.w.s.sc.dbOff.releaseClean {
		var done []core.Finished
		for _, in := range c.source.Inflight(p.lease.Part) {
			done = append(done, core.Finished{Batch: in.Batch})
		}
		_ = c.source.Step(context.Background(), c.w.owner, []core.Change{{Lease: p.lease, Finished: done}})
	}
	return c.source.Release(context.Background(), c.w.owner, p.lease)
}

// readAhead reads rows before the blocked keys are read, for the rule that it must be the other way round.
func (c *simConn) readAhead(p *partition) {
	if c.w.s.sc.dbOff.blockFirst {
		pages, _ := c.source.Fetch(context.Background(), []core.FetchRequest{{Part: p.lease.Part, Limit: 1000}})
		c.ahead[p.lease.Part] = pages[0]
	}
}

func (c *simConn) fetch(reqs []core.FetchRequest) []core.Page {
	pages, _ := c.source.Fetch(context.Background(), reqs)
	for i, req := range reqs {
		if ahead, ok := c.ahead[req.Part]; ok {
			pages[i] = c.insteadOf(pages[i], ahead, req)
		}
	}
	return pages
}

// insteadOf gives a page the rows that were read ahead.
func (c *simConn) insteadOf(page, ahead core.Page, req core.FetchRequest) core.Page {
	delete(c.ahead, req.Part)
	page.Rows, page.More = nil, true
	for _, r := range ahead.Rows {
		known := slices.Contains(req.Known, r.Record.Seq) || r.Record.Keyed && slices.Contains(req.Exclude, r.Record.Key)
		if r.Record.Seq > req.After && !known && len(page.Rows) < req.Limit {
			page.Rows = append(page.Rows, r)
		}
	}
	return page
}

// held tells of which changes the fence would let each by itself.
func (c *simConn) held(changes []core.Change) map[core.Lease]bool {
	held := map[core.Lease]bool{}
	for _, change := range changes {
		l := change.Lease
		held[l] = c.w.s.owns(c, l.Part, l.Epoch)
	}
	return held
}

func (c *simConn) step(changes []core.Change) error {
	owner := c.w.owner
	off := c.w.s.sc.dbOff
	changes = slices.Clone(changes)
	if off.fence {
		for i := range changes {
			l := &changes[i].Lease
			if o, epoch, _ := c.source.Lease(l.Part); o != "" {
				l.Epoch = epoch
				c.source.Renew(context.Background(), o, []core.Lease{*l}, time.Minute)
			}
		}
	}
	if off.guard {
		for i := range changes {
			changes[i].Settle = c.unguarded(changes[i].Settle)
		}
	}
	switch {
	case off.fence:
		for _, change := range changes {
			o, _, _ := c.source.Lease(change.Lease.Part)
			_ = c.commit(o, []core.Change{change})
		}
		return nil
	case off.wholeGroup && len(changes) > 1:
		held := c.held(changes)
		changes = slices.DeleteFunc(changes, func(change core.Change) bool { return !held[change.Lease] })
	}
	return c.commit(owner, changes)
}

func (c *simConn) commit(owner string, changes []core.Change) error {
	err := c.source.Step(context.Background(), owner, changes)
	if err == nil {
		for _, change := range changes {
			c.w.s.checkSettled(c.table, change)
		}
	}
	return err
}

// unguarded gives settlements the deliveries that the rows have.
func (c *simConn) unguarded(list []core.Settlement) []core.Settlement {
	settle := slices.Clone(list)
	for i := range settle {
		if r, ok := c.source.Row(settle[i].Seq); ok {
			settle[i].Deliveries = r.Deliveries
		}
	}
	return settle
}

// scheduleFaults plans the kills, pauses, comings and goings of the run, and what people do.
func (s *sim) scheduleFaults() {
	length := s.sc.length()
	each := func(n int, do func(w *simWorker)) {
		for range n {
			s.after(s.upTo(length), func() {
				if len(s.workers) > 0 && !s.quiet {
					do(s.workers[s.rng.IntN(len(s.workers))])
				}
			})
		}
	}
	each(s.sc.kills, func(w *simWorker) { w.kill() })
	each(s.sc.drains, func(w *simWorker) { w.drain() })
	each(s.sc.pauses, func(w *simWorker) {
		w.pause(s.chance(0.5))
		s.after(s.upTo(3*s.sc.policy().Lease), w.resume)
	})
	each(s.sc.pluginKills, func(w *simWorker) {
		if !w.dead {
			w.conns[s.rng.IntN(len(w.conns))].pluginDies()
		}
	})
	each(s.sc.joins, func(*simWorker) { s.startWorker() })
	each(s.sc.expiries, func(w *simWorker) { w.conns[s.rng.IntN(len(w.conns))].leaseRunsOut() })
	for range s.sc.operators {
		s.after(s.upTo(length+2*time.Minute), s.operate)
	}
}

// operate is a person: retries, releases or skips some dead or held row.
func (s *sim) operate() {
	table := s.rng.IntN(len(s.tables))
	t := s.tables[table]
	var stopped []core.RowInfo
	for id := range s.rows {
		if id.table != table {
			continue
		}
		if r, ok := t.Row(id.seq); ok && (r.State == core.Dead || r.State == core.Held) {
			stopped = append(stopped, r)
		}
	}
	if len(stopped) == 0 {
		return
	}
	least := stopped[0]
	pick := s.rng.Uint64()
	for _, r := range stopped { // the map's order is not the seed's
		if (uint64(r.Seq)*0x9e3779b97f4a7c15)^pick < (uint64(least.Seq)*0x9e3779b97f4a7c15)^pick {
			least = r
		}
	}
	switch {
	case s.chance(0.3):
		_ = t.Skip(context.Background(), core.Act{ID: least.ID, By: "person"})
	case s.chance(0.3):
		s.giveAllBack(table, stopped)
	default:
		s.giveBack(table, least)
	}
}

// giveAllBack is a person who gives back every row that stopped, in their order and each by itself.
func (s *sim) giveAllBack(table int, stopped []core.RowInfo) {
	slices.SortFunc(stopped, func(a, b core.RowInfo) int { return cmp.Compare(a.Seq, b.Seq) })
	at := time.Duration(0)
	for _, r := range stopped {
		s.after(at, func() { s.giveBackStopped(table, r.Seq) })
		at += 1 + s.upTo(20*time.Millisecond)
	}
}

func (s *sim) giveBackStopped(table int, seq int64) {
	if r, ok := s.tables[table].Row(seq); ok && (r.State == core.Dead || r.State == core.Held) {
		s.giveBack(table, r)
	}
}

func (s *sim) giveBack(table int, r core.RowInfo) {
	h := s.rows[rowID{table, r.Seq}]
	s.given++
	h.given, h.awaited = s.given, s.now
	if r.State == core.Dead {
		_ = s.tables[table].Retry(context.Background(), core.Act{ID: r.ID, By: "person"})
		h.retried, h.answers = true, 0
		return
	}
	_ = s.tables[table].ReleaseRow(context.Background(), core.Act{ID: r.ID, By: "person"})
	h.released = true
}

// scheduleProducers plans the application's transactions. Those of one key do not overlap, unless the scenario says so.
func (s *sim) scheduleProducers() {
	for table := range s.tables {
		for s.inserted < s.sc.rows*(table+1) {
			n := 1 + s.rng.IntN(3)
			s.inserted += n
			s.after(s.upTo(s.sc.length()*2/3), func() { s.produce(table, n) })
		}
	}
}

func (s *sim) produce(table, n int) {
	t := s.tables[table]
	var keys []string
	for range n {
		k := fmt.Sprintf("%d/k%d", table, s.rng.IntN(s.sc.keys))
		if s.chance(s.sc.unkeyed) {
			k = ""
		}
		if k != "" && s.locked[k] && !s.sc.careless {
			s.after(100*time.Millisecond, func() { s.produce(table, n) })
			return
		}
		keys = append(keys, k)
	}
	for _, k := range keys {
		s.locked[k] = true
	}
	tx := t.Begin()
	var seqs []int64
	if s.sc.early {
		for range keys {
			seqs = append(seqs, t.TakeSeq())
		}
	}
	insert := func() {
		for i, k := range keys {
			row := memory.Row{ID: s.newID(table), Key: k, Keyed: k != ""}
			if s.sc.early {
				tx.InsertAt(seqs[i], row)
			} else {
				seqs = append(seqs, tx.Insert(row))
			}
		}
	}
	end := func() {
		if s.chance(s.sc.rollback) {
			tx.Rollback()
		} else {
			tx.Commit()
			for i, seq := range seqs {
				r, _ := t.Row(seq)
				s.rows[rowID{table, seq}] = &history{key: keys[i], committed: s.now, id: r.ID}
			}
		}
		for _, k := range keys {
			delete(s.locked, k)
		}
	}
	took := s.upTo(300 * time.Millisecond)
	if s.chance(s.sc.longTx) {
		took = s.upTo(20 * time.Second)
	}
	s.after(took/2, insert)
	s.after(took, end)
}

// newID draws what a row is: the sink knows it by its id.
func (s *sim) newID(table int) string {
	kind := "row"
	p := s.rng.Float64()
	for _, k := range []struct {
		name string
		p    float64
	}{{"bad", s.sc.bad}, {"flaky", s.sc.flaky}, {"killplugin", s.sc.killPlugin}, {"killworker", s.sc.killWorker}, {"hang", s.sc.hang}, {"spoil", s.sc.spoil}} {
		if p < k.p {
			kind = k.name
			break
		}
		p -= k.p
	}
	s.n++
	return fmt.Sprintf("%s-%d-%d", kind, table, s.n)
}
