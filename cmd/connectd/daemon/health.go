package daemon

import (
	"fmt"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
)

// State is where a connector is in its life.
type State string

// The states of a connector in this process.
const (
	Starting State = "starting" // opening its source or waiting for its sink
	Running  State = "running"  // the engine works
	Failed   State = "failed"   // cannot start as things are; tried again every few seconds
	Draining State = "draining" // finishing what runs, then stopped
	Stopped  State = "stopped"
)

// Health is one connector as this process sees it.
type Health struct {
	Name string `json:"name"`
	// Ready means that rows flow, or would if there were any; Reason says why not.
	Ready  bool   `json:"ready"`
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"`

	Engine engine.Status `json:"-"`
	Plugin PluginHealth  `json:"-"`
	// Vacant is how many partitions no worker has leased for longer than two lease times.
	Vacant int `json:"-"`
	// Lag is nil when the table could not be counted lately: a gauge that stands still while the database is
	// away would look like health.
	Lag *core.Lag `json:"-"`
	// Holdup is nil when nothing keeps rows back for the sake of commit order.
	Holdup *core.Holdup `json:"-"`
}

// PluginHealth is the sink's process.
type PluginHealth struct {
	State    string
	Reason   string // why it is not up, for people
	Up       bool
	PID      int
	Uptime   time.Duration
	Restarts int
	Version  string
	LastExit string
}

// judge fills in Ready and Reason of a connector whose engine runs. stale is how long a connector may go without a
// successful look at its source.
func judge(h Health, now time.Time, stale time.Duration) Health {
	switch {
	case h.State != Running:
		if h.Reason == "" {
			h.Reason = "the connector is " + string(h.State)
		}
	case h.Engine.SourceError != "":
		h.Reason = "source: " + h.Engine.SourceError
	case h.Engine.LastRead.IsZero():
		h.Reason = "source: not read yet"
	case now.Sub(h.Engine.LastRead) > stale:
		h.Reason = "source: no successful read for " + now.Sub(h.Engine.LastRead).Round(time.Second).String()
	case h.Vacant > 0:
		h.Reason = fmt.Sprintf("no worker has had a lease on %d of %d partitions for longer than two lease times", h.Vacant, h.Engine.Partitions)
	case !h.Plugin.Up:
		h.Reason = "sink: the process is not ready: " + h.Plugin.describe()
	case h.Engine.Gate != "open":
		h.Reason = "sink: the gate is " + h.Engine.Gate
		if h.Engine.GateReason != "" {
			h.Reason += ": " + h.Engine.GateReason
		}
	default:
		h.Ready = true
	}
	return h
}

// staleAfter is how long a connector may go without a successful look at its source before it is not ready: ten of
// its longest polls, and not less than the time between two looks for leases.
func staleAfter(p engine.Policy) time.Duration {
	return max(10*p.PollMax, p.Lease, 5*time.Second)
}

// describe says how the process is and why.
func (p PluginHealth) describe() string {
	if p.Reason == "" {
		return p.State
	}
	return p.State + ": " + p.Reason
}
