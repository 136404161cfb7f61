package engine

import (
	"math"
	"time"

	"github.com/connectd/connectd/core"
)

const carefulGroup = 32 // rows at two crashes that are sent together

// suspect reports whether a row has been in flight at so many crashes that it is sent carefully, and whether alone.
func suspect(e *entry) (careful, alone bool) { return e.row.Crashes >= 2, e.row.Crashes >= 3 }

// choice limits what a batch is made of.
type choice struct {
	crashes, fails int // of a row, at most
	rows           int
}

// choices are tried in turn. While the valve is closed its one batch is made of rows that never crashed or failed anything,
// if there are any: a record that hangs, or makes every call fail, must not be the probe that keeps the valve closed.
func (m *machine) choices() []choice {
	rows := m.valve.size(m.maxRecords())
	if m.valve.reason == "" {
		return []choice{{1, 1, rows}}
	}
	return []choice{{0, 0, rows}, {1, 0, rows}, {1, 1, rows}}
}

// form makes the next batch of p, or nil.
func (m *machine) form(p *partition, now time.Duration) *batch {
	if ok, at := m.valve.open(now); !ok || m.inFlight >= m.slots() || m.gate.quiet(m) && !m.off.gateShared {
		if !ok && at > now {
			m.at(at, now)
		}
		return nil
	}
	b := &batch{p: p}
	if m.valve.reason == "" {
		m.pickAlone(b, now)
	}
	for _, most := range m.choices() {
		if len(b.entries) == 0 {
			m.pick(b, most)
		}
	}
	if len(b.entries) == 0 {
		m.pickAlone(b, now)
	}
	if len(b.entries) == 0 {
		return nil
	}
	m.begin(b)
	return b
}

// pickAlone takes a row that was in two calls or more that failed, the one with the fewest: one of them may be what makes every
// call fail. Each has a backoff of its own, and is then sent alone.
func (m *machine) pickAlone(b *batch, now time.Duration) {
	if b.p.failing == 0 {
		return
	}
	var least *entry
	left := map[string]bool{}
	for _, e := range b.p.order {
		key, keyed := m.key(&e.row)
		if e.gone || e.batch != nil || keyed && (m.busy(b.p, key) || left[key]) {
			continue
		}
		if keyed {
			left[key] = true
		}
		if e.fails < 2 || e.row.Crashes > 1 || m.unsendable(e) != "" || !m.at(e.again, now) {
			continue
		}
		if least == nil || e.fails < least.fails {
			least = e
		}
	}
	if least != nil {
		b.entries = append(b.entries, least)
	}
}

// pick fills a normal batch. It takes rows in seq order; a key whose first free row cannot come along is left out whole, so
// that a batch never holds a key's row before an earlier one.
func (m *machine) pick(b *batch, most choice) {
	bytes := m.maxBytes()
	var left map[string]bool
	for _, e := range b.p.order {
		if len(b.entries) == most.rows {
			return
		}
		if e.gone || e.batch != nil {
			continue
		}
		key, keyed := m.key(&e.row)
		if keyed && (m.busy(b.p, key) || left[key]) {
			continue
		}
		if e.row.Crashes > most.crashes && !m.off.gate || e.fails > most.fails || m.unsendable(e) != "" {
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
