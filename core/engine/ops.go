package engine

import (
	"time"

	"github.com/connectd/connectd/core"
)

// An op is something the machine wants done: one call of the source or the sink. Whoever runs the machine does it and
// reports with the machine's method named beside it, exactly once (opCancel apart, which has no report).
type op interface{ isOp() }

type (
	// opPulse: Partitions (while unknown) and Heartbeat → pulsed.
	opPulse struct{ info Status }
	// opAcquire → acquired.
	opAcquire struct{ max int }
	// opRenew → renewed.
	opRenew struct{ leases []core.Lease }
	// opRelease → released.
	opRelease struct{ p *partition }
	// opBlocking → blocking.
	opBlocking struct{ p *partition }
	// opFetch → fetched.
	opFetch struct {
		group
		reqs []core.FetchRequest // one for each partition
	}
	// opStep → stepped.
	opStep struct {
		group
		changes []core.Change // one for each partition
	}
	// opDeliver → delivered. The call must end by deadline and when it is cancelled.
	opDeliver struct {
		b       *batch
		records []core.Record
	}
	// opCancel ends the running call of b early; its answer then has failure cancelled.
	opCancel struct{ b *batch }
)

func (opPulse) isOp()    {}
func (opAcquire) isOp()  {}
func (opRenew) isOp()    {}
func (opRelease) isOp()  {}
func (opBlocking) isOp() {}
func (opFetch) isOp()    {}
func (opStep) isOp()     {}
func (opDeliver) isOp()  {}
func (opCancel) isOp()   {}

// failure says how a Deliver call failed as a whole.
type failure int

const (
	noFailure failure = iota // there are outcomes
	notSent                  // nothing left: settled as not_attempted
	unknown                  // anything may have happened
	died                     // unknown, and the sink's process ended: counts a crash
	hung                     // unknown, timed out while Health answered before and after: counts a crash
	cancelled                // unknown, by our own cancel: says nothing about the sink
	withdrawn                // not sent: cancelled before it left; says nothing about the sink
)

// answer is what came of one Deliver call.
type answer struct {
	failure  failure
	err      error
	outcomes []core.Outcome // one for each record when failure is noFailure
	took     time.Duration
}
