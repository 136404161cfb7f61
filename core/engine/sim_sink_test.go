package engine

import (
	"strings"
	"time"

	"github.com/connectd/connectd/core"
)

// simCall is one Deliver call on its way.
type simCall struct {
	c       *simConn
	b       *batch
	records []core.Record
	ended   bool // the worker has its answer
	over    bool // nothing takes effect any more
	alone   bool // the only call of its process, of one record, when that died
}

// end gives the worker its answer, once.
func (call *simCall) end(ans answer) {
	if call.ended {
		return
	}
	call.ended = true
	c := call.c
	c.w.when(func() {
		delete(c.running, call.b)
		delete(c.w.calls, call)
		c.m.delivered(call.b, ans, c.w.local())
		c.pump()
	})
}

func (c *simConn) deliver(o opDeliver) {
	s := c.w.s
	call := &simCall{c: c, b: o.b, records: o.records}
	c.running[o.b] = call
	if s.now < c.downTo {
		s.after(s.upTo(time.Millisecond), func() { call.end(answer{failure: notSent, err: core.ErrNotSent}) })
		return
	}
	c.w.calls[call] = true
	for i := range o.records {
		s.noteBegun(c, &o.records[i])
	}
	timeout := s.sc.policy().Timeout
	healthy := !s.outage()
	s.after(timeout, func() {
		if call.ended {
			return
		}
		kind := unknown
		if healthy && !s.outage() || s.sc.hangAlways {
			kind = hung
			call.alone = len(c.w.calls) == 1 && len(call.records) == 1
			s.noteCrash(call)
		}
		call.end(answer{failure: kind, err: errSim})
	})
	there := s.delay()
	switch {
	case s.outage() && !s.sc.refusing:
		if s.chance(0.5) { // else it hangs until its deadline
			s.after(there, func() { call.end(answer{failure: unknown, err: errSim}) })
		}
	case s.faulty(s.sc.lostCall):
		s.after(there, func() { call.end(answer{failure: unknown, err: errSim}) })
	default:
		s.after(there, func() {
			if s.faulty(s.sc.crashCall) {
				c.pluginDies()
			}
			call.effect()
		})
	}
}

func (s *sim) outage() bool {
	return s.sc.outage > 0 && s.now >= s.sc.outageAt && s.now < s.sc.outageAt+s.sc.outage
}

// effect is what happens at the destination: record by record, in order; after one that failed none of its key.
func (call *simCall) effect() {
	c := call.c
	s := c.w.s
	if call.over {
		return
	}
	outcomes := make([]core.Outcome, len(call.records))
	failed := map[string]bool{}
	done := map[rowID]bool{}
	for i := range call.records {
		r := &call.records[i]
		if r.Keyed && failed[r.Key] {
			outcomes[i] = core.Outcome{Kind: core.NotAttempted}
			continue
		}
		outcomes[i] = s.outcome(call, r, done)
		switch outcomes[i].Kind {
		case core.Delivered:
			done[rowID{c.table, r.Seq}] = true
		case core.Unspecified: // it killed something, or hangs
			return
		default:
			failed[r.Key] = r.Keyed
		}
	}
	s.after(s.delay(), func() {
		if !call.ended && !c.w.dead {
			s.noteAnswers(c, call.records, outcomes)
		}
		call.end(answer{outcomes: outcomes})
	})
}

// outcome sends one record.
func (s *sim) outcome(call *simCall, r *core.Record, done map[rowID]bool) core.Outcome {
	c := call.c
	if s.outage() {
		return core.Outcome{Kind: core.Retryable, Code: "down"}
	}
	if s.faulty(s.sc.throttle) {
		scope := core.Scope(s.rng.IntN(4))
		return core.Outcome{Kind: core.Throttled, Scope: scope, RetryAfter: s.upTo(time.Second)}
	}
	s.checkSend(call, r, done)
	kind, _, _ := strings.Cut(r.ID, "-")
	switch {
	case kind == "bad":
		return core.Outcome{Kind: core.Permanent, Code: "bad"}
	case kind == "flaky" && s.chance(s.sc.fails()):
		unknown := s.chance(0.2)
		if unknown && s.chance(0.5) {
			s.confirm(c, r)
		}
		return core.Outcome{Kind: core.Retryable, Unknown: unknown, Scope: s.scope()}
	case kind == "killplugin":
		c.pluginDies()
		return core.Outcome{}
	case kind == "killworker":
		c.w.kill()
		return core.Outcome{}
	case kind == "spoil":
		s.after(s.delay(), func() { call.end(answer{failure: unknown, err: errSim}) })
		return core.Outcome{}
	case kind == "hang":
		return core.Outcome{}
	}
	s.confirm(c, r)
	return core.Outcome{Kind: core.Delivered, Completed: completes(r.Seq)}
}

// completes says which rows the destination calls completed.
func completes(seq int64) bool { return seq%2 == 0 }

// scope is what a failure is said to be about: the record, its key, now and then the sink.
func (s *sim) scope() core.Scope {
	if s.faulty(s.sc.sinkScope) {
		return core.ScopeSink
	}
	return core.Scope(s.rng.IntN(int(core.ScopeSink)))
}

// pluginDies ends the sink's process: its calls fail, and for a while there is none.
func (c *simConn) pluginDies() {
	s := c.w.s
	c.downTo = s.now + s.upTo(300*time.Millisecond)
	for call := range c.w.calls {
		if call.c != c {
			continue
		}
		call.over = true
		call.alone = len(c.w.calls) == 1 && len(call.records) == 1
		s.noteCrash(call)
	}
	for _, b := range sortedCalls(c) {
		call := c.running[b]
		s.after(s.upTo(20*time.Millisecond), func() { call.end(answer{failure: died, err: core.ErrSinkDied}) })
	}
}

// sortedCalls are the running calls in the order of their batches: a map's order is not the seed's.
func sortedCalls(c *simConn) []*batch {
	var bs []*batch
	for b, call := range c.running {
		if c.w.calls[call] {
			bs = append(bs, b)
		}
	}
	sortBatches(bs)
	return bs
}
