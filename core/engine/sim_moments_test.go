package engine

import (
	"fmt"
	"testing"
	"time"
)

// strike does what the scenario chose to the worker that came first.
func (s *sim) strike() {
	if len(s.workers) == 0 {
		return
	}
	w := s.workers[0]
	if s.sc.strike == "kill" {
		w.kill()
		return
	}
	w.pause(s.sc.strike == "stop")
	s.after(2*s.sc.policy().Lease, w.resume)
}

// TestEveryMoment strikes a small run before each of its events in turn, and lets each writing call of the database fail,
// lose its answer or take effect after its repeat: between fetch, announcement, delivery, answer and settlement there is no
// moment that hurts.
// Positions saved after the acknowledgement, and acknowledgements that were lost:
// https://github.com/ConduitIO/conduit/pull/2680, https://github.com/ConduitIO/conduit/pull/2707
func TestEveryMoment(t *testing.T) {
	base := scenario{workers: 1, partitions: 1, rows: 12, keys: 3, unkeyed: 0.2, flaky: 0.3, bad: 0.1, seconds: 6}
	run := func(t *testing.T, sc scenario) {
		t.Helper()
		for seed := uint64(1); seed <= 3; seed++ {
			if err := newSim(sc, seed).run(); err != nil {
				t.Fatalf("seed %d, strike %s at %d, fate %s at %d: %v", seed, sc.strike, sc.strikeAt, sc.fate, sc.fateAt, err)
			}
		}
	}
	const events, writes = 400, 80
	for _, hold := range []bool{false, true} {
		for _, strike := range []string{"kill", "pause", "stop"} {
			for _, workers := range []int{1, 2} {
				t.Run(fmt.Sprintf("%s, %d workers, hold %v", strike, workers, hold), func(t *testing.T) {
					t.Parallel()
					sc := base
					sc.strike, sc.workers, sc.hold = strike, workers, hold
					for sc.strikeAt = 1; sc.strikeAt <= events; sc.strikeAt++ {
						run(t, sc)
					}
				})
			}
		}
		for _, fate := range []string{"failed", "lost", "late"} {
			t.Run(fmt.Sprintf("a call %s, hold %v", fate, hold), func(t *testing.T) {
				t.Parallel()
				sc := base
				sc.fate, sc.hold = fate, hold
				for sc.fateAt = 1; sc.fateAt <= writes; sc.fateAt++ {
					run(t, sc)
					crash := sc
					crash.strike, crash.strikeAt = "kill", 40*sc.fateAt%events
					run(t, crash)
				}
			})
		}
	}
	if n := newSim(base, 1); n.run() != nil || n.steps < events/2 || n.now < time.Second {
		t.Errorf("the base run has %d events: too few for the moments struck", n.steps)
	}
}
