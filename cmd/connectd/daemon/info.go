package daemon

import (
	"encoding/json"
	"time"

	"github.com/connectd/connectd/core/engine"
)

// Info is what a worker publishes with its heartbeat: what only the daemon knows. The commands read it from the
// database, so they need no running daemon and no way to reach one.
type Info struct {
	Host      string    `json:"host"`
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"started_at"`
	Rate      float64   `json:"rate"`    // rows published per second, over the last ten seconds
	Retries   int64     `json:"retries"` // rows put back to be tried again, since the start
	// TakenOver are the leases taken over from workers that let them run out, Lost those that others took while this one
	// held them (lease_not_owned), since the start.
	TakenOver int64         `json:"taken_over"`
	Lost      int64         `json:"lost"`
	Engine    engine.Status `json:"engine"`
	Plugin    InfoPlugin    `json:"plugin"`
	// HeldBack is there when the commit order keeps rows back, as it was seen a few seconds ago.
	HeldBack *InfoHoldup `json:"held_back,omitempty"`
}

// InfoHoldup is the transaction that keeps rows back in Info.
type InfoHoldup struct {
	After  int64     `json:"after"` // rows with a seq above this wait
	Rows   int64     `json:"rows"`
	Holder string    `json:"holder"`
	Since  time.Time `json:"since"`
}

// InfoPlugin is the sink's process in Info.
type InfoPlugin struct {
	State         string  `json:"state"`
	PID           int     `json:"pid,omitempty"`
	Version       string  `json:"version,omitempty"`
	UptimeSeconds float64 `json:"uptime_seconds,omitempty"`
	Restarts      int     `json:"restarts"`
	LastExit      string  `json:"last_exit,omitempty"`
}

// ParseInfo reads what a worker published. Another version may have written more or less.
func ParseInfo(data []byte) (Info, error) {
	var i Info
	if len(data) == 0 {
		return i, nil
	}
	err := json.Unmarshal(data, &i)
	return i, err
}

func (h PluginHealth) info() InfoPlugin {
	return InfoPlugin{
		State: h.State, PID: h.PID, Version: h.Version, UptimeSeconds: h.Uptime.Seconds(), Restarts: h.Restarts, LastExit: h.LastExit,
	}
}
