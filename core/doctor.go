package core

import (
	"fmt"
	"time"
)

// Level says how bad a finding is.
type Level string

// The levels. Only a problem keeps a connector from working as promised.
const (
	Fine    Level = "ok"
	Warning Level = "warning"
	Problem Level = "problem"
)

// Finding is one thing that was looked at.
type Finding struct {
	Level Level
	What  string // one short stable word: server, table, index, rights
	Say   string // what was found; without secrets, and perhaps with text from a server
	Do    string // what to do about it, "" when there is nothing to do
}

// Diagnosis is what a source says of the set-up of its outbox table. What could not be looked at, because what it needs is not
// there, has no finding.
type Diagnosis struct {
	Findings []Finding
	// Looked says that the table is there and initialised; only then do the rest tell anything.
	Looked   bool
	Workers  []WorkerInfo
	Leases   []LeaseInfo
	Receipts bool // somebody has stored a receipt
}

// Fine adds what is as it should be.
func (d *Diagnosis) Fine(what, format string, args ...any) {
	d.Findings = append(d.Findings, Finding{Level: Fine, What: what, Say: fmt.Sprintf(format, args...)})
}

// Warn adds what works and should be otherwise.
func (d *Diagnosis) Warn(what, say, do string) {
	d.Findings = append(d.Findings, Finding{Warning, what, say, do})
}

// Fault adds a problem.
func (d *Diagnosis) Fault(what, say, do string) {
	d.Findings = append(d.Findings, Finding{Problem, what, say, do})
}

// Faulty says whether there is a problem with what.
func (d *Diagnosis) Faulty(what string) bool {
	for _, f := range d.Findings {
		if f.Level == Problem && f.What == what {
			return true
		}
	}
	return false
}

// MaxDrift is how far two clocks may be apart before it is worth a warning.
const MaxDrift = 5 * time.Second

// Clock compares the server's clock, read between two moments of ours, with this machine's. Leases go by the server's clock
// alone, so a difference loses nothing.
func (d *Diagnosis) Clock(server, before, after time.Time) {
	var drift time.Duration // as small as the time of the answer allows
	switch {
	case server.Before(before):
		drift = server.Sub(before)
	case server.After(after):
		drift = server.Sub(after)
	}
	if drift.Abs() <= MaxDrift {
		d.Fine("clock", "the server's clock and this machine's agree within %v", MaxDrift)
		return
	}
	way := "ahead of"
	if drift < 0 {
		way = "behind"
	}
	d.Warn("clock", fmt.Sprintf("the server's clock is %v %s this machine's; nothing is lost by it, since leases and delays go by the server's", drift.Abs().Round(time.Second), way),
		"let both follow NTP: an available_at that an application takes from its own clock comes early or late, and signatures with a time may be refused")
}
