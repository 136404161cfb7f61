//go:build linux

package chaos

import (
	"fmt"
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
	const soon, while = 500 * time.Millisecond, 2 * time.Second
	list := []draw{
		{daemonKill, 6, 100 * time.Millisecond, time.Second},
		{daemonTerm, 4, 100 * time.Millisecond, time.Second},
		{daemonStop, 4, lease + soon, lease + while},
	}
	if p.sink != "killer" { // its rows do that
		list = append(list, draw{sinkKill, 5, 0, 0}, draw{sinkStop, 3, soon, callTimeout + time.Second})
	}
	if p.served() {
		list = append(list,
			draw{databaseKill, 1, 0, soon}, draw{databaseRestart, 1, 0, soon},
			draw{sourceReset, 2, 0, 0}, draw{sourceDown, 1, soon, while}, draw{sourceDelay, 1, soon, while},
			draw{sourceHold, 2, soon, lease + while}, draw{sourceMute, 2, soon, lease + while})
	}
	if p.clock != 0 {
		list = append(list, draw{clockForward, 3, 0, 0}, draw{clockBack, 3, soon, while})
	}
	if p.sink == "file" {
		return append(list, draw{diskFull, 2, soon, while})
	}
	list = append(list,
		draw{targetReset, 2, 0, 0}, draw{targetDown, 1, soon, while}, draw{targetDelay, 1, soon, while},
		draw{targetHold, 2, soon, requestTimeout + time.Second}, draw{targetMute, 2, soon, requestTimeout + time.Second},
		draw{targetSlow, 2, soon, while}, draw{targetRefuse, 2, soon, while})
	if p.sink == "kafka" || p.sink == "rabbitmq" {
		list = append(list, draw{targetKill, 2, 0, soon}, draw{targetRestart, 1, 0, soon})
	}
	return list
}

// Every so often a daemon is killed in the calm: all are at work and nothing is broken, for calmBefore, and then nothing
// else until calmTime, so that it is seen how soon others take over when that is all that happens.
const (
	calmEvery  = 15 * time.Second
	calmWait   = 8 * time.Second // at most, for daemons that have not found their sink's server yet
	calmBefore = 1500 * time.Millisecond
	calmTime   = lease + 1500*time.Millisecond
)

// apart is how long what was mended is left alone.
const apart = 300 * time.Millisecond

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
	calm := calmEvery
	for at := time.Duration(0); ; {
		at += 200*time.Millisecond + upTo(dice, 1200*time.Millisecond)
		d := draws[all[dice.IntN(len(all))]]
		a := accident{what: d.what, slot: dice.IntN(p.daemons), at: at, lasts: d.min + upTo(dice, d.max-d.min+1)}
		forAll := dice.IntN(4) == 0
		switch {
		case at >= calm:
			a.what, a.lasts, a.calm = daemonKill, calmTime, true
			for _, until := range busy {
				a.at = max(a.at, until+calmBefore)
			}
			at = a.at + calmTime
			calm = at + calmEvery
		case a.ofServers() || forAll && a.ofNetwork():
			a.slot = everybody
		}
		if a.at >= total {
			return list
		}
		parts := a.parts(p.daemons)
		if slices.ContainsFunc(parts, func(part string) bool { return busy[part] > a.at }) {
			continue
		}
		for _, part := range parts {
			busy[part] = a.at + a.lasts + apart
		}
		list = append(list, a)
	}
}

// ofServers says that there is one of what breaks, for all daemons.
func (a accident) ofServers() bool { return a.server() != "" }

func (a accident) server() string {
	switch a.what {
	case databaseKill, databaseRestart, clockForward, clockBack:
		return "database"
	case targetKill, targetRestart, targetSlow, targetRefuse, diskFull:
		return "destination"
	default:
		return ""
	}
}

// ofNetwork says that it breaks connections.
func (a accident) ofNetwork() bool { _, _, is := a.breaks(); return is }

// parts names what is broken, in an order in which two accidents cannot wait for each other.
func (a accident) parts(daemons int) (list []string) {
	if s := a.server(); s != "" {
		return []string{s}
	}
	part := "process"
	if s, _, is := a.breaks(); is {
		part = string(s)
	}
	for slot := range daemons {
		if a.slot == slot || a.slot == everybody {
			list = append(list, fmt.Sprint(part, slot))
		}
	}
	return list
}

// allParts are those of all accidents, in the same order.
func allParts(daemons int) (list []string) {
	for _, w := range []what{databaseKill, targetKill, daemonKill, sourceReset, targetReset} {
		list = append(list, accident{what: w, slot: everybody}.parts(daemons)...)
	}
	slices.Sort(list)
	return list
}

// upTo is a time below the limit.
func upTo(dice *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(dice.Int64N(int64(limit)))
}
