// Package engine is the leasing engine.
package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/connectd/connectd/core"
)

// Connector moves the rows of one source to one sink.
type Connector struct {
	Name   string
	Source core.Source
	// Sink is configured and open; only Deliver and Health are called.
	Sink     core.Sink
	Limits   core.Limits
	Policy   Policy
	Owner    string // this worker: random, new at every process start (NewOwner)
	Gate     *Gate  // one for all connectors of the process (NewGate)
	Log      *slog.Logger
	Observer Observer // nil: silence
	// Info, if set, adds what only the daemon knows (plugin pid, rates) to the heartbeat that operators see; it
	// is called with the connector's own status and returns JSON.
	Info func(Status) []byte
}

// Status is what a connector says of itself.
type Status struct {
	Partitions  int       `json:"partitions"` // of the table
	Owned       int       `json:"owned"`      // leased by this worker
	InFlight    int       `json:"in_flight"`  // batches announced and not settled
	Queued      int       `json:"queued"`     // rows in memory
	Gate        string    `json:"gate"`       // "open", "closed", "quarantined"
	GateReason  string    `json:"gate_reason,omitempty"`
	GateUntil   time.Time `json:"gate_until,omitzero"`
	LastRead    time.Time `json:"last_read,omitzero"` // last successful read of the source, or successful look for leases
	SourceError string    `json:"source_error,omitempty"`
	Delivered   int64     `json:"delivered"` // records since the start
	Draining    bool      `json:"draining,omitempty"`
}

// Run works until ctx is done, then drains and returns nil. It returns an error only when it cannot begin; no fault of
// the source or the sink ends it.
func (c *Connector) Run(ctx context.Context) error { return errors.New("not built yet") }

// Status may be called at any time from any goroutine.
func (c *Connector) Status() Status { return Status{} }

// Stop cuts a drain short: running calls are cancelled and settled as unknown.
func (c *Connector) Stop() {}

// NewOwner returns a random owner id, unique per process start, that begins with the host's name for people's eyes.
func NewOwner() string { return "" }

// Gate is the process's send gate.
type Gate struct{}

// NewGate returns an open gate.
func NewGate() *Gate { return &Gate{} }
