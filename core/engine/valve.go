package engine

import (
	"math/rand/v2"
	"time"

	"github.com/connectd/connectd/core"
)

// valve is a connector's sink gate. A failure of the sink, as opposed to one of a record, closes it: nothing is
// announced until its backoff has passed, then one batch is let through as a probe, and the answer opens it or closes
// it for longer. So an outage counts no attempts and buries no rows.
type valve struct {
	until    time.Duration // closed before this
	failures int           // closings since it was last open
	probing  bool          // the one batch is on its way
	reason   string        // why it is closed; "" when open
	alike    int           // batches in a row in which every record failed retryably
	// onTrial is set when a row was buried by crashes and nothing was delivered since: a sink that dies on
	// everything must not bury one row after another.
	onTrial bool
	// again counts the rows that crashes buried in that time and had buried before: a person retried them.
	again       int
	quarantined bool
}

const (
	valveBase     = 50 * time.Millisecond
	valveLimit    = 30 * time.Second
	alikeLimit    = 3                // batches that fail alike before the valve closes, if they have
	alikeRecords  = 256              // records or more together
	alikeBackoff  = 10 * time.Second // such failures may be the records' own: look again soon
	quarantine    = 5 * time.Minute
	throttleLimit = time.Hour
)

// open reports whether a batch may be announced now; if not, when to ask again.
func (v *valve) open(now time.Duration) (bool, time.Duration) {
	switch {
	case v.reason == "":
		return true, 0
	case v.probing:
		return false, 0
	default:
		return now >= v.until, v.until
	}
}

// size limits the records of a probe. It is one: that costs little, and a single bad record that fails whole calls cannot
// hide behind others. After batches that failed alike probes double, so that a sink that refuses everything charges few
// records, and many bad ones at the front are passed all the same.
func (v *valve) size(limit int) int {
	if v.alike == 0 {
		return 1
	}
	return min(limit, 1<<min(v.failures-1, 16))
}

// failAlike notes a batch in which every record failed retryably and reports whether there were enough of them to hold
// it against the sink: three batches, or as many as make 256 records, so that bad rows that come due together are
// not taken for an outage where batches are small.
func (v *valve) failAlike(ordinary int) bool {
	v.alike++
	return v.alike >= max(alikeLimit, alikeRecords/ordinary)
}

// began notes that a batch was formed.
func (v *valve) began() { v.probing = v.reason != "" }

// passed opens the valve: the sink works.
func (v *valve) passed() { *v = valve{onTrial: v.onTrial, again: v.again} }

// spares reports whether a row that had so many crashes is not buried for another one. One that a person retried is found
// guilty a second time, which buries nobody new; but not many of them, which may have been retried because the sink is
// thought mended.
func (v *valve) spares(crashes int) bool {
	return v.onTrial && (crashes < core.MaxCrashes || v.again >= core.MaxCrashes)
}

// buried notes that a row was buried for a crash, after so many before.
func (v *valve) buried(crashes int) {
	v.onTrial = true
	if crashes >= core.MaxCrashes {
		v.again++
	}
}

// acquit notes that something was delivered: the sink does not die on everything.
func (v *valve) acquit() { v.onTrial, v.again = false, 0 }

// close shuts the valve for full-jitter backoff, and at least atLeast. probe says that the batch which failed was let
// through while the valve was closed; any other batch that fails then belongs to the failure already known.
func (v *valve) close(r *rand.Rand, now, atLeast, limit time.Duration, reason string, probe bool) {
	atLeast = min(atLeast, throttleLimit)
	if v.reason != "" && !probe {
		v.until = max(v.until, now+atLeast)
		return
	}
	v.until = now + max(jitter(r, valveBase, limit, v.failures), atLeast)
	v.failures++
	v.reason = reason
}

// isolate quarantines the connector: a person is asked; one probe is made now and then.
func (v *valve) isolate(now time.Duration, reason string) {
	v.failures++
	v.quarantined = true
	v.until, v.reason = now+quarantine, reason
}
