package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"sync"
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
	Prefers  core.Preferences
	Policy   Policy
	Owner    string // this worker: random, new at every process start (NewOwner)
	Gate     *Gate  // one for all connectors of the process (NewGate)
	Log      *slog.Logger
	Observer Observer // nil: silence
	// Info, if set, makes the JSON that operators see beside the heartbeat out of the connector's own status, so
	// that a daemon can add what only it knows (plugin pid, rates).
	Info func(Status) []byte

	mu     sync.Mutex
	status Status
	stop   chan struct{}
}

// Status is what a connector says of itself.
type Status struct {
	Partitions  int       `json:"partitions"` // of the table
	Owned       int       `json:"owned"`      // leased by this worker
	InFlight    int       `json:"in_flight"`  // batches announced and not answered
	Queued      int       `json:"queued"`     // rows in memory
	Gate        string    `json:"gate"`       // "open", "closed", "quarantined"
	GateReason  string    `json:"gate_reason,omitempty"`
	GateUntil   time.Time `json:"gate_until,omitzero"`
	LastRead    time.Time `json:"last_read,omitzero"` // last time the source answered a read or a look for leases, or memory was full
	SourceError string    `json:"source_error,omitempty"`
	Delivered   int64     `json:"delivered"` // records since the start
	Draining    bool      `json:"draining,omitempty"`
	// Waits are rows that the sink asked to have later; MoreWaits, that there are more than are listed.
	Waits     []Wait `json:"waits,omitempty"`
	MoreWaits bool   `json:"more_waits,omitempty"`
}

// NewOwner returns an owner id that no other process start has: the host's name, for people's eyes, and 64 random bits.
func NewOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var b [8]byte
	rand.Read(b[:])
	return fmt.Sprintf("%.40s-%s", host, hex.EncodeToString(b[:]))
}

// Status may be called at any time from any goroutine.
func (c *Connector) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// Stop cuts a drain short, or ends a connector without one: running calls are cancelled and settled as unknown. It may
// be called from any goroutine and more than once.
func (c *Connector) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop == nil {
		c.stop = make(chan struct{})
	}
	select {
	case <-c.stop:
	default:
		close(c.stop)
	}
}

func (c *Connector) stopping() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop == nil {
		c.stop = make(chan struct{})
	}
	return c.stop
}

// Run works until ctx is done, then drains and returns nil. It returns an error only when it cannot begin; no fault of
// the source or the sink ends it. Every goroutine it starts has ended when it returns, unless a source or a sink
// ignores its context for longer than the drain's grace.
func (c *Connector) Run(ctx context.Context) error {
	if err := c.Policy.Validate(); err != nil {
		return fmt.Errorf("connector %s: %w", c.Name, err)
	}
	return newRunner(c).run(ctx)
}
