package memory

import (
	"context"
	"slices"
	"time"

	"github.com/connectd/connectd/core"
)

// Heartbeat records that owner lives and counts who does.
func (s *Source) Heartbeat(ctx context.Context, owner string, info []byte, ttl time.Duration) (core.Pulse, error) {
	if err := ctx.Err(); err != nil {
		return core.Pulse{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.workers[owner] = worker{at: now, info: slices.Clone(info)}
	pulse := core.Pulse{Changes: s.changes}
	for name, w := range s.workers {
		switch age := now.Sub(w.at); {
		case age < ttl:
			pulse.Live++
		case age > 10*ttl:
			delete(s.workers, name)
		}
	}
	return pulse, nil
}

// Leave forgets owner.
func (s *Source) Leave(ctx context.Context, owner string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.workers, owner)
	return nil
}

// Acquire takes at most limit free or expired partitions, lowest first.
func (s *Source) Acquire(ctx context.Context, owner string, limit int, lease time.Duration, hold bool) ([]core.Acquired, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var taken []core.Acquired
	for i, p := range s.parts {
		if len(taken) >= limit {
			break
		}
		if p.owner != "" && p.until.After(now) {
			continue
		}
		a := core.Acquired{TakenOver: p.owner != ""}
		before := p.owner
		p.owner, p.until = owner, now.Add(lease)
		p.epoch++
		a.Lease = core.Lease{Part: i, Epoch: p.epoch}
		a.Recovered = s.recover(p, before, hold)
		taken = append(taken, a)
	}
	return taken, nil
}

// recover counts a crash for each row that may have been sent under an earlier lease, whose owner was before, and forgets
// the announcements.
func (s *Source) recover(p *partition, before string, hold bool) []core.Recovered {
	var seqs []int64
	sent := map[int64]time.Time{}
	for _, in := range p.inflight {
		seqs = append(seqs, in.Seqs...)
		for _, seq := range in.Seqs {
			sent[seq] = in.SentAt
		}
	}
	p.inflight = nil
	slices.Sort(seqs)
	var found []core.Recovered
	for _, seq := range slices.Compact(seqs) {
		r := s.bySeq[seq]
		if r == nil || r.state != core.Pending {
			continue
		}
		r.deliveries++
		r.crashes++
		switch {
		case r.crashes >= core.MaxCrashes:
			s.stop(r, core.Dead, core.ReasonCrash, core.Interrupted(before, sent[seq]), p.owner)
		case hold:
			s.stop(r, core.Held, core.ReasonUncertain, core.Interrupted(before, sent[seq]), p.owner)
		}
		found = append(found, core.Recovered{Seq: seq, State: r.state, Crashes: r.crashes})
	}
	return found
}

// stop takes a row out of pending for a reason of the relay's own.
func (s *Source) stop(r *row, state core.State, reason, message, by string) {
	s.leave(r, state)
	r.lastError = errorText(reason, message)
	r.note(core.Attempt{At: s.now().UTC(), Deliveries: r.deliveries, Code: reason, Message: message, By: by})
}

// Renew moves the deadlines of those leases that are still owner's, expired or not.
func (s *Source) Renew(ctx context.Context, owner string, leases []core.Lease, lease time.Duration) ([]core.Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var kept []core.Lease
	for _, l := range leases {
		if p := s.part(l.Part); p.owner == owner && owner != "" && p.epoch == l.Epoch {
			p.until = s.now().Add(lease)
			kept = append(kept, l)
		}
	}
	return kept, nil
}

// Release gives a lease back; its inflight rows stay.
func (s *Source) Release(ctx context.Context, owner string, l core.Lease) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.owned(owner, l) {
		return core.ErrLeaseNotOwned
	}
	p := s.parts[l.Part]
	p.owner, p.until = "", s.now()
	return nil
}

// owned is the fence.
func (s *Source) owned(owner string, l core.Lease) bool {
	p := s.part(l.Part)
	return owner != "" && p.owner == owner && p.epoch == l.Epoch && p.until.After(s.now())
}
