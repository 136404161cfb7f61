package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

// simGroups counts the steps of several partitions by what came of them.
type simGroups struct{ done, refused, unknown int }

func (g *simGroups) note(parts int, err error) {
	switch {
	case parts < 2:
	case err == nil:
		g.done++
	case errors.Is(err, core.ErrLeaseNotOwned):
		g.refused++
	default:
		g.unknown++
	}
}

// checkSleep looks at a machine that has nothing to do until at. Each lane counts the calls that run, or a call that is over
// keeps its place for ever. And the machine has told when there is something to do: asked some time before that, with nothing
// reported since, it does nothing, or it would have slept while there was work.
func (c *simConn) checkSleep(at time.Duration) {
	s, m, n := c.w.s, c.m, c.wakeup
	for name, lane := range map[string]*int{"light reads": &m.reads.light, "full reads": &m.reads.full, "light steps": &m.steps.light, "full steps": &m.steps.full} {
		if *lane != c.lanes[lane] {
			s.fail("%s: %d are counted, %d run", name, *lane, c.lanes[lane])
		}
	}
	early := s.upTo(min(at-c.w.local(), 2*time.Minute) - 1)
	s.after(early, func() {
		if c.wakeup != n || c.w.dead || c.w.paused || s.violation != nil {
			return
		}
		if ops, _ := m.next(c.w.local()); len(ops) > 0 {
			s.fail("%v before its alarm the machine has something to do: %T", at-c.w.local(), ops[0])
		}
	})
}

// TestGroupsHappen wants the simulation to have what its rules about groups are for.
func TestGroupsHappen(t *testing.T) {
	var all simGroups
	for _, sc := range scenarios() {
		for seed := range uint64(20) {
			s := newSim(sc, seed+1)
			if err := s.run(); err != nil {
				t.Fatalf("%s, seed %d: %v", sc.name, seed+1, err)
			}
			all.done += s.groups.done
			all.refused += s.groups.refused
			all.unknown += s.groups.unknown
		}
	}
	t.Logf("groups: %+v", all)
	if all.done < 1000 || all.refused < 10 || all.unknown < 100 {
		t.Errorf("few groups: %+v", all)
	}
}
