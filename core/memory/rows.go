package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/connectd/connectd/core"
)

// Blocking lists the partition's keys that wait for a person, by key.
func (s *Source) Blocking(ctx context.Context, part int, dead bool) ([]core.Block, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lowest := map[string]int64{}
	for seq, r := range s.part(part).stopped {
		if !r.rec.Keyed || (r.state == core.Dead && !dead) {
			continue
		}
		if at, found := lowest[r.rec.Key]; !found || seq < at {
			lowest[r.rec.Key] = seq
		}
	}
	blocks := make([]core.Block, 0, len(lowest))
	for key, seq := range lowest {
		blocks = append(blocks, core.Block{Key: key, Seq: seq})
	}
	slices.SortFunc(blocks, func(a, b core.Block) int { return cmp.Compare(a.Seq, b.Seq) })
	return blocks, nil
}

// Fetch reads all pages from one snapshot. The records' payloads and headers are shared and must not be changed.
func (s *Source) Fetch(ctx context.Context, reqs []core.FetchRequest) ([]core.Page, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	pages := make([]core.Page, len(reqs))
	for i := range reqs {
		pages[i] = s.page(&reqs[i])
	}
	return pages, nil
}

func (s *Source) page(req *core.FetchRequest) core.Page {
	var exclude map[string]bool
	if len(req.Exclude) > 0 {
		exclude = make(map[string]bool, len(req.Exclude))
		for _, key := range req.Exclude {
			exclude[key] = true
		}
	}
	page := core.Page{Horizon: &core.Horizon{Oldest: s.lastTx + 1, Next: s.lastTx + 1}}
	if len(s.running) > 0 {
		page.Horizon.Oldest = s.running[0]
	}
	p := s.part(req.Part)
	now := s.now()
	var bytes int64
	for _, r := range p.queue[p.after(req.After):] {
		if r.state != core.Pending || (r.rec.Keyed && exclude[r.rec.Key]) {
			continue
		}
		if _, known := slices.BinarySearch(req.Known, r.seq); known {
			continue
		}
		if len(page.Rows) >= req.Limit || (req.MaxBytes > 0 && bytes >= req.MaxBytes) {
			page.More = true
			break
		}
		out := core.Row{Record: r.rec, Deliveries: r.deliveries, Attempts: r.attempts, Crashes: r.crashes, Invalid: r.invalid}
		if !r.available.IsZero() {
			out.Wait = r.available.Sub(now)
		}
		if !r.failingSince.IsZero() {
			out.Failing = now.Sub(r.failingSince)
		}
		if page.Rows = append(page.Rows, out); r.deliveries > 0 {
			page.Changes = s.changes
		}
		bytes += int64(r.rec.Size())
	}
	return page
}

// Step applies all changes, or none when the fence refuses one.
func (s *Source) Step(ctx context.Context, owner string, changes []core.Change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range changes {
		if !s.owned(owner, changes[i].Lease) {
			return core.ErrLeaseNotOwned
		}
	}
	for i := range changes {
		s.apply(owner, &changes[i])
	}
	return nil
}

func (s *Source) apply(owner string, c *core.Change) {
	for i := range c.Settle {
		s.settle(owner, &c.Settle[i])
	}
	p := s.parts[c.Lease.Part]
	for _, f := range c.Finished {
		i, found := p.find(c.Lease.Epoch, f.Batch)
		switch {
		case !found:
		case f.Keep:
			p.inflight[i].Seqs = nil
		default:
			p.inflight = slices.Delete(p.inflight, i, i+1)
		}
	}
	for _, a := range c.Announce {
		if i, found := p.find(c.Lease.Epoch, a.Batch); !found {
			in := Inflight{Epoch: c.Lease.Epoch, Batch: a.Batch, Seqs: slices.Clone(a.Seqs), SentAt: s.now().UTC()}
			p.inflight = slices.Insert(p.inflight, i, in)
		}
	}
}

// find is the place of an inflight row, or where it would be.
func (p *partition) find(epoch, batch int64) (int, bool) {
	return slices.BinarySearchFunc(p.inflight, Inflight{Epoch: epoch, Batch: batch}, func(a, b Inflight) int {
		if a.Epoch != b.Epoch {
			return cmp.Compare(a.Epoch, b.Epoch)
		}
		return cmp.Compare(a.Batch, b.Batch)
	})
}

// settle writes one row, if it still is what the engine knew.
func (s *Source) settle(owner string, c *core.Settlement) {
	r := s.bySeq[c.Seq]
	if r == nil || r.state != core.Pending || r.deliveries != c.Deliveries {
		return
	}
	now := s.now().UTC()
	r.deliveries, r.attempts, r.crashes = c.Deliveries+1, c.Attempts, c.Crashes
	switch {
	case c.Attempts == 0:
		r.failingSince = time.Time{}
	case r.failingSince.IsZero():
		r.failingSince = now
	}
	if c.Delay > 0 {
		r.available = now.Add(c.Delay)
	}
	if f := c.Failure; f != nil {
		r.lastError = errorText(f.Code, f.Message)
		number := r.deliveries
		if f.Unsent {
			number = 0
		}
		r.note(core.Attempt{
			At: now, Deliveries: number, Code: core.CleanText(f.Code), Message: core.CleanText(f.Message),
			By: owner, Duration: f.Duration,
		})
	}
	if c.State != core.Pending {
		s.leave(r, c.State)
	}
	if c.State == core.Published && c.Receipt != "" {
		s.complete(r, c.Receipt)
	}
}
