package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/plugins"
)

// supervise starts the process again and again until the Sink is closed. It ends only then.
func (s *Sink) supervise() {
	defer close(s.done)
	defer s.update(func() { s.status.State, s.status.Reason = Stopped, "" })
	defer s.spawn.close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-s.stopping:
		case <-ctx.Done():
		}
		cancel()
	}()
	b := breaker{timing: s.timing}
	for n := 0; ctx.Err() == nil; n++ {
		s.update(func() { s.status.State, s.status.Restarts = Starting, n })
		before := identity(s.spec.Path)
		end := s.live(ctx)
		if ctx.Err() != nil {
			return
		}
		s.pause(ctx, &b, before, end)
	}
}

// ending is how one process's life came to its end.
type ending struct {
	err      error
	ran      time.Duration // since it was ready
	fruitful bool          // it had answered a batch
	expected bool          // the engine was prepared for a crash
}

// live is one process's life, from start to end.
func (s *Sink) live(ctx context.Context) (end ending) {
	expected := false
	p, err := startProcess(ctx, &s.spec, s.spawn, s.log, func() { expected = s.crashExpected() })
	if err != nil {
		return ending{err: err}
	}
	s.update(func() {
		s.process, s.started = p, p.child.started
		s.status.PID, s.status.Version, s.status.Description = p.child.pid(), p.description.Version, p.description
		s.status.Reason, s.fault = "", nil
	})
	s.log.Info("sink process started", "pid", p.child.pid(), "name", p.description.Name, "version", p.description.Version,
		"protocol", plugins.ProtocolVersion, "sha256_checked", s.spec.SHA256 != "", "took", time.Since(p.child.started))

	var readyAt time.Time
	if err = s.prepare(ctx, p); err == nil {
		readyAt = time.Now()
		s.ready.Store(p)
		s.update(func() { s.status.State, s.status.Reason, s.openErr = Running, "", nil })
		err = s.watch(ctx, p)
		s.ready.Store(nil)
	}
	s.retire(ctx, p)
	if !readyAt.IsZero() {
		end.ran = time.Since(readyAt)
	}
	s.update(func() {
		s.process, s.status.PID, s.status.State = nil, 0, Backoff // or what pause finds
		s.status.LastExit = p.child.exit()
	})
	end.err, end.fruitful = err, p.batches.Load() > 0
	end.expected = !p.alive() && expected
	return end
}

// retire ends a process: in good order when the Sink is being closed, at once otherwise.
func (s *Sink) retire(ctx context.Context, p *process) {
	if ctx.Err() == nil || !p.alive() {
		p.stop(0)
		return
	}
	why := "because the connector stops"
	p.blameless.CompareAndSwap(nil, &why)
	defer context.AfterFunc(s.closeCtx, p.child.kill)()
	closeCtx, cancel := context.WithTimeout(s.closeCtx, s.timing.close)
	defer cancel()
	s.closeErr = p.sink.Close(closeCtx)
	p.stop(s.timing.end)
}

// prepare configures and opens.
func (s *Sink) prepare(ctx context.Context, p *process) error {
	settings, err := s.awaitSettings(ctx, p)
	if err != nil {
		return err
	}
	s.mu.Lock()
	done := s.configured == p
	s.mu.Unlock()
	if done {
		return s.open(ctx, p)
	}
	call, cancel := context.WithTimeout(ctx, s.spec.startTimeout())
	defer cancel()
	diagnostics, err := p.sink.Configure(call, settings)
	if err != nil {
		return p.explain(ctx, err)
	}
	if err := refusal(diagnostics); err != nil {
		return &fault{err}
	}
	return s.open(ctx, p)
}

// open tries until the sink is open or the process has ended. A process that answers neither Open nor a probe is given
// up.
func (s *Sink) open(ctx context.Context, p *process) error {
	if err := s.describeAgain(ctx, p); err != nil {
		return err
	}
	s.update(func() { s.status.State = Opening })
	said := ""
	for failures := 0; ; failures++ {
		call, cancel := context.WithTimeout(ctx, s.timing.open)
		err := p.sink.Open(call)
		cancel()
		if err == nil {
			return nil
		}
		err = p.explain(ctx, err)
		if !p.alive() || ctx.Err() != nil {
			return err
		}
		if errors.Is(err, context.DeadlineExceeded) {
			if answered, _ := p.ask(ctx, s.timing.probeTimeout); !answered {
				return errors.New("the sink's process was wedged: it answered neither open nor a probe")
			}
		}
		if reason := err.Error(); reason != said {
			said = reason
			s.log.Warn("the sink cannot be opened, trying again", "error", err)
		}
		s.update(func() { s.openErr, s.opens, s.status.Reason = err, s.opens+1, err.Error() })
		if err := s.sleep(ctx, p, backoff(s.timing, failures)); err != nil {
			return err
		}
	}
}

