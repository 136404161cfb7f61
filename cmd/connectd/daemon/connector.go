package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
)

// Connector is a configured source/sink pair, ready to be started.
type Connector struct {
	Name   string
	Policy engine.Policy
	// Retention is how long what is done stays.
	Retention core.Retention
	// Audit is what audits ask, AuditEvery how often the daemon runs one by itself; 0: never.
	Audit      core.AuditRequest
	AuditEvery time.Duration
	// Open opens the outbox table within ctx, which ends when it returns. An error that wraps core.ErrNotInitialised waits for a person.
	Open func(ctx context.Context, log *slog.Logger) (Outbox, error)
	// OpenToAudit opens it for an audit alone, also where Open refuses it for what an audit must find.
	OpenToAudit func(ctx context.Context, log *slog.Logger) (Outbox, error)
	// Start starts the sink's process, returns at once and supervises it until Close. Its error says what a person
	// must change.
	Start func(log *slog.Logger) (Plugin, error)
}

// Outbox is an outbox table: what the engine works on and what people look at.
type Outbox interface {
	core.Source
	core.Operator
	core.Books
	core.Auditor
}

// Plugin is a sink in its supervised process.
type Plugin interface {
	core.Sink
	// Ready waits until the sink is open. Its error says what a person must change.
	Ready(ctx context.Context) error
	Process() PluginHealth
}

const (
	retryFirst = 500 * time.Millisecond // pause before a start that failed is tried again, doubled up to retryLast
	retryLast  = 5 * time.Second
	openLimit  = 30 * time.Second // for a source to open
	lagEvery   = 5 * time.Second
	lagTimeout = 3 * time.Second
	closeLimit = 10 * time.Second // for a sink to close
)

// runner keeps one connector running until its context is done.
type runner struct {
	Connector
	owner    string
	gate     *engine.Gate
	log      *slog.Logger // names the connector, as the engine and the host do in theirs
	plain    *slog.Logger
	observe  *observer
	rate     *meter
	base     Info            // what never changes of Info
	hurry    <-chan struct{} // closed: cut the drain short
	refusals *refusals
	auditing *auditing

	mu     sync.Mutex
	state  State
	reason string
	conn   *engine.Connector
	plugin Plugin
	outbox Outbox // nil while the source is not open
	lag    *core.Lag
	holdup *core.Holdup      // what keeps rows back; written by countLag alone
	vacant map[int]time.Time // partitions that nobody has leased → since when, as far as this process saw
}

// health is the connector as it stands.
func (r *runner) health(now time.Time) Health {
	r.mu.Lock()
	h := Health{Name: r.Name, State: r.state, Reason: r.reason, Lag: r.lag, Holdup: r.holdup}
	for _, since := range r.vacant {
		if now.Sub(since) > 2*r.Policy.Lease {
			h.Vacant++
		}
	}
	conn, plugin := r.conn, r.plugin
	r.mu.Unlock()
	if plugin != nil {
		h.Plugin = plugin.Process()
		if h.State == Starting && h.Reason == "" {
			h.Reason = "sink: the process is not ready: " + h.Plugin.describe()
		}
	}
	if conn != nil {
		h.Engine = conn.Status()
		if h.Engine.Draining {
			h.State = Draining
		}
	}
	return judge(h, now, staleAfter(r.Policy))
}

// run starts the connector, again and again if need be, and returns when ctx is done and the connector has drained.
func (r *runner) run(ctx context.Context) {
	defer r.set(Stopped, "")
	r.set(Starting, "")
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { r.audits(ctx) })
	pause := retryFirst
	for ctx.Err() == nil {
		began := time.Now()
		err := r.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > 2*retryLast {
			pause = retryFirst
		}
		r.fail(err)
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
		pause = min(2*pause, retryLast)
	}
}

// set notes a state and its reason. A reason is logged when it changes, not each time it is met.
func (r *runner) set(state State, reason string) {
	r.mu.Lock()
	changed := state != r.state || reason != r.reason
	r.state, r.reason = state, reason
	r.mu.Unlock()
	switch {
	case !changed:
	case state == Failed || reason != "":
		r.log.Error("connector does not run, trying again", "state", string(state), "reason", reason)
	default:
		r.log.Info("connector " + string(state))
	}
}

