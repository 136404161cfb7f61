package engine

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/memory"
)

// The simulation runs the engine's machine, the very code of production, in a world of its own: one goroutine, one
// virtual clock, one queue of events, one source of chance. Workers crash, pause and wake; the database's calls fail,
// lose their answers or take effect later than their repeat; sinks refuse, throttle, hang and die; people retry, skip and
// release; producers overlap and roll back. Each send and each settlement is checked against the invariants in
// sim_check_test.go. A seed replays a run exactly.
type sim struct {
	sc        scenario
	rng       *rand.Rand
	now       time.Duration
	queue     events
	n         int // events so far, to order those of one moment
	moment    int // events of this moment
	steps     int // events done
	writes    int // writing calls so far
	tables    []*memory.Source
	workers   []*simWorker
	started   int // workers so far
	rows      map[rowID]*history
	locked    map[string]bool     // keys that a producer's open transaction holds
	settled   map[batchID]bool    // batches that were settled
	deaths    map[batchID][]rowID // by lease (batch 0): what its worker was sending when it died
	inserted  int
	given     int // rows that persons gave back
	groups    simGroups
	quiet     bool // no more faults
	violation error
}

type rowID struct {
	table int
	seq   int64
}

type batchID struct {
	table, part  int
	epoch, batch int64
}

var simBegan = time.Date(2026, 3, 29, 0, 30, 0, 0, time.UTC)

func newSim(sc scenario, seed uint64) *sim {
	s := &sim{
		sc: sc, rng: rand.New(rand.NewPCG(seed, 1)), rows: map[rowID]*history{}, locked: map[string]bool{},
		settled: map[batchID]bool{}, deaths: map[batchID][]rowID{},
	}
	for range max(sc.tables, 1) {
		t := memory.NewSource(max(sc.partitions, 1), func() time.Time { return simBegan.Add(s.now) })
		t.KeepPublished = true
		s.tables = append(s.tables, t)
	}
	for range max(sc.workers, 1) {
		s.after(s.upTo(time.Second), s.startWorker)
	}
	s.scheduleFaults()
	s.scheduleProducers()
	return s
}

// run lets the world go until every row has come to rest, and returns the first violation.
func (s *sim) run() error {
	s.after(s.sc.length(), s.calm)
	if s.sc.readWithin > 0 {
		s.watchGivenBack()
	}
	limit := s.sc.length() + 3*time.Hour
	for s.violation == nil && s.queue.Len() > 0 {
		e := heap.Pop(&s.queue).(*event)
		if s.moment++; e.at > s.now {
			s.moment = 0
		}
		if s.moment > 5000 {
			return fmt.Errorf("at %v: a loop that takes no time", s.now)
		}
		s.now = e.at
		if s.steps++; s.steps == s.sc.strikeAt {
			s.strike()
		}
		e.do()
		if s.quiet && s.n%64 == 0 && s.atRest() {
			return s.checkEnd()
		}
		if s.now > limit {
			if s.atRest() {
				return s.checkEnd()
			}
			return fmt.Errorf("after %v not at rest: %s", s.now, s.unfinished())
		}
	}
	return s.violation
}

func (s *sim) fail(format string, args ...any) {
	if s.violation == nil {
		s.violation = fmt.Errorf("at %v: %s", s.now, fmt.Sprintf(format, args...))
	}
}

// calm ends the faults: who paused wakes, and somebody is there to do the rest.
func (s *sim) calm() {
	s.quiet = true
	alive := 0
	for _, w := range s.workers {
		if w.paused {
			w.resume()
		}
		if !w.dead && !w.leaving {
			alive++
		}
	}
	if alive == 0 {
		s.startWorker()
	}
}

func (s *sim) chance(p float64) bool              { return p > 0 && s.rng.Float64() < p }
func (s *sim) upTo(d time.Duration) time.Duration { return time.Duration(s.rng.Int64N(int64(d) + 1)) }
func (s *sim) faulty(p float64) bool              { return !s.quiet && s.chance(p) }
func (s *sim) after(d time.Duration, do func()) {
	s.n++
	heap.Push(&s.queue, &event{s.now + d, s.n, do})
}

// delay is how long something takes: mostly little, sometimes much.
func (s *sim) delay() time.Duration {
	if !s.sc.clean && s.sc.readWithin == 0 && s.faulty(0.02) {
		return s.upTo(s.sc.slow())
	}
	return time.Millisecond + s.upTo(20*time.Millisecond)
}

type event struct {
	at time.Duration
	n  int
	do func()
}

type events []*event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].n < q[j].n
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(*event)) }
func (q *events) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

