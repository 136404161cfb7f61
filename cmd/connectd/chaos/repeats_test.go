//go:build linux

package chaos

import "time"

// repeat is an arrival of a row that had arrived before.
type repeat struct {
	id            string
	before, again time.Time
}

func (h *history) repeats() (list []repeat) {
	last := map[string]time.Time{}
	for _, r := range h.receptions {
		if before, any := last[r.ID]; any {
			list = append(list, repeat{r.ID, before, r.At})
		}
		last[r.ID] = r.At
	}
	return list
}

// causes are the accidents that a repeat may be due to, by their index: those that may cause any and whose time, with
// what lingers after them, was not over when the row arrived first.
func (h *history) causes(r repeat) (list []int) {
	for i, a := range h.accidents {
		over := a.ended.Add(h.fleet.linger())
		if a.cost(h.fleet) > 0 && !a.began.After(r.again) && !over.Before(r.before) {
			list = append(list, i)
		}
	}
	return list
}

func (c *checker) reasons() {
	for _, r := range c.repeats() {
		if len(c.causes(r)) == 0 {
			c.fail(r.id, "it arrived %v after it had arrived, and nothing broke in between", r.again.Sub(r.before))
		}
	}
}

// bounds holds the repeats against what was on its way: of each accident those that nothing else explains, and of all
// accidents together all of them.
func (c *checker) bounds() {
	all, most := c.repeats(), 0
	due := map[int]int{}
	for _, r := range all {
		if causes := c.causes(r); len(causes) == 1 {
			due[causes[0]]++
		}
	}
	for i, a := range c.accidents {
		cost := a.cost(c.fleet)
		most += cost
		if due[i] > cost {
			c.fail("", "%d repeats are due to %v, and %d rows were on their way at most", due[i], a, cost)
		}
	}
	if len(all) > most {
		c.fail("", "%d repeats, and in all accidents together %d rows were on their way at most", len(all), most)
	}
}
