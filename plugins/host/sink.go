// Package host runs sinks for the daemon: each in a process of its own, found, verified, started, watched, restarted
// and stopped. It does not know what a sink does with a batch, retries no batch, and decides nothing about records: a
// call that failed is reported as what is known of it, and the engine does the rest.
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/connectd/connectd/core"
)

// State is what a sink's process is at.
type State string

// The states. Only in Running can a batch be delivered.
const (
	Starting    State = "starting"    // the process is being started and asked what it is
	Waiting     State = "waiting"     // it waits for Configure
	Opening     State = "opening"     // Open has not succeeded yet and is tried again and again
	Running     State = "running"     // ready
	Backoff     State = "backoff"     // it ended or did not start; soon to be tried again
	Quarantined State = "quarantined" // it crashed too often; one trial after a pause, or when its program changes
	Failed      State = "failed"      // it cannot work as it is; waits for another program, or for other settings and a new Sink
	Stopped     State = "stopped"     // closed
)

// Status is a snapshot of a Sink for operators.
type Status struct {
	State State
	// Reason says why it is not running, for people.
	Reason string
	PID    int // 0 without a process
	// Uptime is the present process's age.
	Uptime time.Duration
	// Restarts counts starts after the first.
	Restarts int
	// LastExit is how the last process ended, "" if none has yet.
	LastExit string
	// Version and Description are what the plugin said of itself, empty until it first did.
	Version     string
	Description core.Description
}

// Sink is a sink in a process of its own, supervised from Start to Close. It is a core.Sink: while the process is not
// ready, Deliver fails at once with an error that wraps core.ErrNotSent; when the process ended during the call it
// wraps core.ErrSinkDied. Safe for concurrent use.
type Sink struct {
	spec   Spec
	log    *slog.Logger
	timing timing
	spawn  *spawner

	ready       atomic.Pointer[process] // set while Running
	expectCrash atomic.Bool
	delivering  atomic.Int64 // calls of Deliver in flight

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced with each change of what follows
	status     Status
	started    time.Time // of the present process
	process    *process  // the present one, from the time it described itself
	settings   []byte
	configured *process // the one that Configure gave the settings to
	openErr    error    // of the last Open that failed
	opens      int      // how many failed
	fault      error    // why it is Failed

	stopOnce sync.Once
	stopping chan struct{}
	closeCtx context.Context // set before stopping is closed
	done     chan struct{}   // closed when everything has ended
	closeErr error           // set before done is closed
}

var (
	_ core.Sink          = (*Sink)(nil)
	_ core.CrashExpecter = (*Sink)(nil)
)

// Start begins to start the process and returns at once. The Sink must be closed.
func Start(spec Spec, log *slog.Logger) *Sink { return start(spec, log, defaultTiming()) }

func start(spec Spec, log *slog.Logger, t timing) *Sink {
	s := &Sink{
		spec:     spec,
		log:      log.With("connector", spec.Connector, "plugin", spec.Plugin),
		timing:   t,
		spawn:    newSpawner(),
		changed:  make(chan struct{}),
		status:   Status{State: Starting},
		settings: spec.Settings,
		stopping: make(chan struct{}),
		done:     make(chan struct{}),
	}
	go s.supervise()
	return s
}

// update changes what mu guards and wakes those who wait for a change.
func (s *Sink) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// await returns when condition, called with mu held, says so, the Sink stops or ctx ends.
func (s *Sink) await(ctx context.Context, condition func() (bool, error)) error {
	for {
		s.mu.Lock()
		ok, err := condition()
		changed := s.changed
		s.mu.Unlock()
		if ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-s.stopping:
			return errors.New("the sink was closed")
		case <-ctx.Done():
			return fmt.Errorf("waiting for the sink, which is %s: %w", s.describeState(), ctx.Err())
		}
	}
}

func (s *Sink) describeState() string {
	st := s.Status()
	if st.Reason == "" {
		return string(st.State)
	}
	return string(st.State) + ": " + st.Reason
}

// Ready waits until the sink has been opened, or until it is clear that it cannot be without another program or other
// settings.
func (s *Sink) Ready(ctx context.Context) error {
	return s.await(ctx, func() (bool, error) { return s.isReady(), s.fault })
}

