package engine

import (
	"slices"
	"time"

	"github.com/connectd/connectd/core"
)

// stage is how far a batch has come. Only a batch whose announcement is known to have committed is sent.
type stage int

const (
	formed     stage = iota // not in a step yet
	announcing              // in a step that is not known to have committed
	ready                   // announced; waits for the send gate
	sending                 // Deliver runs
	answered                // its outcome is known and not yet in a step
	settling                // in a step that is not known to have committed
)

// batch is some rows of one partition on their way. A key has rows in at most one batch.
type batch struct {
	id       int64
	p        *partition
	entries  []*entry
	stage    stage
	careful  bool // holds the send gate alone
	refused  bool // never sent: its rows cannot be, and are buried; there is no inflight row
	lone     bool // one row that failed so many calls that it goes alone
	probe    bool // the valve let it through while closed
	slot     bool // counts as in flight
	repeated bool // its announcement was sent twice: its inflight row is emptied, not deleted
	sentAt   time.Duration
	ans      answer
}

// unbind makes the batch's rows and keys free again.
func (m *machine) unbind(b *batch) {
	for _, e := range b.entries {
		e.batch = nil
		if key, keyed := m.key(&e.row); keyed {
			if ks := b.p.keys[key]; ks != nil {
				ks.busy = nil
			}
		}
	}
	delete(b.p.batches, b.id)
	if b == m.careful {
		m.endCareful()
	}
}

func (m *machine) busy(p *partition, key string) bool {
	ks := p.keys[key]
	return ks != nil && ks.busy != nil && !m.off.busy
}

// begin makes the batch's rows and keys its own.
func (m *machine) begin(b *batch) {
	b.p.lastID++
	b.id = b.p.lastID
	b.p.batches[b.id] = b
	for _, e := range b.entries {
		e.batch = b
		if key, keyed := m.key(&e.row); keyed {
			b.p.keys[key].busy = b
		}
	}
	if b.refused {
		return
	}
	b.slot = true
	m.inFlight++
	b.probe = m.valve.reason != ""
	m.valve.began()
}

func (m *machine) freeSlot(b *batch) {
	if b.slot {
		b.slot = false
		m.inFlight--
	}
	if b.probe {
		m.valve.probing = false
	}
}

// claimGate asks for the send gate alone when some partition has a suspect that could go, forms the careful batch
// once it is held, and leaves the queue when there is none any more. A careful batch takes no slot into account: normal
// batches that wait for the gate may hold them all. Between two careful batches a normal one is answered, if there is one:
// many suspects that take their time must not keep the other rows waiting.
func (m *machine) claimGate(now time.Duration) {
	if m.off.gate || m.careful != nil {
		return
	}
	var p *partition
	var first *entry
	if ok, _ := m.valve.open(now); ok && !m.draining {
		p, first = m.nextSuspect()
	}
	if first != nil && !m.claimed && m.owed && (m.inFlight > 0 || m.stepping()) {
		return
	}
	if first == nil {
		if m.claimed {
			m.claimed = false
			m.gate.drop(m)
		}
		return
	}
	m.claimed = true
	if m.gate.claim(m) {
		m.formCareful(p, first)
		m.alarm = now
	}
}

// stepping reports whether a step is under way, for which some partition cannot form a batch now.
func (m *machine) stepping() bool {
	return m.steps != (lanes{}) || slices.ContainsFunc(m.parts, func(p *partition) bool { return p.stepping })
}

// endCareful gives the send gate back.
func (m *machine) endCareful() {
	m.careful, m.claimed, m.owed = nil, false, true
	m.gate.drop(m)
}

// send starts the calls of p's announced batches.
func (m *machine) send(p *partition, now time.Duration) {
	for _, b := range p.batchesIn(ready) {
		closed := m.valve.reason != "" && !b.probe
		switch {
		case m.draining || p.draining || closed || b.careful && m.careful != b:
			m.unsent(b)
		case p.suspended || now >= p.deadline && !m.off.deadline:
		case !b.careful && !m.off.gateShared && !m.off.gate && !m.gate.enter(m):
		default:
			b.stage, b.sentAt = sending, now
			m.do(opDeliver{b, m.records(b)})
		}
	}
}

// records makes what the sink sees of a batch.
func (m *machine) records(b *batch) []core.Record {
	records := make([]core.Record, len(b.entries))
	for i, e := range b.entries {
		records[i] = e.row.Record
		records[i].Deliveries = e.row.Deliveries + 1
		records[i].Epoch = b.p.lease.Epoch
	}
	return records
}

// batchesIn returns p's batches at that stage, in the order they were formed.
func (p *partition) batchesIn(s stage) []*batch {
	var in []*batch
	for _, b := range p.batches {
		if b.stage == s {
			in = append(in, b)
		}
	}
	sortBatches(in)
	return in
}

// unsent takes an announced batch back before it left.
func (m *machine) unsent(b *batch) {
	m.freeSlot(b)
	b.stage, b.ans = answered, answer{failure: notSent}
}

// cancelCalls ends p's running calls and takes back its announced batches.
func (m *machine) cancelCalls(p *partition) {
	for _, b := range p.batches {
		switch b.stage {
		case sending:
			m.do(opCancel{b})
		case ready:
			m.unsent(b)
		}
	}
}

// delivered reports the answer of opDeliver.
func (m *machine) delivered(b *batch, ans answer, now time.Duration) {
	if !b.careful && !m.off.gateShared && !m.off.gate {
		m.gate.leave(m)
	}
	if ans.failure == noFailure && len(ans.outcomes) != len(b.entries) {
		ans = answer{failure: unknown, took: ans.took, err: errAnswerCount(len(ans.outcomes), len(b.entries))}
	}
	m.noteAnswer(b, ans)
	m.freeSlot(b)
	if b.p.lost {
		if b == m.careful { // it was cancelled; until now it might still have killed something
			m.endCareful()
		}
		return
	}
	b.stage, b.ans = answered, ans
	m.judgeSink(b, now)
	if !b.careful && !(b.probe && m.valve.reason == "") { // a probe that passed goes before the batch that is owed
		m.owed = false
	}
	if b.careful && m.off.gateEarly {
		m.endCareful()
	}
}

func (m *machine) noteAnswer(b *batch, ans answer) {
	var kinds map[core.OutcomeKind]int
	if ans.failure == noFailure {
		kinds = make(map[core.OutcomeKind]int, 1)
		for _, o := range ans.outcomes {
			kinds[o.Kind]++
		}
	}
	m.obs.Called(len(b.entries), ans.took, kinds, ans.err)
}
