package engine

import "time"

// A call of the source costs about the same for one partition as for many that have little to say, and thousands of small
// ones a second cost whoever else uses the database. So reads and steps with few rows are calls for several partitions, and
// few of them run at a time: what becomes ready while they do goes together in the next. A partition that fills a call by
// itself does not wait for the others.
const (
	groupParts = 64  // partitions of one call, at most
	fullCall   = 128 // rows that fill a call
	lightCalls = 2   // calls of one kind with fewer rows that may run at once
	fullCalls  = 8   // calls of one kind with so many rows, and long reads, that may run at once
)

// lanes counts the running calls of one kind. Calls for a partition that goes alone after a failure are in neither: while
// they wait for what it was that failed, the others go on.
type lanes struct{ light, full int }

// group is the partitions that one call is for. A call that is not over within its deadline fails, and each of its partitions
// then goes alone; so one that is slow holds up the others for one deadline at most.
type group struct {
	parts []*partition
	lane  *int // counts the call while it runs; nil: it is not counted
	began time.Duration
}

// begun notes that the group's call begins.
func (m *machine) begun(g group, now time.Duration) group {
	if g.lane != nil {
		*g.lane++
	}
	g.began = now
	return g
}

// ended notes that the group's call is over.
func (g group) ended() {
	if g.lane != nil {
		*g.lane--
	}
}
