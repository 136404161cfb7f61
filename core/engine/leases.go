package engine

import (
	"slices"
	"time"

	"github.com/connectd/connectd/core"
)

// margin is how much earlier than the database this worker considers its leases over, so that it has stopped sending
// when somebody else may begin.
func (m *machine) margin() time.Duration {
	return min(max(m.policy.Lease/10, 100*time.Millisecond), 3*time.Second)
}

// leases renews what is ours, tells others that we live, and takes what is free.
func (m *machine) leases(now time.Duration) {
	if len(m.parts) > 0 && !m.renewing && m.at(m.renewAt, now) {
		m.renewing = true
		leases := make([]core.Lease, 0, len(m.parts))
		for _, p := range m.parts {
			leases = append(leases, p.lease)
		}
		m.do(opRenew{leases})
	}
	if !m.pulsing && !m.farewell && (m.draining || m.at(m.pulseAt, now)) {
		m.pulsing, m.farewell = true, m.draining // the last one says that this worker drains
		m.do(opPulse{m.status(now)})
	}
	if m.draining {
		return
	}
	if free := m.share() - len(m.parts); free > 0 && !m.acquiring && !m.doubtful() && m.at(m.acquireAt, now) {
		m.acquiring = true
		m.do(opAcquire{free})
	}
}

// share is how many partitions this worker may own: an even part, rounded up.
func (m *machine) share() int { return (m.total + m.live - 1) / max(m.live, 1) }

// doubtful reports whether some lease is in doubt: nothing is acquired then, lest we take it from ourselves.
func (m *machine) doubtful() bool {
	return slices.ContainsFunc(m.parts, func(p *partition) bool { return p.suspended })
}

// pulsed reports the answer of opPulse.
func (m *machine) pulsed(pulse core.Pulse, total int, err error, now time.Duration) {
	m.pulsing = false
	m.sourceSaid("heartbeat", 0, err)
	if err != nil {
		m.pulseAt = now + m.pause("heartbeat", 0)
		return
	}
	// Three a lease at least, so that within one whoever died is missed: see runner.pulse.
	m.pulseAt = now + around(m.rand, m.policy.Lease*3/10)
	m.total, m.live = total, max(pulse.Live, 1)
	m.untroubled(func(t trouble) bool {
		return t.call == "acquire" && m.share() <= len(m.parts) || t.call == "renew" && len(m.parts) == 0
	})
	if pulse.Changes != m.changes {
		m.changes = pulse.Changes
		for _, p := range m.parts {
			p.told = max(p.told, m.changes)
			p.scanAt = min(p.scanAt, now)
		}
	}
	m.shed()
}

// shed hands partitions over when this worker was above its share for two pulses in a row; one pulse may be a
// worker that restarts.
func (m *machine) shed() {
	keep := 0
	for _, p := range m.parts {
		if !p.draining {
			keep++
		}
	}
	excess := keep - m.share()
	if excess <= 0 {
		m.over = 0
		return
	}
	if m.over++; m.over < 2 {
		return
	}
	for i := len(m.parts) - 1; i >= 0 && excess > 0; i-- {
		if p := m.parts[i]; !p.draining {
			p.draining = true
			excess--
		}
	}
	m.over = 0
}

// acquired reports the answer of opAcquire, which was sent at asked. With an unknown outcome nothing is owned; if it
// did happen, the leases run out without inflight rows and cost nothing.
func (m *machine) acquired(got []core.Acquired, err error, asked, now time.Duration) {
	m.acquiring = false
	m.sourceSaid("acquire", 0, err)
	if err != nil {
		m.acquireAt = now + m.pause("acquire", 0)
		return
	}
	m.lastRead = now
	m.acquireAt = now + around(m.rand, min(max(m.policy.PollMax, m.policy.Lease/60), m.policy.Lease/3))
	for _, a := range got {
		m.parts = slices.DeleteFunc(m.parts, func(p *partition) bool {
			if p.lease.Part == a.Lease.Part {
				m.lose(p)
				return true
			}
			return false
		})
		p := newPartition(a.Lease, asked+m.policy.Lease-m.margin(), m.changes)
		p.scanBegan = now
		if m.draining {
			p.draining = true
		}
		m.parts = append(m.parts, p)
		m.noteAcquired(a)
	}
	slices.SortFunc(m.parts, func(a, b *partition) int { return a.lease.Part - b.lease.Part })
	if len(got) > 0 && len(got) == len(m.parts) {
		m.renewAt = asked + around(m.rand, m.policy.Lease/3)
	}
}

