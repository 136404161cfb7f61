package engine

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/connectd/connectd/core"
)

// machine is the engine of one connector without clock, goroutines or I/O. It is told what happened, by the methods
// named in ops.go, and answers, by next, with what to do. One goroutine at a time calls it. So the same code runs
// under a Connector and, replayable from a seed, in the simulation.
type machine struct {
	name   string
	policy Policy
	limits core.Limits
	gate   *Gate
	rand   *rand.Rand
	log    *slog.Logger
	obs    Observer
	off    rulesOff
	// exclude is how many keys, and how many rows without one, are named to the source to be left out.
	exclude int

	parts     []*partition // owned, by number
	total     int          // partitions of the table; 0: not known yet
	live      int          // live workers
	changes   int64        // operators' changes, as last heard
	over      int          // pulses in a row that found this worker above its share
	pulsing   bool
	acquiring bool
	renewing  bool
	pulseAt   time.Duration
	acquireAt time.Duration
	renewAt   time.Duration
	troubles  []trouble // the source's calls that fail, in the order in which they began to

	valve     valve
	inFlight  int // batches announced or being announced, and not answered
	careful   *batch
	claimed   bool // the send gate is held or waited for
	owed      bool // a normal batch goes before the next careful one
	turn      int  // the partition that may begin first
	draining  bool
	published int64
	lastRead  time.Duration

	ops   []op
	alarm time.Duration
}

// rulesOff switches single rules off, so that the simulation can prove that each is needed. Nothing else sets it.
type rulesOff struct {
	busy          bool // a key may be in several batches at once
	behind        bool // rows of a key that must wait are taken as they come
	noteBehind    bool // a key whose row is not due is not held back
	blockAbove    bool // a blocked key's rows below the blocking one wait too
	floor         bool // reads begin at the reading position
	known         bool // a read may bring rows that are in memory
	announce      bool // a batch is sent before its announcement is known to have committed
	repeat        bool // a step of unknown outcome is taken for not done
	tombstone     bool // a repeated announcement's inflight row is deleted
	settleUnknown bool // an unknown call is not written down
	resetCrashes  bool // an answer leaves crashes as they are
	gate          bool // there are no careful sends
	gateShared    bool // normal calls run beside a careful one
	gateEarly     bool // the gate is given back at the answer
	handOver      bool // a partition is released with batches in flight
	deadline      bool // sends go on past the local deadline
}

func newMachine(c *Connector, r *rand.Rand) *machine {
	obs := c.Observer
	if obs == nil {
		obs = NoObserver{}
	}
	return &machine{name: c.Name, policy: c.Policy, limits: c.Limits, gate: c.Gate, rand: r, log: c.Log, obs: obs,
		exclude: maxExclude, live: 1, lastRead: -1}
}

// next returns what to do now and when to ask again if nothing happens before.
func (m *machine) next(now time.Duration) ([]op, time.Duration) {
	m.ops, m.alarm = nil, never
	m.leases(now)
	if n := len(m.parts); n > 0 {
		m.turn = (m.turn + 1) % n
		for i := range n {
			m.work(m.parts[(m.turn+i)%n], now)
		}
	}
	m.gate.pass(m)
	m.claimGate(now)
	return m.ops, m.alarm
}

func (m *machine) do(o op) { m.ops = append(m.ops, o) }

// at makes next be called at t, or earlier, and reports whether t has come.
func (m *machine) at(t, now time.Duration) bool {
	if now >= t {
		return true
	}
	m.alarm = min(m.alarm, t)
	return false
}

// work lets one partition do what it can.
func (m *machine) work(p *partition, now time.Duration) {
	if !p.suspended && !m.off.deadline && m.at(p.deadline, now) {
		m.suspend(p, now, "its deadline passed without a confirmed renewal")
	}
	if p.suspended {
		if m.careful != nil && m.careful.p == p && m.at(p.deadline, now) {
			m.endCareful()
		}
		return
	}
	if !p.releasing {
		m.read(p, now)
		switch {
		case p.stepping:
		case p.step != nil: // of unknown outcome
			if m.at(p.step.retryAt, now) {
				m.issue(p, now)
			}
		case m.makeStep(p, now):
		case (p.draining || m.draining) && (len(p.batches) == 0 || m.off.handOver) && !p.reading:
			p.releasing = true
			m.do(opRelease{p})
		}
	}
	m.send(p, now)
}

