//go:build linux

package chaos

import (
	"slices"
	"testing"
	"time"
)

// TestScheduleIsRepeatable: the same seed breaks the same things at the same times, another one does not, and each kind of
// accident that a pair can have comes up in a few minutes.
func TestScheduleIsRepeatable(t *testing.T) {
	for _, p := range allPairs() {
		first := p.schedule(7, 5*time.Minute)
		if again := p.schedule(7, 5*time.Minute); !slices.Equal(first, again) {
			t.Errorf("%v: two schedules of one seed differ", p)
		}
		if other := p.schedule(8, 5*time.Minute); slices.Equal(first, other) {
			t.Errorf("%v: two seeds have one schedule", p)
		}
		if short := p.schedule(7, time.Minute); !slices.Equal(short, first[:len(short)]) {
			t.Errorf("%v: a shorter run is not the beginning of a longer one", p)
		}
		for _, d := range p.draws() {
			if !slices.ContainsFunc(first, func(a accident) bool { return a.what == d.what }) {
				t.Errorf("%v: %q never comes up", p, d.what)
			}
		}
	}
}

// TestScheduleMendsBeforeItBreaksAgain: nothing is broken twice at a time, and no sink is killed so often that its daemon
// leaves it alone.
func TestScheduleMendsBeforeItBreaksAgain(t *testing.T) {
	for _, p := range allPairs() {
		for seed := range uint64(50) {
			busy := map[string]accident{}
			kills := map[int]int{}
			for _, a := range p.schedule(seed, 5*time.Minute) {
				for _, part := range a.parts(p.daemons) {
					if before, was := busy[part]; was && a.at <= before.at+before.lasts {
						t.Fatalf("%v, seed %d: %v during %v", p, seed, a, before)
					}
					busy[part] = a
				}
				switch a.what {
				case sinkKill:
					if kills[a.slot]++; kills[a.slot] > maxSinkKills {
						t.Fatalf("%v, seed %d: %v is kill %d of the sink of one daemon", p, seed, a, kills[a.slot])
					}
				case daemonKill, daemonTerm:
					kills[a.slot] = 0
				}
			}
		}
	}
}
