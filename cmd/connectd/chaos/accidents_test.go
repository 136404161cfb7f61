//go:build linux

package chaos

import (
	"fmt"
	"time"
)

// what is a kind of accident, as the report names it.
type what string

const (
	daemonKill what = "daemon: kill -9"
	daemonTerm what = "daemon: SIGTERM"
	daemonStop what = "daemon: SIGSTOP beyond its lease"
	sinkKill   what = "sink's process: kill -9"
	sinkStop   what = "sink's process: SIGSTOP"

	sourceReset what = "daemon–database: reset"
	sourceDown  what = "daemon–database: refused"
	sourceHold  what = "daemon–database: half-open, late"
	sourceMute  what = "daemon–database: half-open, answers lost"
	sourceDelay what = "daemon–database: delayed"

	targetReset what = "sink–destination: reset"
	targetDown  what = "sink–destination: refused"
	targetHold  what = "sink–destination: half-open, late"
	targetMute  what = "sink–destination: half-open, answers lost"
	targetDelay what = "sink–destination: delayed"

	databaseKill    what = "database: kill -9"
	databaseRestart what = "database: restart"
	targetSlow      what = "destination: slow"
	targetRefuse    what = "destination: answers 503"
	diskFull        what = "destination: disk full"

	// machineStall is no accident of the schedule: see stalls.
	machineStall what = "machine or database: stood still by itself"
)

// everybody is the slot of what happens to all daemons at once.
const everybody = -1

// accident is something that breaks for a while. The schedule says when; what ran it notes when it really was.
type accident struct {
	what  what
	slot  int           // the daemon's, or everybody
	at    time.Duration // from the start
	lasts time.Duration

	began, ended time.Time
}

func (a accident) String() string {
	whom := "all"
	if a.slot != everybody {
		whom = fmt.Sprint("daemon ", a.slot)
	}
	return fmt.Sprintf("%7.3fs %s (%s, for %v)", a.at.Seconds(), a.what, whom, a.lasts)
}

// cost is how many repeats the accident can be the cause of: what was on its way, and after that the single rows that a
// daemon tries a broken destination with, which it does no faster than its requests run out. What ends in good order, is
// only slow, or says no, repeats nothing.
func (a accident) cost(l limits) int {
	daemons := 1
	if a.slot == everybody {
		daemons = l.daemons
	}
	tries := 1 + int(a.ended.Sub(a.began)/requestTimeout)
	switch a.what {
	case daemonTerm, sourceDelay, targetDelay, targetSlow, targetRefuse, diskFull:
		return 0
	case sinkStop, targetReset, targetDown, targetHold, targetMute:
		return daemons * (l.batch() + tries)
	default:
		return daemons * l.batch()
	}
}
