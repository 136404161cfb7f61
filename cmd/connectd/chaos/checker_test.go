//go:build linux

package chaos

import (
	"fmt"
	"slices"
)

// law is one of the things that must hold, whatever broke.
type law struct {
	name  string
	check func(c *checker)
}

// laws are in the order of the guarantees. A send can be late: a daemon or a sink that was stopped, or a connection that
// held bytes back, may let a record through after its partition changed hands. So marks and order are promised
// of sends, not of arrivals: the order of first arrivals holds all the same, since whoever sends a key begins at or
// before its first row that has not arrived.
func laws() []law {
	return []law{
		{"what was committed is in the table", (*checker).kept},
		{"G1: nothing but committed rows arrives", (*checker).onlyCommitted},
		{"G2: every committed row arrives", (*checker).everyCommitted},
		{"G3: what arrives is the row, under its own id", (*checker).identity},
		{"G4: rows of a key arrive in order the first time", (*checker).order},
		{"G6: every send has its own number, and the mark from the second on", (*checker).marks},
		{"G6: the table knows of every send that arrived", (*checker).counted},
		{"a row arrives again only where something broke", (*checker).reasons},
		{"no accident repeats more than was on its way", (*checker).bounds},
		{"G5: partitions of a killed daemon wait no longer than a lease and a poll", (*checker).taken},
		{"G7: only what is wrong is dead, and nothing is held, pending or in flight", (*checker).states},
	}
}

// inGoodOrder is what the run itself watches, before the checker looks at what is left.
const inGoodOrder = "daemons end when they are asked to, with exit code 0, and leave no process; everything settles"

// violation is a law broken, with the row that shows it; "" for none in particular.
type violation struct {
	law, id, text string
}

// checker looks at a history. It is used once.
type checker struct {
	*history
	byID       map[string]fact
	arrived    map[string][]reception // by id, in order
	law        string
	violations []violation
}

// check returns everything that breaks a law.
func (h *history) check() []violation {
	c := &checker{history: h, byID: map[string]fact{}, arrived: map[string][]reception{}}
	for _, f := range h.facts {
		c.byID[f.ID] = f
	}
	for _, r := range h.receptions {
		c.arrived[r.ID] = append(c.arrived[r.ID], r)
	}
	for _, l := range laws() {
		c.law = l.name
		l.check(c)
	}
	return c.violations
}

func (c *checker) fail(id, format string, args ...any) {
	c.violations = append(c.violations, violation{c.law, id, fmt.Sprintf(format, args...)})
}

// isCommitted says whether the row was committed. Where the producer does not know, the table does.
func (c *checker) isCommitted(f fact) bool {
	_, there := c.rows[f.ID]
	return f.End == committed || f.End == unknown && there
}

// kept: else the database lost it, or this harness is wrong about it, and the other laws say nothing.
func (c *checker) kept() {
	for _, f := range c.facts {
		_, there := c.rows[f.ID]
		switch {
		case f.End == committed && !there:
			c.fail(f.ID, "it was committed and is not in the table")
		case f.End == rolledBack && there:
			c.fail(f.ID, "it was rolled back and is in the table")
		}
	}
	for id := range c.rows {
		if _, known := c.byID[id]; !known {
			c.fail(id, "it is in the table and no producer wrote it")
		}
	}
}

func (c *checker) onlyCommitted() {
	for id, list := range c.arrived {
		switch f, known := c.byID[id]; {
		case !known:
			c.fail(id, "it arrived and no producer wrote it")
		case !c.isCommitted(f):
			c.fail(id, "it arrived %d times and was never committed", len(list))
		}
	}
}

func (c *checker) everyCommitted() {
	for _, f := range c.facts {
		if f.Poison == "" && c.isCommitted(f) && len(c.arrived[f.ID]) == 0 {
			c.fail(f.ID, "it never arrived; the table calls it %s", c.rows[f.ID].state)
		}
	}
}

func (c *checker) identity() {
	for _, r := range c.receptions {
		f, known := c.byID[r.ID]
		if known && (r.Key != f.Key || r.N != f.N) {
			c.fail(r.ID, "it arrived as number %d of key %q", r.N, r.Key)
		}
		if known && f.Poison != "" {
			c.fail(r.ID, "it arrived and is %s", f.Poison)
		}
	}
}

func (c *checker) order() {
	seen := map[string]bool{}
	last := map[string]reception{}
	for _, r := range c.receptions {
		if seen[r.ID] || r.Key == "" {
			continue
		}
		seen[r.ID] = true
		if before, any := last[r.Key]; any && r.N < before.N {
			c.fail(r.ID, "it arrived after %s, of the same key", before.ID)
		}
		last[r.Key] = r
	}
}

func (c *checker) marks() {
	for id, list := range c.arrived {
		numbers := map[int]bool{}
		for _, r := range list {
			if r.Marked != (r.Delivery > 1) {
				c.fail(id, "send %d has the mark: %t", r.Delivery, r.Marked)
			}
			if numbers[r.Delivery] {
				c.fail(id, "send %d arrived twice", r.Delivery)
			}
			numbers[r.Delivery] = true
		}
	}
}

func (c *checker) counted() {
	for id, list := range c.arrived {
		known, there := c.rows[id]
		last := slices.MaxFunc(list, func(a, b reception) int { return a.Delivery - b.Delivery })
		if there && last.Delivery > known.deliveries {
			c.fail(id, "send %d arrived and the table counts %d", last.Delivery, known.deliveries)
		}
	}
}

// states: chance may bury a row that did nothing, by killing six times what was sending it. It is a finding all the
// same: a run so unlucky is to be looked at.
func (c *checker) states() {
	for id, r := range c.rows {
		poison := c.byID[id].Poison
		switch {
		case r.state == "published" && poison == "", r.state == "dead" && poison != "":
		default:
			c.fail(id, "it ends %s, poison %q, after %d crashes: %s", r.state, poison, r.crashes, r.lastError)
		}
	}
	for _, batch := range c.announced {
		c.fail("", "still announced: %s", batch)
	}
}