// room is how many more rows and bytes may be read into p's memory. The connector's budget, twice what can be in
// flight, is shared evenly by its partitions.
func (m *machine) room(p *partition) (int, int64) {
	return m.rowShare() - len(p.rows), m.byteShare() - p.bytes
}

func (m *machine) rowShare() int {
	n := max(len(m.parts), 1)
	return max(2*m.policy.InFlight*m.maxRecords()/n, min(2*m.maxRecords(), 256))
}

func (m *machine) byteShare() int64 {
	n := int64(max(len(m.parts), 1))
	return max(2*int64(m.policy.InFlight)*m.maxBytes()/n, 256<<10)
}

// full reports whether a key has its share of memory. A key is in one batch at a time, so slow keys can fill the memory of a
// partition only when they are as many as the calls that may run at once, and then nothing else could be sent anyway.
func (m *machine) full(ks *keyState) bool {
	n := m.slots()
	return ks != nil && (ks.rows >= max(m.rowShare()/max(n, 2), 1) || ks.bytes >= m.byteShare()/int64(n))
}

// nearlyDone reports whether so little of a key is left in memory that its next rows should be read.
func (m *machine) nearlyDone(ks *keyState) bool {
	n := m.slots()
	return ks == nil || ks.rows <= m.rowShare()/max(n, 2)/2 && ks.bytes <= m.byteShare()/int64(n)/2
}

func (m *machine) maxRecords() int {
	if n := m.limits.MaxRecords; n > 0 {
		return min(n, m.policy.MaxRecords)
	}
	return m.policy.MaxRecords
}

func (m *machine) maxBytes() int64 {
	if n := m.limits.MaxBytes; n > 0 {
		return min(n, m.policy.MaxBytes)
	}
	return m.policy.MaxBytes
}

func (m *machine) slots() int {
	if n := m.limits.MaxInFlight; n > 0 {
		return min(n, m.policy.InFlight)
	}
	return m.policy.InFlight
}

// read issues the next read of p if one is due and there is room for it.
func (m *machine) read(p *partition, now time.Duration) {
	if p.draining || m.draining || p.reading {
		return
	}
	rows, bytes := m.room(p)
	if rows < max(m.rowShare()/4, 1) || bytes <= 0 {
		m.lastRead = now // memory is full: there is no need to read
		return
	}
	if !m.at(p.readAgain, now) {
		return
	}
	if !p.scanning {
		if due, at := p.scanDue(now); due {
			p.rescan(m, now)
		} else {
			m.at(at, now)
		}
	}
	switch {
	case p.needBlock && m.policy.Ordered:
		m.do(opBlocking{p})
	case p.scanning || m.at(p.nextRead, now):
		m.do(opFetch{p, m.request(p)})
	default:
		return
	}
	p.reading, p.readSince = true, now
}

// blocking reports the answer of opBlocking.
func (m *machine) blocking(p *partition, blocks []core.Block, err error, now time.Duration) {
	p.reading = false
	if m.readFailed(p, "blocking", err, now) || p.lost {
		return
	}
	p.needBlock = false
	clear(p.blocked)
	for _, b := range blocks {
		p.blocked[b.Key] = b.Seq
	}
}

// fetched reports the answer of opFetch.
func (m *machine) fetched(p *partition, page core.Page, err error, now time.Duration) {
	p.reading = false
	m.obs.Read(len(page.Rows), now-p.readSince, err)
	if m.readFailed(p, "fetch", err, now) || p.lost {
		return
	}
	m.take(p, page, now)
}

