//go:build linux

package chaos

import (
	"slices"
	"testing"
	"time"
)

// TestScheduleIsRepeatable: the same seed breaks the same things at the same times, another one does not, and each kind of
// accident that a pair can have comes up in half an hour.
func TestScheduleIsRepeatable(t *testing.T) {
	for _, p := range allPairs() {
		first := p.schedule(7, 30*time.Minute)
		if again := p.schedule(7, 30*time.Minute); !slices.Equal(first, again) {
			t.Errorf("%v: two schedules of one seed differ", p)
		}
		if other := p.schedule(8, 30*time.Minute); slices.Equal(first, other) {
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

// TestScheduleMendsBeforeItBreaksAgain: nothing is broken twice at a time, and some kills are in the calm.
func TestScheduleMendsBeforeItBreaksAgain(t *testing.T) {
	for _, p := range allPairs() {
		for seed := range uint64(50) {
			busy := map[string]accident{}
			calm := 0
			for _, a := range p.schedule(seed, 5*time.Minute) {
				parts := a.parts(p.daemons)
				if a.calm {
					calm++
					parts = allParts(p.daemons)
				}
				for _, part := range parts {
					if before, was := busy[part]; was && a.at <= before.at+before.lasts {
						t.Fatalf("%v, seed %d: %v during %v", p, seed, a, before)
					}
					busy[part] = a
				}
			}
			if calm < 10 {
				t.Errorf("%v, seed %d: %d kills in the calm", p, seed, calm)
			}
		}
	}
}

// TestPartsHaveOneOrder: whoever wants some of them takes them in the order in which one takes who wants all.
func TestPartsHaveOneOrder(t *testing.T) {
	for _, p := range allPairs() {
		all := allParts(p.daemons)
		for _, a := range p.schedule(1, 5*time.Minute) {
			parts := a.parts(p.daemons)
			if !slices.IsSorted(parts) {
				t.Errorf("%v: %v", a, parts)
			}
			for _, part := range parts {
				if !slices.Contains(all, part) {
					t.Errorf("%v: %s is not in %v", a, part, all)
				}
			}
		}
	}
}
