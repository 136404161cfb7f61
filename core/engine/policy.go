package engine

import (
	"fmt"
	"time"

	"github.com/connectd/connectd/core"
)

// Policy is how one connector delivers. DefaultPolicy gives the defaults; Validate names the first field that is off.
type Policy struct {
	// Ordered keeps the order of each key; without it records go as they come and a key means nothing.
	Ordered bool
	// MaxRecords and MaxBytes bound a batch, InFlight the batches on their way at once. MaxRecords and InFlight may be 0:
	// what the sink prefers, else 500 and 8.
	MaxRecords int
	MaxBytes   int64
	InFlight   int
	// Timeout is one Deliver call's deadline.
	Timeout time.Duration
	// Lease is how long a partition stays ours without a renewal; renewed each third of it.
	Lease time.Duration
	// Drain is how long a shutdown waits for calls that run.
	Drain time.Duration
	// Poll bounds the pause between two reads of a partition that find nothing.
	PollMin, PollMax time.Duration
	Retry            Retry
	// BlockOnDead makes a dead row hold back the later rows of its key until a person retries or skips it.
	BlockOnDead bool
	// HoldUncertain puts a row that may have been sent before a person instead of sending it again.
	HoldUncertain bool
}

// Retry says when a failed record is tried again and when it is given up.
type Retry struct {
	Initial, Max time.Duration // backoff before full jitter: Initial doubles with each attempt up to Max
	GiveUpAfter  time.Duration // since the first counted failure; 0: never
	MaxAttempts  int           // 0: no limit
}

// DefaultPolicy is what a connector does when its YAML says nothing.
func DefaultPolicy() Policy {
	return Policy{
		Ordered: true, MaxBytes: 1 << 20,
		Timeout: 30 * time.Second, Lease: 30 * time.Second, Drain: 15 * time.Second,
		PollMin: 20 * time.Millisecond, PollMax: 500 * time.Millisecond,
		Retry: Retry{Initial: 500 * time.Millisecond, Max: 5 * time.Minute, GiveUpAfter: 24 * time.Hour},
	}
}

// What a batch has and how many are on their way when neither the operator nor the sink has a say.
const (
	usualRecords  = 500
	usualInFlight = 8
)

const (
	mostRecords  = 10_000
	mostInFlight = 1024
)

// settle fills in what the operator left open, and returns how many records an ordinary batch has. A probe of a closed
// valve may grow beyond that, up to MaxRecords, unless the operator has set it.
func (p Policy) settle(prefers core.Preferences) (settled Policy, ordinary int) {
	ordinary = p.MaxRecords
	if p.MaxRecords == 0 {
		p.MaxRecords, ordinary = usualRecords, usualRecords
		if n := prefers.MaxRecords; n > 0 {
			ordinary = min(n, mostRecords)
			p.MaxRecords = max(ordinary, usualRecords)
		}
	}
	if p.InFlight == 0 {
		p.InFlight = usualInFlight
		if n := prefers.InFlight; n > 0 {
			p.InFlight = min(n, mostInFlight)
		}
	}
	return p, ordinary
}

// Validate says which field cannot work and why, with the YAML name of the field.
func (p Policy) Validate() error {
	switch {
	case p.MaxRecords < 0 || p.MaxRecords > mostRecords:
		return fmt.Errorf("batch.max_records is %d, must be 1 to %d", p.MaxRecords, mostRecords)
	case p.MaxBytes < 1 || p.MaxBytes > 64<<20:
		return fmt.Errorf("batch.max_bytes is %d, must be 1 to 64MiB", p.MaxBytes)
	case p.InFlight < 0 || p.InFlight > mostInFlight:
		return fmt.Errorf("in_flight is %d, must be 1 to %d", p.InFlight, mostInFlight)
	case p.Timeout < 10*time.Millisecond || p.Timeout > time.Hour:
		return fmt.Errorf("timeout is %v, must be 10ms to 1h", p.Timeout)
	case p.Lease < time.Second || p.Lease > time.Hour:
		return fmt.Errorf("lease is %v, must be 1s to 1h", p.Lease)
	case p.Drain < 0 || p.Drain > time.Hour:
		return fmt.Errorf("drain is %v, must be 0s to 1h", p.Drain)
	case p.PollMin < time.Millisecond || p.PollMax < p.PollMin || p.PollMax > time.Minute:
		return fmt.Errorf("poll is %v to %v, must be 1ms <= min <= max <= 1m", p.PollMin, p.PollMax)
	case p.Retry.Initial < time.Millisecond || p.Retry.Max < p.Retry.Initial || p.Retry.Max > 7*24*time.Hour:
		return fmt.Errorf("retry is %v to %v, must be 1ms <= initial <= max <= 168h", p.Retry.Initial, p.Retry.Max)
	case p.Retry.GiveUpAfter < 0:
		return fmt.Errorf("retry.give_up_after is %v, must not be negative (0: never)", p.Retry.GiveUpAfter)
	case p.Retry.MaxAttempts < 0:
		return fmt.Errorf("retry.max_attempts is %d, must not be negative (0: no limit)", p.Retry.MaxAttempts)
	}
	return nil
}
