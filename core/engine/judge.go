package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/connectd/connectd/core"
)

// verdict is what the engine makes of one record's outcome.
type verdict struct {
	write      bool // settlement is written; else the row is as if it had not been sent
	settlement core.Settlement
	leaves     bool          // the row leaves memory when the settlement has committed
	until      time.Duration // if not 0, its key waits until then; never: until a reading from the start lets it go
}

// judge turns a batch's answer into verdicts, one for each entry.
func (m *machine) judge(b *batch, now time.Duration) []verdict {
	verdicts := make([]verdict, len(b.entries))
	for i, e := range b.entries {
		switch {
		case b.refused:
			reason := m.unsendable(e)
			text := e.row.Invalid
			if reason == core.ReasonTooLarge {
				text = fmt.Sprintf("the record has %d bytes, the sink takes %d", e.size, m.limits.MaxRecordBytes)
			}
			f := m.fail(b, reason, text)
			f.Unsent = true
			verdicts[i] = m.dead(e, f)
		case b.ans.failure == notSent || b.ans.failure == withdrawn:
		case b.ans.failure != noFailure:
			verdicts[i] = m.uncertain(b, e, now)
		default:
			delete(b.p.trouble, e.row.Record.Seq)
			m.waits.remove(e.row.Record.Seq)
			verdicts[i] = m.judgeOutcome(b, e, b.ans.outcomes[i], now)
		}
	}
	return verdicts
}

func (m *machine) judgeOutcome(b *batch, e *entry, o core.Outcome, now time.Duration) verdict {
	if o.Kind == core.Unspecified {
		o.Kind, o.Unknown = core.Retryable, true
	}
	switch {
	case o.Kind == core.Delivered:
		return verdict{write: true, leaves: true, settlement: core.Settlement{
			Seq: e.row.Record.Seq, Deliveries: e.row.Deliveries, State: core.Published,
			Attempts: e.row.Attempts, Crashes: e.row.Crashes, Receipt: m.receipt(e, o),
		}}
	case o.Kind == core.NotAttempted:
		return verdict{}
	case o.Scope == core.ScopeSink && o.Unknown:
		v := m.uncertain(b, e, now)
		if f := v.settlement.Failure; f != nil { // the call did not fail: it is the sink that has a reason
			f.Message = core.CleanText(fmt.Sprintf("%s: %s", orElse(o.Code, o.Kind.String()), o.Message))
		}
		return v
	case o.Kind == core.Throttled && (o.Scope == core.ScopeKey || o.Scope == core.ScopeRecord):
		wait := min(max(o.RetryAfter, valveBase), throttleLimit)
		until := now + around(m.rand, wait)
		m.waits.add(e.row.Record.Seq, o, until, now)
		return verdict{leaves: true, until: until}
	case o.Kind == core.Throttled || o.Scope == core.ScopeSink:
		return verdict{}
	case o.Kind == core.Permanent:
		return m.dead(e, m.fail(b, orElse(o.Code, "permanent"), o.Message))
	default:
		return m.retry(b, e, o, now)
	}
}

// receipt is the consumer of a delivered record that the sink calls completed: the connector. There is none for an id that a
// receipt cannot have, which must not keep the delivery from being written.
func (m *machine) receipt(e *entry, o core.Outcome) string {
	r := core.Receipt{Command: e.row.Record.ID, Consumer: m.name, Status: core.ReceiptDone}
	if !o.Completed || r.Check() != nil {
		return ""
	}
	return m.name
}