// simWorker is one process: a send gate and a connector for each table.
type simWorker struct {
	s       *sim
	owner   string
	gate    *Gate
	conns   []*simConn
	dead    bool
	leaving bool
	paused  bool
	since   time.Duration // of the pause
	stopped bool          // its clock stands still in the pause
	napped  bool          // it was paused before
	skew    time.Duration // how far its clock is behind
	waiting []func()      // what comes in while it is paused
	calls   map[*simCall]bool
}

// simConn is one connector of a worker, with its sink's process.
type simConn struct {
	w       *simWorker
	table   int
	source  *memory.Source
	m       *machine
	wakeup  int // the newest alarm
	downTo  time.Duration
	running map[*batch]*simCall
	lanes   map[*int]int      // calls of the source that run, by the lane that counts them
	ahead   map[int]core.Page // with dbOff.blockFirst: rows read before the blocked keys
}

func (s *sim) startWorker() {
	s.started++
	w := &simWorker{s: s, owner: fmt.Sprintf("w%d", s.started), gate: NewGate(), calls: map[*simCall]bool{}}
	for i, t := range s.tables {
		c := &simConn{w: w, table: i, source: t, running: map[*batch]*simCall{}, lanes: map[*int]int{}, ahead: map[int]core.Page{}}
		c.m = newMachine(&Connector{
			Name: "sim", Policy: s.sc.policy(), Prefers: s.sc.prefers(), Gate: w.gate, Log: slog.New(slog.DiscardHandler),
		}, rand.New(rand.NewPCG(s.rng.Uint64(), 2)))
		c.m.off = s.sc.off
		if s.sc.exclude > 0 {
			c.m.exclude = s.sc.exclude
		}
		w.gate.join(c.m, func() {
			c.wakeup++
			s.after(0, c.pump)
		})
		w.conns = append(w.conns, c)
	}
	s.workers = append(s.workers, w)
	for _, c := range w.conns {
		c.pump()
	}
}

func (w *simWorker) local() time.Duration { return w.s.now - w.skew }

func (w *simWorker) pause(stopped bool) {
	if w.dead || w.paused {
		return
	}
	w.paused, w.napped, w.stopped, w.since = true, true, stopped, w.s.now
}

func (w *simWorker) resume() {
	if w.dead || !w.paused {
		return
	}
	w.paused = false
	if w.stopped {
		w.skew += w.s.now - w.since
	}
	waiting := w.waiting
	w.waiting = nil
	for _, f := range waiting {
		f()
	}
	for _, c := range w.conns {
		c.pump()
	}
}

// when runs f unless the worker is dead; while it is paused, f waits.
func (w *simWorker) when(f func()) {
	switch {
	case w.dead:
	case w.paused:
		w.waiting = append(w.waiting, f)
	default:
		f()
	}
}

// kill ends the process; another starts in its place.
func (w *simWorker) kill() {
	if w.dead {
		return
	}
	w.dead = true
	var sending []rowID
	for call := range w.calls {
		call.alone = len(w.calls) == 1 && len(call.b.entries) == 1
		w.s.noteCrash(call)
		for i := range call.records {
			sending = append(sending, rowID{call.c.table, call.records[i].Seq})
		}
	}
	for _, c := range w.conns {
		for _, p := range c.m.parts {
			// A careful batch holds the gate until its local deadline; a lease revived after that does not take it back.
			if w.s.owns(c, p.lease.Part, p.lease.Epoch) && w.local() < p.deadline && !c.gateGivenBack(p) {
				w.s.deaths[batchID{c.table, p.lease.Part, p.lease.Epoch, 0}] = sending
			}
		}
	}
	w.s.after(w.s.upTo(2*time.Second), w.s.startWorker)
}

// gateGivenBack reports whether p has a careful batch that holds the send gate no more.
func (c *simConn) gateGivenBack(p *partition) bool {
	for _, b := range p.batches {
		if b.careful && c.m.careful != b && !c.m.off.gateEarly {
			return true
		}
	}
	return false
}

// drain ends the process in good order.
func (w *simWorker) drain() {
	if w.dead || w.leaving {
		return
	}
	w.leaving = true
	w.when(func() {
		for _, c := range w.conns {
			c.m.drain()
			c.pump()
		}
	})
	cut := w.s.upTo(10 * time.Second)
	w.s.after(cut, func() {
		w.when(func() {
			for _, c := range w.conns {
				c.start(c.m.hurry())
				c.pump()
			}
		})
	})
	w.s.after(cut+settleGrace, func() { w.when(func() { w.dead = true }) })
	if !w.s.quiet {
		w.s.after(w.s.upTo(5*time.Second), w.s.startWorker)
	}
}

// pump lets the machine say what to do next.
func (c *simConn) pump() {
	if c.w.dead || c.w.paused || c.w.s.violation != nil {
		return
	}
	for idle := 0; idle < 10; idle++ {
		ops, at := c.m.next(c.w.local())
		c.start(ops)
		if at > c.w.local() {
			c.wakeup++
			c.sleep(at)
			return
		}
		if len(ops) > 0 {
			idle = 0
		}
	}
	c.w.s.fail("the machine asks to be called again at once and does nothing")
}

