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
	// The next two the sink notes itself: they are no accidents of the schedule but what some rows do.
	rowCrash what = "sink's process: a row ends it"
	rowHang  what = "sink's process: a row hangs it"

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
	// A jump of the database's clock: forward by clockJump, which is past every lease; or back by the time that the
	// accident lasts, by which a dead daemon's lease lasts longer.
	clockForward what = "database: its clock jumps forward"
	clockBack    what = "database: its clock jumps back"

	targetKill    what = "destination: kill -9"
	targetRestart what = "destination: restart"
	targetSlow    what = "destination: slow"
	targetRefuse  what = "destination: takes nothing"
	diskFull      what = "destination: disk full"

	// These two are no accidents of the schedule either: see stalls.
	machineStall  what = "machine: stood still by itself"
	databaseStall what = "database: a small write took long"
)

const clockJump = time.Minute

// everybody is the slot of what happens to all daemons at once.
const everybody = -1

// accident is something that breaks for a while. The schedule says when; what ran it notes when it really was.
type accident struct {
	what  what
	slot  int           // the daemon's, or everybody
	at    time.Duration // from the start
	lasts time.Duration
	calm  bool // nothing else breaks meanwhile

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
	case daemonTerm, sourceDelay, targetDelay, targetSlow, targetRefuse, diskFull, clockBack:
		return 0
	case sinkStop, targetReset, targetDown, targetHold, targetMute, targetKill, targetRestart:
		return daemons * (l.batch() + tries)
	default:
		return daemons * l.batch()
	}
}

// allKinds are in the order of the report. What comes before the colon belongs together.
func allKinds() []what {
	return []what{daemonKill, daemonTerm, daemonStop, sinkKill, sinkStop, rowCrash, rowHang,
		sourceReset, sourceDown, sourceDelay, sourceHold, sourceMute, targetReset, targetDown, targetDelay, targetHold, targetMute,
		databaseKill, databaseRestart, clockForward, clockBack, databaseStall, targetKill, targetRestart, targetSlow, targetRefuse, diskFull, machineStall}
}