// isReady is called with mu held. A process that has just ended is not ready, though the supervisor may not know yet.
func (s *Sink) isReady() bool {
	return s.status.State == Running && s.process != nil && s.process.alive()
}

// Status may be called at any time.
func (s *Sink) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.status
	if st.PID != 0 {
		st.Uptime = time.Since(s.started)
	}
	return st
}

// ExpectCrash tells the sink, before a call of Deliver, whether the batch may kill its process: the engine suspects it
// and counts the crash itself. A process that ends during such a call leads neither to quarantine nor to a longer wait.
func (s *Sink) ExpectCrash(on bool) { s.expectCrash.Store(on) }

// crashExpected is asked at the moment a process ends.
func (s *Sink) crashExpected() bool { return s.expectCrash.Load() && s.delivering.Load() > 0 }

// Describe waits until the process has described itself.
func (s *Sink) Describe(ctx context.Context) (d core.Description, err error) {
	err = s.await(ctx, func() (bool, error) {
		d = s.status.Description
		if d.Name != "" {
			return true, nil
		}
		return false, s.fault
	})
	return d, err
}

// Configure brings the settings when Spec had none. They are kept for later starts.
func (s *Sink) Configure(ctx context.Context, settings []byte) ([]core.Diagnostic, error) {
	var p *process
	err := s.await(ctx, func() (bool, error) {
		if s.settings != nil {
			return false, errors.New("the sink is configured already")
		}
		p = s.process
		return p != nil, s.fault
	})
	if err != nil {
		return nil, err
	}
	diagnostics, err := p.sink.Configure(ctx, settings)
	if err != nil {
		return nil, p.explain(ctx, err)
	}
	if refusal(diagnostics) == nil {
		s.update(func() { s.settings, s.configured = append([]byte{}, settings...), p })
	}
	return diagnostics, nil
}

// Open waits until the sink is open and answers the error of the next attempt that fails. The attempts go on.
func (s *Sink) Open(ctx context.Context) error {
	s.mu.Lock()
	before := s.opens
	configured := s.settings != nil
	s.mu.Unlock()
	if !configured {
		return errors.New("the sink is not configured")
	}
	return s.await(ctx, func() (bool, error) {
		switch {
		case s.isReady():
			return true, nil
		case s.fault != nil:
			return false, s.fault
		case s.opens > before:
			return false, s.openErr
		default:
			return false, nil
		}
	})
}

// Deliver sends the batch to the process.
func (s *Sink) Deliver(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
	p := s.ready.Load()
	if p == nil {
		return nil, fmt.Errorf("%w: the sink's process is not ready: %s", core.ErrNotSent, s.describeState())
	}
	if !p.alive() {
		return nil, fmt.Errorf("%w: the sink's process has just ended: %s", core.ErrNotSent, p.child.exit())
	}
	s.delivering.Add(1)
	defer s.delivering.Add(-1)
	outcomes, err := p.sink.Deliver(ctx, batch)
	if err != nil {
		return nil, p.explain(ctx, err)
	}
	p.answers.Add(1)
	p.batches.Add(1)
	return outcomes, nil
}

// Health asks the sink whether its destination can be reached.
func (s *Sink) Health(ctx context.Context) error {
	p := s.ready.Load()
	if p == nil {
		return fmt.Errorf("the sink's process is not ready: %s", s.describeState())
	}
	if err := p.sink.Health(ctx); err != nil {
		return p.explain(ctx, err)
	}
	p.answers.Add(1)
	return nil
}

// Close lets the sink flush, stops the process and ends the supervision. When ctx ends first, the process is killed.
// It returns within ctx and a few seconds, whatever the process does. Batches must have been answered before: those in
// flight fail.
func (s *Sink) Close(ctx context.Context) error {
	s.stopOnce.Do(func() {
		s.closeCtx = ctx
		close(s.stopping)
	})
	select {
	case <-s.done:
		return s.closeErr
	case <-ctx.Done():
	}
	// The supervisor sees the end of the first caller's ctx too and kills the process; this is only to be sure.
	select {
	case <-s.done:
		return s.closeErr
	case <-time.After(s.timing.end + 2*reapTimeout):
		return fmt.Errorf("closing the sink: its process could not be ended: %w", ctx.Err())
	}
}
