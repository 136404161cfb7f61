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
	reads     lanes
	steps     lanes
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
	refusedApart  bool // a refused step leaves the leases of all its partitions in doubt
	changes       bool // rows are taken whatever operators changed
	stopped       bool // rows that a page was to pass over and that stopped put nothing in doubt
	seenForEver   bool // a row that was seen waiting once is never in doubt again
	stopKnown     bool // a stop that comes after the news of changes is as good as one before
	repeatAll     bool // of a step of unknown outcome only the first partition's change is repeated
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
	m.alarm = never
	m.leases(now)
	parts := m.working(now)
	m.read(parts, now)
	for _, p := range parts {
		m.send(p, now)
	}
	m.step(parts, now)
	m.gate.pass(m)
	m.claimGate(now)
	m.tellLosses(now)
	return m.handOut(), m.alarm
}

// handOut gives what is to be done, also what a report asked for: a lease that turns out to be lost cancels its calls.
func (m *machine) handOut() []op {
	ops := m.ops
	m.ops = nil
	return ops
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

// working lists the partitions whose leases are not in doubt, the one whose turn it is first.
func (m *machine) working(now time.Duration) []*partition {
	n := len(m.parts)
	if n == 0 {
		return nil
	}
	m.turn = (m.turn + 1) % n
	parts := make([]*partition, 0, n)
	for i := range n {
		p := m.parts[(m.turn+i)%n]
		if !p.suspended && !m.off.deadline && m.at(p.deadline, now) {
			m.suspend(p, now, "its deadline passed without a confirmed renewal")
		}
		if !p.suspended {
			parts = append(parts, p)
		} else if b := m.careful; b != nil && b.p == p && m.at(p.deadline, now) && b.stage != sending {
			m.endCareful()
		}
	}
	return parts
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
		p.woken = p.reading // what was committed may not be in the page that is on its way
	}
}

// drain begins the end: nothing new is read or announced, running calls finish, everything is settled and released.
func (m *machine) drain() { m.draining = true }

// hurry cuts the drain short: running calls are cancelled and settled as unknown.
func (m *machine) hurry() []op {
	m.draining = true
	for _, p := range m.parts {
		m.cancelCalls(p)
	}
	return m.handOut()
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
