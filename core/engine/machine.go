package engine

import (
	"log/slog"
	"math/rand/v2"
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
	// ordinary is how many records a batch has that is no probe.
	ordinary int
	gate     *Gate
	rand     *rand.Rand
	log      *slog.Logger
	obs      Observer
	off      rulesOff
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
	losses    losses
	waits     waits

	valve     valve
	inFlight  int // batches announced or being announced, and not answered
	careful   *batch
	claimed   bool // the send gate is held or waited for
	owed      bool // a normal batch goes before the next careful one
	turn      int  // the partition that may begin first
	draining  bool
	farewell  bool // the last heartbeat was sent
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
	policy, ordinary := c.Policy.settle(c.Prefers)
	return &machine{name: c.Name, policy: policy, ordinary: ordinary, limits: c.Limits, gate: c.Gate, rand: r, log: c.Log, obs: obs,
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
	m.tellLosses(now)
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
		if b := m.careful; b != nil && b.p == p && m.at(p.deadline, now) && b.stage != sending {
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
	// The floor leaves each partition room for a probe's batch, and each key that a call may be busy with a few rows.
	return max(2*m.policy.InFlight*m.usualRecords()/n, min(2*m.maxRecords(), 256), 4*m.slots())
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

// maxRecords bounds every batch, usualRecords those that are no probe.
func (m *machine) maxRecords() int {
	if n := m.limits.MaxRecords; n > 0 {
		return min(n, m.policy.MaxRecords)
	}
	return m.policy.MaxRecords
}

func (m *machine) usualRecords() int { return min(m.ordinary, m.maxRecords()) }

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
// knows the clock puts it in, and those of Waits. A gate whose time has come, with nothing there to try it, is called open.
func (m *machine) status(now time.Duration) Status {
	s := Status{
		Partitions: m.total, Owned: len(m.parts), InFlight: m.inFlight, Gate: "open",
		SourceError: m.sourceErr(), Delivered: m.published, Draining: m.draining,
		Waits: m.waits.told(now), MoreWaits: m.waits.more,
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
