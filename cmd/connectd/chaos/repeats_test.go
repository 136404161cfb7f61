//go:build linux

package chaos

import (
	"slices"
	"time"
)

// repeat is a send that arrived although an earlier one of its row had. What caused it hit the earlier one, which arrived and
// was not settled.
type repeat struct {
	first, again reception // neighbours by their numbers; the first may arrive last
	slot         int       // of the daemon that sent the first; everybody: unknown
}

// repeats pairs each send that arrived with the next one of its row that did.
func (h *history) repeats() (list []repeat) {
	byID := map[string][]reception{}
	var ids []string
	for _, r := range h.receptions {
		if byID[r.ID] == nil {
			ids = append(ids, r.ID)
		}
		byID[r.ID] = append(byID[r.ID], r)
	}
	for _, id := range ids {
		sends := byID[id]
		slices.SortStableFunc(sends, func(a, b reception) int { return a.Delivery - b.Delivery })
		for i, again := range sends[1:] {
			one := repeat{first: sends[i], again: again, slot: everybody}
			if slot, known := h.senders[tenure{h.rows[id].part, one.first.Epoch}]; known {
				one.slot = slot
			}
			list = append(list, one)
		}
	}
	return list
}

// moment is how exact times of arrival are.
const moment = 20 * time.Millisecond

// causes are the accidents that a repeat may be due to, by their index: those that hit the daemon that sent the first one,
// between its arrival and the time at which it must have been settled, or so soon before that they could still keep it
// from that. What a daemon sends again under the lease that it has is not due to its own end; and nothing that ended before
// a rolling restart in the calm is the cause of what arrived first during it.
func (h *history) causes(r repeat) (list []int) {
	until := r.first.At
	if r.again.At.After(until) {
		until = r.first.At.Add(min(r.again.At.Sub(until), h.fleet.unsettled()))
	}
	calm := h.restart(r.first.At)
	for i, a := range h.accidents {
		switch {
		case a.cost(h.fleet) == 0, a.slot != r.slot && a.slot != everybody && r.slot != everybody:
		case a.began.After(until.Add(moment)), a.ended.Add(a.lingers(h.fleet)).Before(r.first.At):
		case a.what == daemonKill && r.again.Epoch == r.first.Epoch:
		case a.ended.Before(calm):
		default:
			list = append(list, i)
		}
	}
	return list
}

// restart is when the calm of the rolling restart began that was under way then, zero if there was none.
func (h *history) restart(at time.Time) (calm time.Time) {
	for _, a := range h.accidents {
		if a.what == daemonRoll && !at.Before(a.began) && !at.After(a.ended) {
			return a.began.Add(-calmBefore / 2)
		}
	}
	return calm
}

// lingers is how long after the accident a send may still arrive that it keeps from being settled. A daemon whose lease is
// lost behind its back sends until its own deadline; a sink's request ends when its time is over; who is killed sends no more.
func (a accident) lingers(l limits) time.Duration {
	switch a.what {
	case daemonKill, sinkKill, rowCrash:
		return proxyDelay + 10*moment // on its way in a connection
	case sinkStop, rowHang, targetReset, targetDown, targetHold, targetMute, targetKill, targetRestart:
		return requestTimeout
	default:
		return l.lease
	}
}

func (c *checker) reasons() {
	for _, r := range c.repeats() {
		if len(c.causes(r)) == 0 {
			c.fail(r.first.ID, "sends %d and %d arrived %v apart, and nothing broke at daemon %d, which sent the first under epoch %d",
				r.first.Delivery, r.again.Delivery, r.again.At.Sub(r.first.At), r.slot, r.first.Epoch)
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
