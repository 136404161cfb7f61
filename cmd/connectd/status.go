package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-isatty"

	"github.com/connectd/connectd/cmd/connectd/daemon"
)

// watchEvery is the pause between two pictures of `status --watch`.
const watchEvery = 2 * time.Second

func statusCommand() *command {
	return &command{
		name: "status", short: "show connectors, lag, failures and workers",
		long: `Read from the databases; no daemon needs to be running. What only a daemon knows (its sink's process, the
rate) is what it published with its last heartbeat, SEEN so long ago.

Below the connectors are the workers of each: every daemon that has a heartbeat in the connector's database, by
its host and process id, with the partitions it has leased. "took over" counts leases of workers that were gone,
"lost" those that others took while the worker had them (lease_not_owned), both since its start. A worker that was
not seen for a lease is silent: its partitions go to the others. --json has all of it, owner ids included.`,
		bind: func(p *program, fs *flag.FlagSet) func(context.Context, []string) error {
			sel := p.selection(fs)
			asJSON := fs.Bool("json", false, "print JSON")
			watch := fs.Bool("watch", false, "show it again every two seconds")
			return func(ctx context.Context, args []string) error {
				if len(args) > 0 {
					return usagef("status takes no arguments; one connector: --connector %s", args[0])
				}
				show := func() error { return p.status(ctx, sel, *asJSON) }
				if !*watch {
					return show()
				}
				return p.watch(ctx, show)
			}
		},
	}
}

// watch repeats show until ctx is done. On a terminal each picture takes the place of the one before.
func (p *program) watch(ctx context.Context, show func() error) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		if isTerminal(p.stdout) {
			fmt.Fprint(p.stdout, "\x1b[H\x1b[2J")
		}
		err := show()
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// status prints one picture. A connector that cannot be read is shown with its reason and fails the command.
func (p *program) status(ctx context.Context, sel *selection, asJSON bool) error {
	list, whole, err := sel.each(ctx, func(ctx context.Context, t table) connectorStatus { return readStatus(ctx, t) },
		func(name string, err error) connectorStatus {
			return connectorStatus{Name: name, State: unknown, Reason: err.Error(), Workers: []workerStatus{}}
		})
	if err != nil {
		return err
	}
	if asJSON {
		err = printJSON(p.stdout, map[string]any{"connectors": list})
	} else {
		err = p.printStatus(list)
	}
	if err != nil {
		return err
	}
	if !whole || slices.ContainsFunc(list, func(c connectorStatus) bool { return c.State == unknown }) {
		return errReported
	}
	return nil
}

// unknown is the state of a connector whose table cannot be read.
const unknown = "unknown"

// connectorStatus is one connector in `status --json`.
type connectorStatus struct {
	Name    string         `json:"name"`
	State   string         `json:"state"` // running, waiting, draining, stopped or unknown
	Reason  string         `json:"reason,omitempty"`
	Lag     lagStatus      `json:"lag"`
	Rate    float64        `json:"rate"` // rows published a second, all workers
	Retries int64          `json:"retries"`
	Dead    int64          `json:"dead"`
	Held    int64          `json:"held"`
	Sending int64          `json:"sending"`
	Leases  leaseStatus    `json:"leases"`
	Workers []workerStatus `json:"workers"`
}

// lagStatus is what is not yet published.
type lagStatus struct {
	Rows             int64   `json:"rows"`
	Due              int64   `json:"due"`
	OldestSeconds    float64 `json:"oldest_seconds"`
	OldestDueSeconds float64 `json:"oldest_due_seconds"`
	// AtLeast is true when counting stopped at a bound: the true figures are higher.
	AtLeast bool `json:"at_least,omitempty"`
}

type leaseStatus struct {
	Partitions int `json:"partitions"`
	Held       int `json:"held"` // by a worker, and not expired
}

// workerStatus is one worker's last heartbeat.
type workerStatus struct {
	Owner      string      `json:"owner"`
	AgeSeconds float64     `json:"age_seconds"`
	Alive      bool        `json:"alive"`
	Leases     int         `json:"leases"`
	Published  daemon.Info `json:"published"`
}

// readStatus asks the table.
func readStatus(ctx context.Context, t table) connectorStatus {
	s := connectorStatus{Name: t.connector, Workers: []workerStatus{}}
	lag, err := t.ops.Lag(ctx)
	if err != nil {
		s.State, s.Reason = unknown, "count the rows: "+err.Error()
		return s
	}
	workers, err := t.ops.Workers(ctx)
	if err != nil {
		s.State, s.Reason = unknown, "read the workers: "+err.Error()
		return s
	}
	leases, err := t.ops.Leases(ctx)
	if err != nil {
		s.State, s.Reason = unknown, "read the leases: "+err.Error()
		return s
	}
	s.Lag = lagStatus{lag.Pending, lag.Due, lag.Oldest.Seconds(), lag.OldestDue.Seconds(), lag.Capped}
	s.Dead, s.Held, s.Sending = lag.Dead, lag.Held, lag.InFlight
	s.Leases.Partitions = len(leases)
	held := map[string]int{}
	for _, l := range leases {
		if l.Owner != "" && l.Left > 0 {
			s.Leases.Held++
			held[l.Owner]++
		}
	}
	for _, w := range workers {
		ws := workerStatus{Owner: w.Owner, AgeSeconds: w.Age.Seconds(), Alive: w.Age < t.policy.Lease, Leases: held[w.Owner]}
		if ws.Published, err = daemon.ParseInfo(w.Info); err != nil {
			s.Reason = "worker " + w.Owner + " published what cannot be read: " + err.Error()
		}
		if ws.Alive {
			s.Rate += ws.Published.Rate
			s.Retries += ws.Published.Retries
		}
		s.Workers = append(s.Workers, ws)
	}
	return s.judged()
}

// judged fills in the state, by what the living workers say.
func (s connectorStatus) judged() connectorStatus {
	living, draining := 0, 0
	for _, w := range s.Workers {
		if !w.Alive {
			continue
		}
		living++
		switch e := w.Published.Engine; {
		case e.Draining:
			draining++
		case e.SourceError != "":
			s.State, s.Reason = "waiting", "source: "+e.SourceError
		case e.Gate != "" && e.Gate != "open":
			s.State, s.Reason = "waiting", strings.TrimSuffix("sink: gate "+e.Gate+": "+e.GateReason, ": ")
		}
	}
	switch {
	case living == 0:
		// A daemon leases nothing and has no heartbeat before its sink is open.
		s.State, s.Reason = "stopped", s.lastHeard()
	case s.State != "":
	case draining == living:
		s.State = "draining"
	default:
		s.State = "running"
	}
	return s
}

// lastHeard says that no worker is alive, and which was heard last: it may live and be unable to write.
func (s connectorStatus) lastHeard() string {
	last := -1
	for i, w := range s.Workers {
		if last < 0 || w.AgeSeconds < s.Workers[last].AgeSeconds {
			last = i
		}
	}
	if last < 0 {
		return "no worker is alive: no daemon runs, or its sink has not opened yet (/readyz and its log say why)"
	}
	w := s.Workers[last]
	return fmt.Sprintf("no worker is alive; pid %d of %s was last heard %s ago: if it runs, /readyz and its log say why", w.Published.PID, line(w.Published.Host, 64),
		span(seconds(w.AgeSeconds)))
}

// isTerminal says whether somebody watches w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
