//go:build linux

package chaos

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"
)

// draw is a kind of accident that a pair can have, and how often it is drawn beside the others.
type draw struct {
	what     what
	often    int
	min, max time.Duration // how long it lasts
}

// draws are the accidents that a pair can have. The times are long enough to be beyond a lease where that is the point,
// and short enough that a destination that was away is tried again soon after.
func (p pair) draws() []draw {
	list := []draw{
		{daemonKill, 6, 100 * time.Millisecond, time.Second},
		{daemonTerm, 4, 100 * time.Millisecond, time.Second},
		{daemonStop, 4, lease + 500*time.Millisecond, lease + 2*time.Second},
		{sinkKill, 5, 0, 0},
		{sinkStop, 3, 500 * time.Millisecond, callTimeout + time.Second},
	}
	if p.served() {
		list = append(list,
			draw{databaseKill, 1, 0, 500 * time.Millisecond},
			draw{databaseRestart, 1, 0, 500 * time.Millisecond},
			draw{sourceReset, 2, 0, 0},
			draw{sourceDown, 1, 500 * time.Millisecond, 2 * time.Second},
			draw{sourceHold, 2, 500 * time.Millisecond, lease + 2*time.Second},
			draw{sourceMute, 2, 500 * time.Millisecond, lease + 2*time.Second},
			draw{sourceDelay, 1, 500 * time.Millisecond, 2 * time.Second})
	}
	if p.sink == "file" {
		return append(list, draw{diskFull, 2, 500 * time.Millisecond, 2 * time.Second})
	}
	return append(list,
		draw{targetReset, 2, 0, 0},
		draw{targetDown, 1, 500 * time.Millisecond, 2 * time.Second},
		draw{targetHold, 2, 500 * time.Millisecond, requestTimeout + time.Second},
		draw{targetMute, 2, 500 * time.Millisecond, requestTimeout + time.Second},
		draw{targetDelay, 1, 500 * time.Millisecond, 2 * time.Second},
		draw{targetSlow, 2, 500 * time.Millisecond, 2 * time.Second},
		draw{targetRefuse, 2, 500 * time.Millisecond, 2 * time.Second})
}

// maxSinkKills is how many kills of its sink a daemon gets: five that hit a sink before it has delivered anything make
// the daemon leave it alone for minutes, which is another test's subject.
const maxSinkKills = 4

// calmTime follows some kills of a daemon, so that it is seen how soon others take over when that is all that happens.
const calmTime = lease + 1500*time.Millisecond

// schedule is what breaks and when, in the order of time: the same for the same pair, seed and time. Nothing that is
// broken breaks again before it was mended.
func (p pair) schedule(seed uint64, total time.Duration) []accident {
	h := fnv.New64a()
	h.Write([]byte(p.String()))
	dice := rand.New(rand.NewPCG(seed, h.Sum64()))
	var all []what
	draws := map[what]draw{}
	for _, d := range p.draws() {
		draws[d.what] = d
		all = append(all, slices.Repeat([]what{d.what}, d.often)...)
	}
	var list []accident
	busy := map[string]time.Duration{} // part → until when it is broken
	sinkKills := make([]int, p.daemons)
	for at := time.Second; ; {
		at += 100*time.Millisecond + upTo(dice, 600*time.Millisecond)
		if at >= total {
			return list
		}
		d := draws[all[dice.IntN(len(all))]]
		a := accident{what: d.what, slot: dice.IntN(p.daemons), at: at, lasts: d.min + upTo(dice, d.max-d.min+1)}
		if forAll := dice.IntN(4) == 0; a.ofDestination() || forAll && a.ofNetwork() {
			a.slot = everybody
		}
		if a.what == sinkKill && sinkKills[a.slot] == maxSinkKills {
			continue
		}
		if slices.ContainsFunc(a.parts(p.daemons), func(part string) bool { return busy[part] > at }) {
			continue
		}
		calm := a.what == daemonKill && dice.IntN(3) == 0
		if calm { // when all is mended, and until the others have taken over
			for _, until := range busy {
				a.at = max(a.at, until)
			}
			a.lasts = calmTime
			at = a.at + calmTime
		}
		switch a.what {
		case sinkKill:
			sinkKills[a.slot]++
		case daemonKill, daemonTerm:
			sinkKills[a.slot] = 0
		}
		for _, part := range a.parts(p.daemons) {
			busy[part] = a.at + a.lasts + 300*time.Millisecond
		}
		list = append(list, a)
	}
}

// ofDestination says that there is one of what breaks, for all daemons.
func (a accident) ofDestination() bool {
	return slices.Contains([]what{databaseKill, databaseRestart, targetSlow, targetRefuse, diskFull}, a.what)
}

// ofNetwork says that it breaks connections.
func (a accident) ofNetwork() bool { _, _, is := a.breaks(); return is }

// parts names what is broken.
func (a accident) parts(daemons int) (list []string) {
	if a.ofDestination() {
		return []string{string(a.what[:4])} // the database's two kinds exclude each other
	}
	part := "process"
	if s, _, is := a.breaks(); is {
		part = string(s)
	}
	for slot := range daemons {
		if a.slot == slot || a.slot == everybody {
			list = append(list, part+string(rune('0'+slot)))
		}
	}
	return list
}

// upTo is a time below the limit.
func upTo(dice *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(dice.Int64N(int64(limit)))
}
