package engine

import (
	"math"
	"time"

	"github.com/connectd/connectd/core"
)

const carefulGroup = 32 // rows at two crashes that are sent together

// suspect reports whether a row has been in flight at so many crashes that it is sent carefully, and whether by itself.
func suspect(e *entry) (careful, single bool) { return e.row.Crashes >= 2, e.row.Crashes >= 3 }

// form makes the next batch of p, or nil. While the valve is closed its one batch is made of rows that never crashed
// anything and are in no trouble, if there are any: a record that hangs or fails every call must not be the probe that
// keeps the valve closed.
func (m *machine) form(p *partition, now time.Duration) *batch {
	if ok, at := m.valve.open(now); !ok || m.inFlight >= m.slots() || m.gate.quiet(m) && !m.off.gateShared {
		if !ok && at > now {
			m.at(at, now)
		}
		return nil
	}
	b := &batch{p: p}
	if m.valve.reason != "" {
		m.pick(b, func(e *entry) bool { return e.row.Crashes == 0 && p.level(e) == 0 })
	}
	if len(b.entries) == 0 {
		if m.valve.reason != "" && !m.owed && !m.off.gate {
			if _, first := m.nextSuspect(); first != nil {
				return nil // by turns, or rows that fail their calls would keep the valve closed before it for ever
			}
		}
		if m.valve.reason != "" {
			least := m.leastTrouble(p)
			m.pick(b, func(e *entry) bool { return e.row.Crashes <= 1 && p.calls(e) <= least })
		}
	}
	if len(b.entries) == 0 {
		m.pick(b, func(e *entry) bool { return e.row.Crashes <= 1 || m.off.gate })
	}
	if len(b.entries) == 0 {
		return nil
	}
	m.begin(b)
	return b
}

// choice is what becomes of a row that is offered for a batch.
type choice int

const (
	comes  choice = iota // it comes along, and the next row of its key is offered
	stays                // it does not, and so no later row of its key does
	enough               // no further row is looked at
)

// offer goes through p's rows that could go into a new batch, in seq order: rows that are free, whose key has no row in a
// batch, and all of whose earlier free rows of the key came along. So a batch never holds a key's row before an earlier one.
func (m *machine) offer(p *partition, choose func(*entry) choice) {
	var left map[string]bool // keys of which a row stays
	for _, e := range p.order {
		if e.gone || e.batch != nil {
			continue
		}
		key, keyed := m.key(&e.row)
		if keyed && (m.busy(p, key) || left[key]) {
			continue
		}
		switch choose(e) {
		case enough:
			return
		case stays:
			if !keyed {
				continue
			}
			if left == nil {
				left = map[string]bool{}
			}
			left[key] = true
		}
	}
}

// pick fills a normal batch with rows that may come along and are in the same trouble.
func (m *machine) pick(b *batch, may func(*entry) bool) {
	limit, bytes := m.usualRecords(), m.maxBytes()
	if m.valve.reason != "" {
		limit = m.valve.size(m.maxRecords())
	}
	level := 0
	m.offer(b.p, func(e *entry) choice {
		empty := len(b.entries) == 0
		switch {
		case !empty && len(b.entries) >= limit:
			return enough
		case !may(e) || m.unsendable(e) != "" || !empty && b.p.level(e) != level:
			return stays
		case empty:
			level = b.p.level(e)
			b.lone = level == alone
			limit = min(limit, max(m.maxRecords()>>(3*level), 1))
		case bytes < e.size:
			return enough
		}
		bytes -= e.size
		b.entries = append(b.entries, e)
		return comes
	})
}

// alone is the level of trouble from which a row is sent alone: batches of 500 become 62, then 7, then 1.
const alone = 3

// leastTrouble is how many calls failed with the row that was tried least, of those that are the first of their key. Such
// rows are the first to probe a closed valve: one that works opens it, and those that fail every call would come before
// it for ever if they came by seq.
func (m *machine) leastTrouble(p *partition) int {
	least := math.MaxInt
	m.offer(p, func(e *entry) choice {
		if e.row.Crashes <= 1 {
			least = min(least, p.calls(e))
		}
		return stays
	})
	return least
}

// calls is how many calls in a row failed as a whole with e, and level how much trouble that is: 0 none, alone the most.
func (p *partition) calls(e *entry) int { return p.trouble[e.row.Record.Seq].calls }
func (p *partition) level(e *entry) int { return min(p.calls(e), alone) }

// nextSuspect returns a row that could be sent now, carefully: of those that may be, the one with which the fewest calls
// failed as a whole, so that one which fails every call is not in the way of the others. While the sink is on trial, rows
// whose next crash would be their last come after all others: one of those may be delivered and clear the sink.
func (m *machine) nextSuspect() (*partition, *entry) {
	limits := []int{core.MaxCrashes - 2, math.MaxInt}
	if !m.valve.onTrial {
		limits = limits[1:]
	}
	for _, most := range limits {
		var in *partition
		var first *entry
		for _, p := range m.parts {
			if e := m.firstSuspect(p, most); e != nil && (first == nil || p.calls(e) < in.calls(first)) {
				in, first = p, e
			}
		}
		if first != nil {
			return in, first
		}
	}
	return nil, nil
}

// firstSuspect returns the row of p, of at most so many crashes, that goes next of those that could be sent carefully.
func (m *machine) firstSuspect(p *partition, most int) *entry {
	if p.suspects == 0 || p.suspended || p.draining || p.lost {
		return nil
	}
	var first *entry
	m.offer(p, func(e *entry) choice {
		careful, _ := suspect(e)
		if careful && e.row.Crashes <= most && m.unsendable(e) == "" && (first == nil || p.calls(e) < p.calls(first)) {
			first = e
		}
		return stays
	})
	return first
}

// formCareful makes the careful batch that begins with first: that row by itself, or, at two crashes, with later ones that
// stand there too and are in the same trouble.
func (m *machine) formCareful(p *partition, first *entry) *batch {
	b := &batch{p: p, careful: true, entries: []*entry{first}}
	if _, single := suspect(first); !single {
		bytes := m.maxBytes() - first.size
		limit := min(max(carefulGroup>>(3*p.level(first)), 1), m.maxRecords())
		m.offer(p, func(e *entry) choice {
			alike := e.row.Crashes == 2 && p.level(e) == p.level(first) && e.row.Record.Seq > first.row.Record.Seq
			switch {
			case len(b.entries) >= limit:
				return enough
			case e == first:
				return comes
			case !alike || m.unsendable(e) != "" || bytes < e.size:
				return stays
			}
			bytes -= e.size
			b.entries = append(b.entries, e)
			return comes
		})
	}
	m.begin(b)
	m.careful = b
	return b
}

// refuse makes a batch of the rows at their key's front that can never be sent, or nil.
func (m *machine) refuse(p *partition) *batch {
	b := &batch{p: p, refused: true}
	m.offer(p, func(e *entry) choice {
		switch {
		case len(b.entries) == m.maxRecords():
			return enough
		case m.unsendable(e) == "":
			return stays
		}
		b.entries = append(b.entries, e)
		return comes
	})
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