func (m *machine) noteAcquired(a core.Acquired) {
	taken := 0
	if a.TakenOver {
		taken = 1
	}
	m.obs.Acquired(taken, len(a.Recovered))
	dead, held := 0, 0
	for _, r := range a.Recovered {
		switch r.State {
		case core.Dead:
			dead++
		case core.Held:
			held++
		}
	}
	m.log.Info("partition acquired", "connector", m.name, "partition", a.Lease.Part, "epoch", a.Lease.Epoch,
		"taken_over", a.TakenOver, "possible_duplicates", len(a.Recovered), "dead", dead, "held", held)
	if dead+held > 0 {
		m.obs.Settled(map[core.State]int{core.Dead: dead, core.Held: held}, 0, map[string]int{core.ReasonCrash: dead})
	}
}

// renewed reports the answer of opRenew, which was sent at asked.
func (m *machine) renewed(sent, kept []core.Lease, err error, asked, now time.Duration) {
	m.renewing = false
	m.sourceSaid("renew", 0, err)
	if err != nil {
		m.renewAt = now + m.pause("renew", 0)
		return
	}
	m.renewAt = asked + around(m.rand, m.policy.Lease/3)
	for _, p := range m.parts {
		switch {
		case slices.Contains(kept, p.lease):
			p.deadline = asked + m.policy.Lease - m.margin()
			if p.suspended && p.deadline > now {
				p.suspended = false
				m.log.Info("lease revived", "connector", m.name, "partition", p.lease.Part, "epoch", p.lease.Epoch)
			}
		case p.releasing: // it may have been given back before the renewal ran
		case slices.Contains(sent, p.lease):
			m.lose(p)
		}
	}
	m.parts = slices.DeleteFunc(m.parts, func(p *partition) bool { return p.lost })
	if m.doubtful() {
		m.renewAt = now
	}
}

// suspend stops everything of a partition whose lease is in doubt, until a renewal tells whether it is still ours:
// a lease that ran out is not lost until somebody takes it.
func (m *machine) suspend(p *partition, now time.Duration, why string) {
	p.suspended = true
	m.log.Warn("lease in doubt, sending stopped", "connector", m.name, "partition", p.lease.Part,
		"epoch", p.lease.Epoch, "reason", why)
	m.cancelCalls(p)
	for _, b := range p.batchesIn(formed) {
		m.dissolve(b)
	}
	if b := m.careful; b != nil && b.p == p && now >= p.deadline && b.stage != sending {
		m.endCareful()
	}
	if !m.renewing {
		m.renewAt = min(m.renewAt, now)
		m.alarm = min(m.alarm, now)
	}
}

// lose drops a partition that somebody else took: what is on its way is cancelled and its answers are ignored.
func (m *machine) lose(p *partition) {
	m.log.Warn("lease_not_owned: partition was taken over by another worker", "connector", m.name,
		"partition", p.lease.Part, "epoch", p.lease.Epoch)
	m.obs.Lost(1)
	m.cancelCalls(p)
	m.forget(p)
}

// forget ends a partition's memory. Calls that still run keep their places until they end.
func (m *machine) forget(p *partition) {
	p.lost = true
	m.untroubled(func(t trouble) bool {
		return t.part == p.lease.Part && (t.call == "fetch" || t.call == "blocking" || t.call == "step")
	})
	for _, b := range p.batches {
		if b.stage <= ready {
			m.freeSlot(b)
		}
	}
	if b := m.careful; b != nil && b.p == p && b.stage != sending {
		m.endCareful()
	}
}

// released reports the answer of opRelease. Whatever it was, the partition is forgotten: if the lease was not given
// back, it runs out.
func (m *machine) released(p *partition, err error) {
	if p.lost {
		return
	}
	if err = nilIfNotOwned(err); err != nil {
		m.log.Warn("partition not given back, its lease runs out", "connector", m.name, "partition", p.lease.Part, "error", err)
	}
	m.forget(p)
	m.parts = slices.DeleteFunc(m.parts, func(q *partition) bool { return q == p })
	m.obs.Released(1)
	if err == nil {
		m.log.Info("partition released", "connector", m.name, "partition", p.lease.Part, "epoch", p.lease.Epoch)
	}
}
