// Package daemon is `connectd run`: it keeps the configured connectors running, each apart from the others, and answers
// for them over HTTP. What a connector is made of is put together by its caller.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/connectd/connectd/core/engine"
)

// Daemon runs connectors. It is used once.
type Daemon struct {
	Connectors []Connector
	// HTTP is the address to listen on, or "off". Token, if not empty, must be shown by whoever asks for more than
	// the probes; without one only loopback is served. ReceiptsToken, if not empty, may be shown instead for receipts.
	HTTP          string
	Token         string
	ReceiptsToken string

	Version, Revision string
	Log               *slog.Logger
}

// Run works until ctx is done, then drains: what is on its way is finished and settled, the sinks are closed, and Run
// returns nil. Closing hurry cuts the drain short. Run returns an error, with nothing left running, when the HTTP
// listener cannot be opened or none of the connectors can work as they are configured.
func (d *Daemon) Run(ctx context.Context, hurry <-chan struct{}) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	metrics := newMetrics(d.Version, d.Revision)
	runners := d.runners(metrics, hurry, cancel)
	health := func() []Health {
		list := make([]Health, len(runners))
		for i, r := range runners {
			list[i] = r.health(time.Now())
		}
		return list
	}
	audits := func() []audited { return auditsOf(runners) }
	metrics.registry.MustRegister(newGauges(health), newAuditGauges(audits))

	var wg, httpDone sync.WaitGroup
	httpCtx, stopHTTP := context.WithCancel(context.WithoutCancel(ctx))
	defer stopHTTP()
	if d.HTTP != "off" {
		l, err := listen(d.HTTP, d.Token)
		if err != nil {
			return err
		}
		s := &server{
			token: d.Token, receipts: d.ReceiptsToken, loopback: isLoopback(l.Addr()), connect: health, books: func() []bookkeeper { return bookkeepers(runners) }, audits: audits, registry: metrics.registry, log: d.Log,
			alive: func() error { return alive(ctx, runners) },
		}
		d.Log.Info("listening", "http", l.Addr().String())
		httpDone.Go(func() {
			if err := s.serve(httpCtx, l); err != nil {
				cancel(&fault{err})
			}
		})
	}
	for _, r := range runners {
		wg.Go(func() { r.run(ctx) })
	}
	d.tell("READY=1")
	<-ctx.Done()
	d.tell("STOPPING=1")
	d.Log.Info("stopping: finishing what is on its way")
	wg.Wait()
	stopHTTP()
	httpDone.Wait()
	var fault *fault
	if errors.As(context.Cause(ctx), &fault) {
		return fault.err
	}
	d.Log.Info("stopped")
	return nil
}

// fault is a reason of the daemon's own to stop.
type fault struct{ err error }

func (f *fault) Error() string { return f.err.Error() }

// runners makes a runner for each connector. When every one of them was refused at its first start, the daemon stops.
func (d *Daemon) runners(m *metrics, hurry <-chan struct{}, stop context.CancelCauseFunc) []*runner {
	gate, owner := engine.NewGate(), engine.NewOwner()
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	base := Info{Host: host, PID: os.Getpid(), Version: d.Version, StartedAt: time.Now().UTC().Truncate(time.Second)}
	all := &refusals{wanted: len(d.Connectors), of: map[string]error{}, stop: stop}
	list := make([]*runner, len(d.Connectors))
	slot := make(chan struct{}, 1)
	for i, c := range d.Connectors {
		rate := newMeter(time.Now)
		list[i] = &runner{
			Connector: c, owner: owner, gate: gate, log: d.Log.With("connector", c.Name), plain: d.Log, observe: m.observe(c.Name, rate),
			rate: rate, base: base, hurry: hurry, state: Starting, refusals: all, auditing: newAuditing(slot),
		}
	}
	return list
}

// refusals collects the connectors that cannot work as they are configured.
type refusals struct {
	wanted int
	stop   context.CancelCauseFunc

	mu sync.Mutex
	of map[string]error
}

// add notes a connector; when it is the last one, the daemon has nothing to do and stops.
func (r *refusals) add(connector string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of[connector] = fmt.Errorf("%s: %w", connector, err)
	if len(r.of) == r.wanted {
		var all []error
		for _, name := range slices.Sorted(maps.Keys(r.of)) {
			all = append(all, r.of[name])
		}
		r.stop(&fault{errors.Join(all...)})
	}
}

// started notes that a connector has worked: from now on the daemon goes on whatever happens to it.
func (r *refusals) started() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted = -1
}

// alive says whether the loops live: a runner ends with the daemon and not before.
func alive(ctx context.Context, runners []*runner) error {
	if ctx.Err() != nil {
		return nil
	}
	for _, r := range runners {
		r.mu.Lock()
		state := r.state
		r.mu.Unlock()
		if state == Stopped {
			return fmt.Errorf("connector %s has stopped", r.Name)
		}
	}
	return nil
}

// tell tells systemd, if it listens.
func (d *Daemon) tell(state string) {
	if err := notify(state); err != nil {
		d.Log.Warn("telling systemd failed", "error", err)
	}
}
