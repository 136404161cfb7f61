package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/connectd/connectd/core"
)

// step is one announce-and-settle transaction on its way. It is built once and repeated unchanged until its outcome
// is known: nobody can tell whether a copy whose answer was lost has run, or will run yet.
type step struct {
	change   core.Change
	settled  []*batch
	verdicts map[*batch][]verdict
	announce []*batch
	tries    int
	retryAt  time.Duration
	began    time.Duration
}

// stepRows is how many settled rows end a step: it must be done within the source's call timeout, or its unchanged repeats
// never are.
const stepRows = 5000

// makeStep builds and issues p's next step if there is anything to settle or to announce.
func (m *machine) makeStep(p *partition, now time.Duration) bool {
	if p.unsendable > 0 && !p.draining && !m.draining {
		m.refuse(p)
	}
	s := &step{change: core.Change{Lease: p.lease}, verdicts: map[*batch][]verdict{}}
	for _, b := range p.batchesIn(answered) {
		if len(s.change.Settle) < stepRows {
			m.settle(s, b, now)
		}
	}
	for _, b := range p.batchesIn(formed) {
		if p.draining || m.draining || m.valve.reason != "" && !b.probe {
			m.dissolve(b)
		} else {
			s.announce = append(s.announce, b)
		}
	}
	if !p.draining && !m.draining {
		for b := m.form(p, now); b != nil; b = m.form(p, now) {
			s.announce = append(s.announce, b)
		}
	}
	for _, b := range s.announce {
		b.stage = announcing
		a := core.Announcement{Batch: b.id, Seqs: make([]int64, len(b.entries))}
		for i, e := range b.entries {
			a.Seqs[i] = e.row.Record.Seq
		}
		s.change.Announce = append(s.change.Announce, a)
	}
	if len(s.settled) == 0 && len(s.announce) == 0 {
		return false
	}
	p.step = s
	m.issue(p, now)
	return true
}

// settle adds an answered batch to the step.
func (m *machine) settle(s *step, b *batch, now time.Duration) {
	b.stage = settling
	verdicts := m.judge(b, now)
	for _, v := range verdicts {
		if v.write {
			s.change.Settle = append(s.change.Settle, v.settlement)
		}
	}
	s.settled = append(s.settled, b)
	s.verdicts[b] = verdicts
	if !b.refused {
		s.change.Finished = append(s.change.Finished, core.Finished{Batch: b.id, Keep: b.repeated && !m.off.tombstone})
	}
}

// issue sends p's step, for the first time or again.
func (m *machine) issue(p *partition, now time.Duration) {
	if p.step.tries++; p.step.tries > 1 {
		for _, b := range p.step.announce {
			b.repeated = true
		}
	}
	p.stepping, p.step.began = true, now
	m.do(opStep{p, p.step.change})
	if m.off.announce {
		for _, b := range p.step.announce {
			b.stage = ready
		}
	}
}

// stepped reports the answer of opStep.
func (m *machine) stepped(p *partition, err error, now time.Duration) {
	p.stepping = false
	if p.lost {
		return
	}
	m.obs.Stepped(now-p.step.began, err)
	switch {
	case err == nil:
		m.sourceSaid("step", p.lease.Part, nil)
		s := p.step
		p.step = nil
		m.apply(p, s, now)
	case errors.Is(err, core.ErrLeaseNotOwned):
		p.step.retryAt = now
		if !p.suspended {
			m.suspend(p, now, "a settlement was refused")
		}
	case m.off.repeat:
		m.abandon(p, p.step)
	default:
		m.sourceSaid("step", p.lease.Part, err)
		p.step.retryAt = now + m.pause("step", p.lease.Part)
	}
}

func nilIfNotOwned(err error) error {
	if errors.Is(err, core.ErrLeaseNotOwned) {
		return nil
	}
	return err
}

// apply makes memory say what the database now says.
func (m *machine) apply(p *partition, s *step, now time.Duration) {
	tally := newTally()
	for _, b := range s.settled {
		m.unbind(b)
		for _, v := range s.verdicts[b] {
			tally.add(v)
		}
	}
	for _, b := range s.settled {
		for i, e := range b.entries {
			if v := s.verdicts[b][i]; v.write {
				m.noteLoss(e.row.Record.ID, v.settlement)
			}
			m.applyVerdict(p, e, s.verdicts[b][i], now)
		}
	}
	p.sweep()
	m.published += int64(tally.states[core.Published])
	if tally.any {
		m.obs.Settled(tally.states, tally.retried, tally.deadBy)
	}
	for _, b := range s.announce {
		if b.stage == announcing {
			b.stage = ready
		}
	}
}

func (m *machine) applyVerdict(p *partition, e *entry, v verdict, now time.Duration) {
	if e.gone { // an earlier record of its key made it leave; it is read again if it is still pending
		return
	}
	key, keyed := m.key(&e.row)
	if v.write {
		p.countRow(m, e, -1)
		e.row.Deliveries++
		e.row.Attempts, e.row.Crashes = v.settlement.Attempts, v.settlement.Crashes
		p.countRow(m, e, +1)
	}
	if v.leaves {
		m.remove(p, e, now)
		if !keyed && v.until != 0 && v.until != never {
			p.wait(m, e.row.Record.Seq, v.until)
		}
	}
	if keyed && v.until != 0 {
		m.holdBack(p, key, v.until, now)
	}
}

// abandon takes a step for not done. Only the simulation does so, to show what it breaks.
func (m *machine) abandon(p *partition, s *step) {
	p.step = nil
	for _, b := range s.settled {
		b.stage = answered
	}
	for _, b := range s.announce {
		m.dissolve(b)
	}
}

// dissolve takes back a batch that was never announced.
func (m *machine) dissolve(b *batch) {
	m.freeSlot(b)
	m.unbind(b)
}

// tally counts verdicts for the observer.
type tally struct {
	any     bool
	states  map[core.State]int
	retried int
	deadBy  map[string]int
}

func newTally() *tally { return &tally{states: map[core.State]int{}, deadBy: map[string]int{}} }

func (t *tally) add(v verdict) {
	if !v.write {
		return
	}
	t.any = true
	t.states[v.settlement.State]++
	switch v.settlement.State {
	case core.Pending:
		if v.settlement.Delay > 0 {
			t.retried++
		}
	case core.Dead:
		t.deadBy[v.settlement.Failure.Code]++
	}
}

func sortBatches(bs []*batch) {
	slices.SortFunc(bs, func(a, b *batch) int { return int(a.id - b.id) })
}