// fail notes why the connector does not run.
func (r *runner) fail(err error) {
	var refusal *refusal
	switch {
	case errors.As(err, &refusal):
		r.set(Failed, err.Error())
		r.refusals.add(r.Name, err)
	case errors.Is(err, core.ErrNotInitialised):
		r.set(Failed, err.Error())
	default:
		r.set(Starting, err.Error())
	}
}

// refusal is a sink that cannot work as it is configured or installed.
type refusal struct{ err error }

func (e *refusal) Error() string { return "sink: " + e.err.Error() }
func (e *refusal) Unwrap() error { return e.err }

// once opens the source, starts the sink and lets the engine run until ctx is done.
func (r *runner) once(ctx context.Context) error {
	opening, cancel := context.WithTimeout(ctx, openLimit)
	source, err := r.Open(opening, r.plain)
	cancel()
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	defer func() {
		if err := source.Close(); err != nil {
			r.log.Warn("closing the source failed", "error", err)
		}
	}()
	defer r.counting(ctx, source)()
	defer r.cleaning(ctx, source)()
	plugin, err := r.Start(r.plain)
	if err != nil {
		return &refusal{err}
	}
	defer r.close(plugin)
	r.mu.Lock()
	r.plugin = plugin
	r.mu.Unlock()
	for ctx.Err() == nil {
		if err := plugin.Ready(ctx); err != nil {
			return &refusal{err}
		}
		description, err := plugin.Describe(ctx)
		if err != nil {
			return fmt.Errorf("sink: ask for its limits: %w", err)
		}
		if err := r.work(ctx, source, plugin, description); err != nil {
			return err
		}
	}
	return nil
}

// work lets the engine run until ctx is done, or until it is better that another worker does this one's work.
func (r *runner) work(ctx context.Context, source Outbox, plugin Plugin, sink core.Description) error {
	conn := &engine.Connector{
		Name: r.Name, Source: source, Sink: plugin, Limits: sink.Limits, Prefers: sink.Prefers, Policy: r.Policy,
		Owner: r.owner, Gate: r.gate, Log: r.plain, Observer: r.observe, Info: func(s engine.Status) []byte { return r.info(s, plugin) },
	}
	r.mu.Lock()
	r.conn = conn
	r.mu.Unlock()
	r.set(Running, "")
	r.refusals.started()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if r.useless(ctx, source, plugin) {
			r.set(Starting, "its sink's process does not come back and another worker is there: giving the leases back")
			stop()
		}
	})
	var moved error
	wg.Go(func() {
		if moved = hasMoved(ctx, source); moved != nil {
			stop()
		}
	})
	wg.Go(func() {
		select {
		case <-r.hurry:
			conn.Stop()
		case <-ended:
		}
	})
	err := conn.Run(ctx)
	close(ended)
	stop()
	wg.Wait()
	r.mu.Lock()
	r.conn = nil
	r.mu.Unlock()
	if err == nil && moved != nil {
		return fmt.Errorf("source: %w", moved)
	}
	return err
}

// close closes the sink and its process; a hurried shutdown does not wait for it to flush.
func (r *runner) close(plugin Plugin) {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-r.hurry:
			cancel()
		case <-ended:
		}
	}()
	if err := plugin.Close(ctx); err != nil {
		r.log.Warn("closing the sink failed", "error", err)
	}
	r.mu.Lock()
	r.plugin = nil
	r.mu.Unlock()
}

// info is what the engine publishes with each heartbeat.
func (r *runner) info(status engine.Status, plugin Plugin) []byte {
	i := r.base
	i.Engine, i.Plugin = status, plugin.Process().info()
	i.Rate, i.Retries = r.rate.perSecond(), r.observe.retried.Load()
	i.TakenOver, i.Lost = r.observe.tookOver.Load(), r.observe.lostLeases.Load()
	r.mu.Lock()
	if h := r.holdup; h != nil {
		i.HeldBack = &InfoHoldup{After: h.After, Rows: h.Rows, Holder: core.CleanText(h.Holder), Since: time.Now().Add(-h.For).UTC()}
	}
	r.mu.Unlock()
	data, err := json.Marshal(i)
	if err != nil {
		r.log.Error("writing the heartbeat's information failed", "error", err)
		return nil
	}
	return data
}
