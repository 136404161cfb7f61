package engine

import (
	"errors"
	"testing"

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