// uncertain is the verdict on a row that may or may not have been sent: the next send must know of this one.
func (m *machine) uncertain(b *batch, e *entry, now time.Duration) verdict {
	if m.off.settleUnknown {
		return verdict{}
	}
	v := verdict{write: true, settlement: core.Settlement{
		Seq: e.row.Record.Seq, Deliveries: e.row.Deliveries, State: core.Pending,
		Attempts: e.row.Attempts, Crashes: e.row.Crashes, Failure: m.fail(b, "unknown", text(b.ans.err)),
	}}
	if b.ans.failure == unknown && m.inTrouble(b, e, &v, now) {
		delete(b.p.trouble, e.row.Record.Seq)
		v.until = 0
		v.settlement.Failure.Code = core.ReasonGaveUp
		v.settlement.Failure.Message = core.CleanText("every call with it fails: " + text(b.ans.err))
		return m.bury(v)
	}
	crashed := b.ans.failure == died || b.ans.failure == hung
	if crashed {
		v.settlement.Crashes++
		v.settlement.Failure.Code = core.ReasonCrash
		if v.settlement.Crashes >= core.MaxCrashes {
			if m.valve.spares(e.row.Crashes) {
				// Something was buried so and nothing delivered since: it may be the sink that dies on everything.
				// It waits outside memory, where it would be in the way of rows that might clear the sink.
				v.settlement.Crashes = e.row.Crashes
				v.leaves, v.until = true, now+quarantine
			} else {
				m.valve.buried(e.row.Crashes)
				return m.bury(v)
			}
		}
	}
	if m.policy.HoldUncertain {
		v.settlement.State = core.Held
		if !crashed {
			v.settlement.Failure.Code = core.ReasonUncertain
		}
		v.leaves, v.until = true, never
	}
	return v
}

// noProgress is how long nothing may have been delivered before a row's failed calls are held against the sink.
const noProgress = 10 * time.Minute

// inTrouble notes that a call failed as a whole with this row. It may be the row's fault: it goes in ever smaller company,
// and at last alone after a pause outside memory, so that a record that fails every call stops no other. If it is the
// sink's fault, the first answer about the row clears it. It reports whether the row is given up: every call with it failed
// for the retry limit, and all that time others were delivered, so an outage is not held against it.
func (m *machine) inTrouble(b *batch, e *entry, v *verdict, now time.Duration) (givenUp bool) {
	seq := e.row.Record.Seq
	t, known := b.p.trouble[seq]
	if !known && len(b.p.trouble) >= maxExclude {
		return false
	}
	t.calls++
	if t.published != m.published || !known {
		t.published, t.progress = m.published, now
	}
	if now-t.progress > noProgress || !known {
		t.since = now
	}
	b.p.trouble[seq] = t
	if t.calls >= alone {
		v.leaves, v.until = true, now+valveBase+jitter(m.rand, valveBase, valveLimit, t.calls)
	}
	limit := m.policy.Retry.GiveUpAfter
	return b.lone && limit > 0 && now-t.since >= limit
}

// retry is the verdict on a record that failed and may work later: backoff, or the end when the limits say so.
func (m *machine) retry(b *batch, e *entry, o core.Outcome, now time.Duration) verdict {
	s := core.Settlement{
		Seq: e.row.Record.Seq, Deliveries: e.row.Deliveries, State: core.Pending,
		Attempts: e.row.Attempts + 1, Failure: m.fail(b, orElse(o.Code, "retryable"), o.Message),
	}
	if m.off.resetCrashes {
		s.Crashes = e.row.Crashes
	}
	if o.Unknown && m.policy.HoldUncertain {
		s.State = core.Held
		s.Failure.Code = core.ReasonUncertain
		return verdict{write: true, settlement: s, leaves: true, until: never}
	}
	failing := time.Duration(0)
	if e.row.Attempts > 0 {
		failing = e.row.Failing + (now - e.readAt)
	}
	limits := m.policy.Retry
	if limits.MaxAttempts > 0 && s.Attempts >= limits.MaxAttempts || limits.GiveUpAfter > 0 && failing >= limits.GiveUpAfter {
		last := s.Failure.Code // people look for rows by it
		if s.Failure.Message != "" {
			last += ": " + s.Failure.Message
		}
		s.Failure.Message = core.CleanText(fmt.Sprintf("gave up after %d attempts: %s", s.Attempts, last))
		s.Failure.Code = core.ReasonGaveUp
		return m.bury(verdict{write: true, settlement: s})
	}
	wait := max(jitter(m.rand, limits.Initial, limits.Max, e.row.Attempts), min(o.RetryAfter, throttleLimit), time.Millisecond)
	if limits.GiveUpAfter > 0 {
		wait = min(wait, max(limits.GiveUpAfter-failing, time.Millisecond))
	}
	s.Delay = wait
	return verdict{write: true, settlement: s, leaves: true, until: now + wait}
}