// describeAgain asks for the limits and preferences that belong to the settings.
func (s *Sink) describeAgain(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, s.spec.startTimeout())
	defer cancel()
	d, err := p.sink.Describe(ctx)
	if err != nil {
		return p.explain(ctx, err)
	}
	s.update(func() { s.status.Description.Limits, s.status.Description.Prefers = d.Limits, d.Prefers })
	return nil
}

// awaitSettings returns the settings, when Spec or Configure has brought them.
func (s *Sink) awaitSettings(ctx context.Context, p *process) (settings []byte, err error) {
	s.mu.Lock()
	settings = s.settings
	s.mu.Unlock()
	if settings != nil {
		return settings, nil
	}
	s.update(func() { s.status.State = Waiting })
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.child.dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	err = s.await(ctx, func() (bool, error) {
		settings = s.settings
		return settings != nil, nil
	})
	if err != nil && !p.alive() {
		err = fmt.Errorf("the sink's process ended: %s", p.child.exit())
	}
	return settings, err
}

// sleep waits for d, unless the process ends or ctx does.
func (s *Sink) sleep(ctx context.Context, p *process, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.child.dead:
		return fmt.Errorf("the sink's process ended: %s", p.child.exit())
	case <-p.broken:
		return p.brokenError()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// watch returns when the process has ended or must be.
func (s *Sink) watch(ctx context.Context, p *process) error {
	probing, cancel := context.WithCancel(ctx)
	defer cancel()
	wedged := make(chan error, 1)
	go func() { wedged <- s.probe(probing, p) }()
	var err error
	select {
	case <-p.child.dead:
		err = fmt.Errorf("the sink's process ended: %s", p.child.exit())
	case <-p.broken:
		err = p.brokenError()
	case err := <-wedged:
		return err
	case <-ctx.Done():
		err = ctx.Err()
	}
	cancel()
	if why := <-wedged; why != nil {
		return why
	}
	return err
}

// pause reports an ending and waits until it is time for the next start.
func (s *Sink) pause(ctx context.Context, b *breaker, program string, end ending) {
	var f *fault
	broken := errors.As(end.err, &f)
	var wait time.Duration
	state := Failed
	if !broken {
		var quarantine bool
		state = Backoff
		if wait, quarantine = b.exited(time.Now(), end.ran, end.fruitful, end.expected); quarantine {
			state = Quarantined
		}
	}
	s.update(func() {
		s.status.State, s.status.Reason = state, end.err.Error()
		if broken {
			s.fault = end.err
		}
	})
	switch state {
	case Failed:
		s.log.Error("the sink cannot work until its program or its settings change", "error", end.err)
	case Quarantined:
		s.log.Error("the sink's process ends again and again: quarantined", "error", end.err, "next_trial_in", wait)
	default:
		s.log.Warn("the sink's process is started again", "error", end.err, "after", wait, "expected", end.expected)
	}
	s.untilTime(ctx, state, wait, program)
}

// untilTime waits: in backoff for the time, in quarantine for the time or another program, failed for another program.
func (s *Sink) untilTime(ctx context.Context, state State, wait time.Duration, program string) {
	var timeUp <-chan time.Time
	if state != Failed {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		timeUp = timer.C
	}
	var look <-chan time.Time
	if state != Backoff {
		ticker := time.NewTicker(s.timing.lookAgain)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-timeUp:
			return
		case <-look:
			if identity(s.spec.Path) != program {
				s.log.Info("the sink's program has changed, trying it")
				return
			}
		}
	}
}

// RefusedError says that the sink does not take its settings. The diagnostics' pointers are places in them, so a caller
// that knows where they were written can say so.
type RefusedError struct{ Diagnostics []core.Diagnostic }

func (e *RefusedError) Error() string {
	var text []string
	for _, d := range e.Diagnostics {
		where := d.Pointer
		if where == "" {
			where = "settings"
		}
		text = append(text, where+": "+d.Message)
	}
	return "the sink refuses its settings: " + strings.Join(text, "\n")
}

// refusal is the error that diagnostics amount to; nil if they are warnings only.
func refusal(diagnostics []core.Diagnostic) error {
	faults := slices.DeleteFunc(slices.Clone(diagnostics), func(d core.Diagnostic) bool { return d.Warning })
	if len(faults) == 0 {
		return nil
	}
	return &RefusedError{faults}
}
