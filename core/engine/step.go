package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/connectd/connectd/core"
)

// step is a partition's part of an announce-and-settle transaction on its way. It is built once and repeated unchanged until
// its outcome is known: nobody can tell whether a copy whose answer was lost has run, or will run yet. A first try may be
// in one transaction with those of other partitions; after that it goes alone, so that one that cannot succeed stops no other.
type step struct {
	change   core.Change
	settled  []*batch
	verdicts map[*batch][]verdict
	announce []*batch
	stops    bool  // it makes rows dead or held
	changes  int64 // of the operators, that were known when it was built
	retryAt  time.Duration
}

// stepRows is how many settled rows end a step, of one partition or of several: it must be done within the source's call
// timeout, or its unchanged repeats never are.
const stepRows = 5000

// step issues what the partitions have to settle and to announce, and releases those that are handed over.
func (m *machine) step(parts []*partition, now time.Duration) {
	var together []*partition
	rows := 0
	flush := func() {
		if len(together) > 0 {
			m.issue(group{parts: together, lane: &m.steps.light}, now)
		}
		together, rows = nil, 0
	}
	for _, p := range parts {
		full := p.answered() >= fullCall
		switch {
		case p.releasing || p.stepping:
		case p.step != nil: // refused in company, or of unknown outcome
			if m.at(p.step.retryAt, now) {
				m.issue(group{parts: []*partition{p}}, now)
			}
		case full && m.steps.full < fullCalls && m.makeStep(p, now):
			m.issue(group{parts: []*partition{p}, lane: &m.steps.full}, now)
		case !full && m.steps.light < lightCalls && m.makeStep(p, now):
			together = append(together, p)
			if rows += len(p.step.change.Settle); len(together) == groupParts || rows >= stepRows-fullCall {
				flush()
			}
		case (p.draining || m.draining) && (len(p.batches) == 0 || m.off.handOver) && !p.reading:
			p.releasing = true
			m.do(opRelease{p})
		}
	}
	flush()
}

// answered is how many rows of p wait to be settled.
func (p *partition) answered() int {
	n := 0
	for _, b := range p.batches {
		if b.stage == answered {
			n += len(b.entries)
		}
	}
	return n
}

// makeStep builds p's next step if there is anything to settle or to announce.
func (m *machine) makeStep(p *partition, now time.Duration) bool {
	if len(p.rows) == 0 && len(p.batches) == 0 {
		return false
	}
	if p.unsendable > 0 && !p.draining && !m.draining {
		m.refuse(p)
	}
	s := &step{change: core.Change{Lease: p.lease}, verdicts: map[*batch][]verdict{}, changes: p.told}
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
	return true
}

// settle adds an answered batch to the step.
func (m *machine) settle(s *step, b *batch, now time.Duration) {
	b.stage = settling
	verdicts := m.judge(b, now)
	for _, v := range verdicts {
		if v.write {
			s.change.Settle = append(s.change.Settle, v.settlement)
			s.stops = s.stops || v.settlement.State == core.Dead || v.settlement.State == core.Held
		}
	}
	s.settled = append(s.settled, b)
	s.verdicts[b] = verdicts
	if !b.refused {
		s.change.Finished = append(s.change.Finished, core.Finished{Batch: b.id, Keep: b.repeated && !m.off.tombstone})
	}
}

// issue sends the steps of a group's partitions as one transaction.
func (m *machine) issue(g group, now time.Duration) {
	o := opStep{group: m.begun(g, now), changes: make([]core.Change, len(g.parts))}
	for i, p := range g.parts {
		p.stepping, o.changes[i] = true, p.step.change
		if m.off.announce {
			for _, b := range p.step.announce {
				b.stage, m.alarm = ready, now
			}
		}
	}
	m.do(o)
}

// stepped reports the answer of opStep. A refused group is known to have written nothing, and which lease it was that is
// not owned is not known: so each partition tries alone, and nobody's lease is in doubt for it.
func (m *machine) stepped(o opStep, err error, now time.Duration) {
	o.ended()
	m.obs.Stepped(now-o.began, err)
	refused := errors.Is(err, core.ErrLeaseNotOwned)
	for i, p := range o.parts {
		p.stepping = false
		switch {
		case p.lost:
		case err == nil:
			m.sourceSaid("step", p.lease.Part, nil)
			s := p.step
			p.step = nil
			m.apply(p, s, now)
		case refused:
			p.step.retryAt = now
			if !p.suspended && (len(o.parts) == 1 || m.off.refusedApart) {
				m.suspend(p, now, "a settlement was refused")
			}
		case m.off.repeat || m.off.repeatAll && i > 0:
			m.abandon(p, p.step)
		default:
			m.sourceSaid("step", p.lease.Part, err)
			p.step.retryAt = now + m.pause("step", p.lease.Part)
			for _, b := range p.step.announce { // this copy may run after the next
				b.repeated = true
			}
		}
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
	if s.stops {
		if p.stopped == nil {
			p.stopped = s
		}
		if s.changes != p.told && !m.off.stopKnown { // operators may have given back what it stopped, and reads passed over it
			p.ready = now
		}
	}
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
