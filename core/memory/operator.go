package memory

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/connectd/connectd/core"
)

// Lag counts all of it; nothing is capped.
func (s *Source) Lag(ctx context.Context) (core.Lag, error) {
	if err := ctx.Err(); err != nil {
		return core.Lag{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var lag core.Lag
	for _, p := range s.parts {
		for _, r := range p.queue {
			if r.state != core.Pending {
				continue
			}
			age := now.Sub(r.rec.CreatedAt)
			lag.Pending++
			lag.Oldest = max(lag.Oldest, age)
			if !r.available.After(now) {
				lag.Due++
				lag.OldestDue = max(lag.OldestDue, age)
			}
		}
		for _, r := range p.stopped {
			if r.state == core.Dead {
				lag.Dead++
			} else {
				lag.Held++
			}
		}
		for _, in := range p.inflight {
			lag.InFlight += int64(len(in.Seqs))
		}
	}
	return lag, nil
}

// List returns rows in seq order.
func (s *Source) List(ctx context.Context, f core.Filter) ([]core.RowInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	now := s.now()
	rows := slices.DeleteFunc(s.Rows(), func(r core.RowInfo) bool {
		return r.Seq <= f.After || (f.State != "" && r.State != f.State) ||
			(f.UpTo != 0 && r.Seq > f.UpTo) || (f.Key != "" && (!r.Keyed || r.Key != f.Key)) || (f.Type != "" && r.Type != f.Type) ||
			!strings.Contains(r.LastError, f.Reason) || !f.TakesAge(r.CreatedAt, now)
	})
	return rows[:min(f.Most(), len(rows))], nil
}

// Show returns one row with its history, oldest first.
func (s *Source) Show(ctx context.Context, id string) (core.RowInfo, []core.Attempt, error) {
	if err := ctx.Err(); err != nil {
		return core.RowInfo{}, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.byID[id]
	if r == nil {
		return core.RowInfo{}, nil, core.ErrNoRow
	}
	info := r.info(s.sending())
	info.Payload, info.Headers = slices.Clone(r.rec.Payload), r.headers
	return info, slices.Clone(r.history), nil
}

// Workers lists heartbeats by owner.
func (s *Source) Workers(ctx context.Context) ([]core.WorkerInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []core.WorkerInfo
	for owner, w := range s.workers {
		list = append(list, core.WorkerInfo{Owner: owner, Age: s.now().Sub(w.at), Info: slices.Clone(w.info)})
	}
	slices.SortFunc(list, func(a, b core.WorkerInfo) int { return cmp.Compare(a.Owner, b.Owner) })
	return list, nil
}

// Leases lists the lease rows by partition.
func (s *Source) Leases(ctx context.Context) ([]core.LeaseInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]core.LeaseInfo, len(s.parts))
	for i, p := range s.parts {
		list[i] = core.LeaseInfo{Part: i, Owner: p.owner, Epoch: p.epoch}
		if p.epoch > 0 {
			list[i].Left = p.until.Sub(s.now())
		}
		for _, in := range p.inflight {
			list[i].InFlight += len(in.Seqs)
		}
	}
	return list, nil
}

// Retry makes a dead row pending and due, with no attempts.
func (s *Source) Retry(ctx context.Context, act core.Act) error {
	return s.change(ctx, act, "retry", "dead", s.again, core.Dead)
}

// ReleaseRow makes a held row pending.
func (s *Source) ReleaseRow(ctx context.Context, act core.Act) error {
	return s.change(ctx, act, "release", "held", func(r *row) error { s.resume(r); return nil }, core.Held)
}

// Skip settles a dead or held row as skipped.
func (s *Source) Skip(ctx context.Context, act core.Act) error {
	return s.change(ctx, act, "skip", "dead or held", func(r *row) error {
		r.state = core.Skipped
		delete(s.parts[r.part].stopped, r.seq)
		return nil
	}, core.Dead, core.Held)
}

// Edit gives a dead row other content and makes it pending.
func (s *Source) Edit(ctx context.Context, act core.Act, edit core.Edit) error {
	if err := edit.Check(act.ID); err != nil {
		return err
	}
	return s.change(ctx, act, "edit", "dead", func(r *row) error {
		if len(r.revisions) >= core.MaxRevisions {
			return core.TooManyRevisions(act.ID)
		}
		r.revisions = append(r.revisions, core.Revision{At: s.now().UTC(), By: core.CleanText(act.By), Why: core.CleanText(act.Why), Payload: r.rec.Payload, Headers: r.headers})
		if edit.Payload != nil {
			r.rec.Payload = slices.Clone(edit.Payload)
		}
		if edit.Headers != nil {
			r.headers = *edit.Headers
			r.judge()
		}
		return s.again(r)
	}, core.Dead)
}

// Revisions returns what a row was before its edits.
func (s *Source) Revisions(ctx context.Context, id string) ([]core.Revision, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.byID[id]
	if r == nil {
		return nil, core.ErrNoRow
	}
	return slices.Clone(r.revisions), nil
}

func (s *Source) again(r *row) error {
	s.resume(r)
	r.attempts, r.available, r.failingSince = 0, time.Time{}, time.Time{}
	return nil
}

func (s *Source) resume(r *row) {
	r.state = core.Pending
	s.enqueue(r)
}

func (s *Source) change(ctx context.Context, act core.Act, verb, want string, apply func(*row) error, from ...core.State) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.byID[act.ID]
	if r == nil {
		return core.ErrNoRow
	}
	if !slices.Contains(from, r.state) {
		return &core.StateError{ID: act.ID, State: r.state, Want: want}
	}
	if err := apply(r); err != nil {
		return err
	}
	r.note(core.Attempt{At: s.now().UTC(), Deliveries: r.deliveries, Code: verb, Message: core.CleanText(act.Why), By: core.CleanText(act.By)})
	s.changes++
	return nil
}