// sleep lets the machine be called at its alarm.
func (c *simConn) sleep(at time.Duration) {
	s, n := c.w.s, c.wakeup
	c.checkSleep(at)
	if at != never {
		s.after(at-c.w.local(), func() {
			if c.wakeup == n {
				c.pump()
			}
		})
	}
}

func (c *simConn) start(ops []op) {
	for _, o := range ops {
		c.do(o)
	}
}

var errSim = errors.New("connection lost")

// call runs apply in the database and report in the worker, with the faults of the scenario. apply may run although the
// worker learns of a failure: its answer was lost, or the statement arrives late.
func (c *simConn) call(write bool, apply func(), report func(err error)) {
	s := c.w.s
	there, back := s.delay(), s.delay()
	answer := func(err error) {
		c.w.when(func() {
			report(err)
			c.pump()
		})
	}
	if write {
		s.writes++
	}
	chosen := write && s.sc.fateAt == s.writes
	switch {
	case !s.quiet && s.sc.away > 0 && s.now >= s.sc.awayAt && s.now < s.sc.awayAt+s.sc.away:
		s.after(0, func() { answer(errSim) })
	case chosen && s.sc.fate == "failed", s.faulty(s.sc.fail):
		s.after(there, func() { answer(errSim) })
	case chosen && s.sc.fate == "lost", write && s.faulty(s.sc.lost):
		s.after(there, apply)
		s.after(there+back, func() { answer(errSim) })
	case chosen && s.sc.fate == "late", write && s.faulty(s.sc.late):
		s.after(there, func() { answer(errSim) })
		s.after(there+s.upTo(40*time.Second), apply)
	default:
		s.after(there, func() {
			apply()
			s.after(back, func() { answer(nil) })
		})
	}
}

func (c *simConn) do(o op) {
	s, m, ctx := c.w.s, c.m, context.Background()
	owner, lease, asked := c.w.owner, s.sc.policy().Lease, c.w.local()
	now := c.w.local
	switch o := o.(type) {
	case opPulse:
		var pulse core.Pulse
		c.call(true, func() { pulse, _ = c.source.Heartbeat(ctx, owner, nil, lease*2/3) },
			func(err error) { m.pulsed(pulse, max(s.sc.partitions, 1), err, now()) })
	case opAcquire:
		var got []core.Acquired
		c.call(true, func() { got = c.acquire(o.max, lease) },
			func(err error) {
				if err != nil {
					got = nil
				}
				m.acquired(got, err, asked, now())
			})
	case opRenew:
		var kept []core.Lease
		c.call(true, func() { kept, _ = c.source.Renew(ctx, owner, o.leases, lease) },
			func(err error) { m.renewed(o.leases, kept, err, asked, now()) })
	case opRelease:
		var refused error
		c.call(true, func() { refused = c.release(o.p) },
			func(err error) { m.released(o.p, errors.Join(err, refused)) })
	case opBlocking:
		var blocks []core.Block
		c.readAhead(o.p)
		c.call(false, func() { blocks, _ = c.source.Blocking(ctx, o.p.lease.Part, s.sc.block) },
			func(err error) { m.blocking(o.p, blocks, err, now()) })
	case opFetch:
		c.lanes[o.lane]++
		var pages []core.Page
		c.call(false, func() { pages = c.fetch(o.reqs) },
			func(err error) {
				if err != nil {
					pages = nil
				}
				c.lanes[o.lane]--
				m.fetched(o, pages, err, now())
			})
	case opStep:
		c.doStep(o)
	case opDeliver:
		c.deliver(o)
	case opCancel:
		if call := c.running[o.b]; call != nil {
			s.after(s.upTo(50*time.Millisecond), func() { call.end(answer{failure: cancelled, err: errCancelled}) })
		}
	}
}

func (c *simConn) doStep(o opStep) {
	c.lanes[o.lane]++
	var refused error
	var held map[core.Lease]bool
	c.call(true, func() { held, refused = c.held(o.changes), c.step(o.changes) }, func(err error) {
		if err == nil {
			err = refused
		}
		c.w.s.groups.note(len(o.parts), err)
		doubted := map[*partition]bool{}
		for _, p := range o.parts {
			doubted[p] = p.suspended || p.lost
		}
		c.lanes[o.lane]--
		c.m.stepped(o, err, c.w.local())
		for _, p := range o.parts {
			if p.suspended && !doubted[p] && held[p.lease] {
				c.w.s.fail("G5: the lease of partition %d is in doubt for that of another one", p.lease.Part)
			}
		}
	})
}