// dead is the verdict on a record that will never work.
func (m *machine) dead(e *entry, f *core.Failure) verdict {
	return m.bury(verdict{write: true, settlement: core.Settlement{
		Seq: e.row.Record.Seq, Deliveries: e.row.Deliveries, Attempts: e.row.Attempts + 1, Failure: f,
	}})
}

func (m *machine) bury(v verdict) verdict {
	v.settlement.State, v.leaves = core.Dead, true
	if m.policy.BlockOnDead {
		v.until = never
	}
	return v
}

// judgeSink draws the conclusions about the sink from a batch's answer.
func (m *machine) judgeSink(b *batch, now time.Duration) {
	switch b.ans.failure {
	case cancelled, withdrawn:
		return
	case died, hung:
		if m.anySpared(b) {
			m.valve.isolate(now, "the sink dies on every record: "+text(b.ans.err))
			m.log.Error("connector quarantined: its sink keeps dying and nothing was delivered in between; "+
				"mend the sink or skip the record", "connector", m.name, "error", text(b.ans.err), "seq", b.entries[0].row.Record.Seq)
			return
		}
		m.closeValve(b, now, 0, valveLimit, text(b.ans.err))
		return
	case unknown, notSent:
		if b.lone && !b.probe && b.ans.failure == unknown {
			return // that row fails every call, and waits by itself
		}
		m.closeValve(b, now, 0, valveLimit, text(b.ans.err))
		return
	}
	var wait time.Duration
	var reason string
	seen := map[core.OutcomeKind]int{}
	others := false // some failure is said to leave other keys alone
	for _, o := range b.ans.outcomes {
		seen[o.Kind]++
		others = others || o.Scope == core.ScopeKey && o.Kind != core.Delivered
		if o.AboutSink() {
			reason = orElse(reason, fmt.Sprintf("%s: %s", orElse(o.Code, o.Kind.String()), o.Message))
			wait = max(wait, o.RetryAfter)
		}
	}
	n := len(b.ans.outcomes)
	switch {
	case reason != "":
		m.closeValve(b, now, wait, valveLimit, reason)
	case seen[core.NotAttempted] == n:
		first := b.ans.outcomes[0]
		m.closeValve(b, now, 0, valveLimit, fmt.Sprintf("the sink attempted none of a batch: %s: %s", orElse(first.Code, first.Kind.String()), first.Message))
	case seen[core.Delivered] == 0 && seen[core.Throttled] == 0 && !others:
		if m.valve.failAlike(m.usualRecords()) || b.probe {
			m.closeValve(b, now, 0, alikeBackoff, "every record fails: "+b.ans.outcomes[0].Message)
		}
	default:
		if seen[core.Delivered] > 0 {
			m.valve.acquit()
		}
		// A batch that left before the valve closed says nothing about the sink after it.
		if m.valve.reason == "" || b.probe {
			m.openValve()
		}
	}
}

// anySpared reports whether the batch holds a row that this crash would bury if the sink were not on trial.
func (m *machine) anySpared(b *batch) bool {
	return slices.ContainsFunc(b.entries, func(e *entry) bool {
		return e.row.Crashes >= core.MaxCrashes-1 && m.valve.spares(e.row.Crashes)
	})
}

func (m *machine) closeValve(b *batch, now, atLeast, limit time.Duration, reason string) {
	if m.valve.reason == "" {
		m.log.Warn("sink gate closed", "connector", m.name, "reason", core.CleanText(reason))
	}
	m.valve.close(m.rand, now, atLeast, limit, core.CleanText(reason), b.probe)
}

func (m *machine) openValve() {
	if m.valve.reason != "" {
		m.log.Info("sink gate open again", "connector", m.name, "was", m.valve.reason)
	}
	m.valve.passed()
}

func (m *machine) fail(b *batch, code, message string) *core.Failure {
	return &core.Failure{Code: core.CleanText(code), Message: core.CleanText(message), Duration: b.ans.took}
}

func errAnswerCount(got, want int) error {
	return fmt.Errorf("the sink answered %d outcomes for %d records", got, want)
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