func (m *machine) readFailed(p *partition, call string, err error, now time.Duration) bool {
	if !p.lost {
		m.sourceSaid(call, p.lease.Part, err)
	}
	if err == nil {
		m.lastRead = now
		return false
	}
	p.needBlock = p.needBlock || p.scanning
	if p.scanning {
		p.rescan(m, now)
	}
	p.readAgain = now + m.pause(call, p.lease.Part)
	return true
}

// trouble is one of the source's calls that fails. Each has its own count: while a table cannot be read, heartbeats may
// go on, and their success says nothing about the table.
type trouble struct {
	call     string
	part     int // 0 for calls about no partition
	failures int // in a row
	err      string
}

// sourceSaid keeps count of a call's failures for its backoff, and tells each change of the source's state once.
func (m *machine) sourceSaid(call string, part int, err error) {
	i := slices.IndexFunc(m.troubles, func(t trouble) bool { return t.call == call && t.part == part })
	switch {
	case err == nil && i < 0:
	case err == nil:
		failures := m.troubles[i].failures
		m.troubles = slices.Delete(m.troubles, i, i+1)
		if len(m.troubles) == 0 {
			m.log.Info("source answers again", "connector", m.name, "failures", failures)
		}
	case i < 0:
		if !slices.ContainsFunc(m.troubles, func(t trouble) bool { return t.call == call }) {
			m.log.Warn("source call failed; trying again", "connector", m.name, "error", err)
		}
		m.troubles = append(m.troubles, trouble{call, part, 1, err.Error()})
	default:
		m.troubles[i].failures++
		m.troubles[i].err = err.Error()
	}
}

// untroubled forgets failures of calls that will not be made again.
func (m *machine) untroubled(gone func(trouble) bool) {
	m.troubles = slices.DeleteFunc(m.troubles, gone)
}

// sourceErr is what fails at the source; of several calls the one that has failed longest.
func (m *machine) sourceErr() string {
	if len(m.troubles) == 0 {
		return ""
	}
	return m.troubles[0].err
}

// pause is the backoff of a source call that failed.
func (m *machine) pause(call string, part int) time.Duration {
	failures := 0
	for _, t := range m.troubles {
		if t.call == call && t.part == part {
			failures = t.failures
		}
	}
	return 10*time.Millisecond + jitter(m.rand, 50*time.Millisecond, 2*time.Second, failures)
}

// wake makes all partitions read now: something may have been committed.
func (m *machine) wake(now time.Duration) {
	for _, p := range m.parts {
		p.nextRead = min(p.nextRead, now)
		p.idle = m.policy.PollMin
	}
}

// drain begins the end: nothing new is read or announced, running calls finish, everything is settled and released.
func (m *machine) drain() { m.draining = true }

// hurry cuts the drain short: running calls are cancelled and settled as unknown.
func (m *machine) hurry() []op {
	m.draining = true
	m.ops = nil
	for _, p := range m.parts {
		m.cancelCalls(p)
	}
	return m.ops
}

// finished reports whether a drain has nothing left to do.
func (m *machine) finished() bool {
	return m.draining && len(m.parts) == 0 && m.inFlight == 0 && !m.acquiring
}

// status tells people what the connector does. LastRead and GateUntil are set, not zero, when there is such a time; who
// knows the clock puts it in. A gate whose time has come, with nothing there to try it, is called open.
func (m *machine) status(now time.Duration) Status {
	s := Status{
		Partitions: m.total, Owned: len(m.parts), InFlight: m.inFlight, Gate: "open",
		SourceError: m.sourceErr(), Delivered: m.published, Draining: m.draining,
	}
	if m.lastRead >= 0 {
		s.LastRead = time.Unix(1, 0)
	}
	for _, p := range m.parts {
		s.Queued += len(p.rows)
	}
	if v := &m.valve; v.quarantined || v.reason != "" && (v.until > now || v.probing || s.Queued > 0) {
		s.Gate, s.GateReason = "closed", v.reason
		if v.quarantined {
			s.Gate = "quarantined"
		}
		if v.until > now {
			s.GateUntil = time.Unix(1, 0)
		}
	}
	return s
}
