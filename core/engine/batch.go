package engine

import (
	"math"
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
	probe    bool // the valve let it through while closed
	slot     bool // counts as in flight
	repeated bool // its announcement was sent twice: its inflight row is emptied, not deleted
	sentAt   time.Duration
	ans      answer
}

const carefulGroup = 32 // rows at two crashes that are sent together

// suspect reports whether a row has been in flight at so many crashes that it is sent carefully, and whether alone.
func suspect(e *entry) (careful, alone bool) { return e.row.Crashes >= 2, e.row.Crashes >= 3 }

// form makes the next batch of p, or nil. While the valve is closed its one batch is made of rows that never crashed
// anything, if there are any: a record that hangs must not be the probe that keeps the valve closed.
func (m *machine) form(p *partition, now time.Duration) *batch {
	if ok, at := m.valve.open(now); !ok || m.inFlight >= m.slots() || m.gate.quiet() && !m.off.gateShared {
		if !ok && at > now {
			m.at(at, now)
		}
		return nil
	}
	b := &batch{p: p}
	if m.valve.reason != "" {
		m.pick(b, 0)
	}
	if len(b.entries) == 0 {
		m.pick(b, 1)
	}
	if len(b.entries) == 0 {
		return nil
	}
	m.begin(b)
	return b
}

// pick fills a normal batch with rows of at most so many crashes. It takes rows in seq order; a key whose first free row
// cannot come along is left out whole, so that a batch never holds a key's row before an earlier one.
func (m *machine) pick(b *batch, crashes int) {
	limit, bytes := m.valve.size(m.maxRecords()), m.maxBytes()
	var left map[string]bool
	for _, e := range b.p.order {
		if len(b.entries) == limit {
			return
		}
		if e.gone || e.batch != nil {
			continue
		}
		key, keyed := m.key(&e.row)
		if keyed && (m.busy(b.p, key) || left[key]) {
			continue
		}
		if e.row.Crashes > crashes && !m.off.gate || m.unsendable(e) != "" {
			if keyed {
				left = leave(left, key)
			}
			continue
		}
		if len(b.entries) > 0 && bytes < e.size {
			return
		}
		bytes -= e.size
		b.entries = append(b.entries, e)
	}
}

func leave(left map[string]bool, key string) map[string]bool {
	if left == nil {
		left = map[string]bool{}
	}
	left[key] = true
	return left
}

// nextSuspect returns a row that could be sent now, carefully. While the sink is on trial, rows whose next crash would
// be their last come after all others: one of those may be delivered and clear the sink.
func (m *machine) nextSuspect() (*partition, *entry) {
	limits := []int{core.MaxCrashes - 2, math.MaxInt}
	if !m.valve.onTrial {
		limits = limits[1:]
	}
	for _, most := range limits {
		for _, p := range m.parts {
			if e := m.firstSuspect(p, most); e != nil {
				return p, e
			}
		}
	}
	return nil, nil
}

// firstSuspect returns the first row of p, of at most so many crashes, that could be sent now, carefully.
func (m *machine) firstSuspect(p *partition, most int) *entry {
	if p.suspects == 0 || p.suspended || p.draining || p.lost {
		return nil
	}
	left := map[string]bool{}
	for _, e := range p.order {
		key, keyed := m.key(&e.row)
		if e.gone || e.batch != nil || keyed && (m.busy(p, key) || left[key]) {
			continue
		}
		if careful, _ := suspect(e); careful && e.row.Crashes <= most && m.unsendable(e) == "" {
			return e
		}
		if keyed {
			left[key] = true
		}
	}
	return nil
}

// formCareful makes the careful batch that begins with first: that row alone, or, at two crashes, with others that
// stand there too.
func (m *machine) formCareful(p *partition, first *entry) *batch {
	b := &batch{p: p, careful: true, entries: []*entry{first}}
	if _, alone := suspect(first); !alone {
		bytes := m.maxBytes() - first.size
		left := map[string]bool{}
		limit := min(carefulGroup, m.maxRecords())
		for _, e := range p.order {
			if len(b.entries) >= limit {
				break
			}
			key, keyed := m.key(&e.row)
			if e == first || e.gone || e.batch != nil || keyed && (m.busy(p, key) || left[key]) {
				continue
			}
			if e.row.Crashes != 2 || m.unsendable(e) != "" || bytes < e.size || e.row.Record.Seq < first.row.Record.Seq {
				if keyed {
					left[key] = true
				}
				continue
			}
			bytes -= e.size
			b.entries = append(b.entries, e)
		}
	}
	m.begin(b)
	m.careful = b
	return b
}

// refuse makes a batch of the rows at their key's front that can never be sent, or nil.
func (m *machine) refuse(p *partition) *batch {
	b := &batch{p: p, refused: true}
	left := map[string]bool{}
	for _, e := range p.order {
		key, keyed := m.key(&e.row)
		if e.gone || e.batch != nil || keyed && (m.busy(p, key) || left[key]) {
			continue
		}
		if m.unsendable(e) == "" || len(b.entries) == m.maxRecords() {
			if keyed {
				left[key] = true
			}
			continue
		}
		b.entries = append(b.entries, e)
	}
	if len(b.entries) == 0 {
		return nil
	}
	m.begin(b)
	b.stage = answered
	return b
}

// unsendable returns the reason why a row can never be sent, or "".
func (m *machine) unsendable(e *entry) string {
	if e.row.Invalid != "" {
		return core.ReasonInvalid
	}
	if n := m.limits.MaxRecordBytes; n > 0 && e.size > n {
		return core.ReasonTooLarge
	}
	return ""
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
// batches that wait for the gate may hold them all.
func (m *machine) claimGate(now time.Duration) {
	if m.off.gate || m.careful != nil {
		return
	}
	var p *partition
	var first *entry
	if ok, _ := m.valve.open(now); ok && !m.draining {
		p, first = m.nextSuspect()
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

// endCareful gives the send gate back.
func (m *machine) endCareful() {
	m.careful, m.claimed = nil, false
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
		return
	}
	b.stage, b.ans = answered, ans
	m.judgeSink(b, now)
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
