package engine

import (
	"time"

	"github.com/connectd/connectd/core"
)

// Observer is told what happens, for metrics. Its methods are called from the connector's loop and must not block.
type Observer interface {
	// Read is called after each read of the source.
	Read(rows int, took time.Duration, err error)
	// Delivered is called after each call of the sink: records, the outcomes' kinds (nil when the call failed).
	Called(records int, took time.Duration, outcomes map[core.OutcomeKind]int, err error)
	// Settled is called when a settlement has committed: how many rows went to each state, how many of the
	// pending ones will be retried, and for rows that died the reason.
	Settled(states map[core.State]int, retried int, deadBy map[string]int)
	// Stepped is called after each announce-and-settle transaction.
	Stepped(took time.Duration, err error)
	// Acquired, Lost and Released tell of leases. A lost one was settled under by somebody else: lease_not_owned.
	Acquired(takenOver, recovered int)
	Lost(partitions int)
	Released(partitions int)
}

// NoObserver is silence.
type NoObserver struct{}

var _ Observer = NoObserver{}

// Read does nothing.
func (NoObserver) Read(int, time.Duration, error) {}

// Called does nothing.
func (NoObserver) Called(int, time.Duration, map[core.OutcomeKind]int, error) {}

// Settled does nothing.
func (NoObserver) Settled(map[core.State]int, int, map[string]int) {}

// Stepped does nothing.
func (NoObserver) Stepped(time.Duration, error) {}

// Acquired does nothing.
func (NoObserver) Acquired(int, int) {}

// Lost does nothing.
func (NoObserver) Lost(int) {}

// Released does nothing.
func (NoObserver) Released(int) {}
