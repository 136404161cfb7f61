package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inProcess is a sink that needs no process.
type inProcess struct {
	*memory.Sink
	ready error
	away  *atomic.Bool // its process, if it had one
}

func (p inProcess) Ready(ctx context.Context) error {
	for p.away.Load() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	return p.ready
}

func (p inProcess) Process() PluginHealth {
	return PluginHealth{State: "running", Up: !p.away.Load(), PID: 7, Uptime: time.Minute, Restarts: 2, Version: "1"}
}

func (p inProcess) Deliver(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
	if p.away.Load() {
		return nil, fmt.Errorf("%w: its process is away", core.ErrNotSent)
	}
	return p.Sink.Deliver(ctx, batch)
}

// rig is a connector whose parts are in memory.
type rig struct {
	source *memory.Source
	audit  func(ctx context.Context, req core.AuditRequest) (core.Audit, error)
	sink   *memory.Sink
	away   *atomic.Bool // the sink's process
	Connector
}

// outbox is a table in memory that is audited as its test says.
type outbox struct {
	*memory.Source
	rig *rig
}

func (o outbox) Audit(ctx context.Context, req core.AuditRequest) (core.Audit, error) {
	return o.rig.audit(ctx, req)
}

func newRig(name string) *rig {
	r := &rig{source: memory.NewSource(4, time.Now), sink: memory.NewSink(), away: new(atomic.Bool)}
	r.source.KeepPublished = true
	open := func(context.Context, *slog.Logger) (Outbox, error) { return outbox{r.source, r}, nil }
	r.Connector = Connector{
		Name: name, Policy: engine.DefaultPolicy(),
		Open: open, OpenToAudit: open,
		Start: func(*slog.Logger) (Plugin, error) { return inProcess{r.sink, nil, r.away}, nil },
	}
	return r
}

// insert commits rows from-to.
func (r *rig) insert(from, to int) {
	tx := r.source.Begin()
	for n := from; n <= to; n++ {
		tx.Insert(memory.Row{ID: fmt.Sprint(n), Key: "k", Keyed: true})
	}
	tx.Commit()
}

// start runs connectors as a daemon does, without its listener. stop drains and returns the reason of an end that came
// before it.
func start(t *testing.T, hurry <-chan struct{}, rigs ...*rig) (runners []*runner, ended <-chan struct{}, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	d := &Daemon{Log: silent(), Version: "1.2.3"}
	for _, r := range rigs {
		d.Connectors = append(d.Connectors, r.Connector)
	}
	runners = d.runners(newMetrics("", ""), hurry, cancel)
	done := make(chan struct{})
	var left atomic.Int32
	left.Store(int32(len(runners)))
	for _, r := range runners {
		go func() {
			r.run(ctx)
			if left.Add(-1) == 0 {
				close(done)
			}
		}()
	}
	return runners, done, func() error {
		cancel(nil)
		<-done
		var f *fault
		if errors.As(context.Cause(ctx), &f) {
			return f.err
		}
		return nil
	}
}

func TestConnectorDeliversAndDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("orders")
		runners, _, stop := start(t, nil, r)
		r.insert(1, 100)
		time.Sleep(20 * time.Second) // more than a heartbeat and a count
		h := runners[0].health(time.Now())
		if !h.Ready || h.State != Running || h.Lag == nil || h.Lag.Pending != 0 || h.Engine.Owned != 4 {
			t.Errorf("health: %+v", h)
		}
		if n := len(r.sink.Delivered()); n != 100 {
			t.Errorf("%d records delivered, want 100", n)
		}
		workers, err := r.source.Workers(t.Context())
		if err != nil || len(workers) != 1 {
			t.Fatalf("workers %v, %v", workers, err)
		}
		info, err := ParseInfo(workers[0].Info)
		if err != nil || info.Plugin.PID != 7 || info.Plugin.Restarts != 2 || info.Version != "1.2.3" || info.Engine.Delivered != 100 {
			t.Errorf("published: %s, %v", workers[0].Info, err)
		}
		if err := stop(); err != nil {
			t.Errorf("stopped with %v", err)
		}
		leases, err := r.source.Leases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range leases {
			if l.Owner != "" {
				t.Errorf("lease %d was not given back", l.Part)
			}
		}
		if h := runners[0].health(time.Now()); h.Ready || h.State != Stopped {
			t.Errorf("health after the end: %+v", h)
		}
	})
}

// TestSourceThatIsAwayIsTriedAgain: with the reason in sight, and for ever.
func TestSourceThatIsAwayIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("orders")
		var away atomic.Bool
		away.Store(true)
		r.Open = func(context.Context, *slog.Logger) (Outbox, error) {
			if away.Load() {
				return nil, errors.New("connection refused")
			}
			return outbox{r.source, r}, nil
		}
		runners, _, stop := start(t, nil, r)
		time.Sleep(time.Hour)
		if h := runners[0].health(time.Now()); h.Ready || h.State != Starting || !strings.Contains(h.Reason, "source: connection refused") {
			t.Errorf("health: %+v", h)
		}
		away.Store(false)
		time.Sleep(retryLast + time.Second)
		if h := runners[0].health(time.Now()); !h.Ready {
			t.Errorf("health: %+v", h)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestMissingTableIsNoReasonToEnd: somebody will run init.
func TestMissingTableIsNoReasonToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("orders")
		r.Open = func(context.Context, *slog.Logger) (Outbox, error) {
			return nil, fmt.Errorf("no table outbox: %w", core.ErrNotInitialised)
		}
		runners, _, stop := start(t, nil, r)
		time.Sleep(time.Minute)
		if h := runners[0].health(time.Now()); h.State != Failed || !strings.Contains(h.Reason, "connectd init") {
			t.Errorf("health: %+v", h)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestRefusedConnector: one that its sink refuses leaves the others alone; when all are refused there is nothing to do.
func TestRefusedConnector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, bad, missing := newRig("good"), newRig("bad"), newRig("missing")
		bad.Start = func(*slog.Logger) (Plugin, error) {
			return inProcess{bad.sink, errors.New("path is required"), bad.away}, nil
		}
		missing.Start = func(*slog.Logger) (Plugin, error) { return nil, errors.New("no such sink") }
		runners, _, stop := start(t, nil, good, bad, missing)
		good.insert(1, 3)
		time.Sleep(time.Minute)
		if h := runners[1].health(time.Now()); h.State != Failed || !strings.Contains(h.Reason, "path is required") {
			t.Errorf("health: %+v", h)
		}
		if n := len(good.sink.Delivered()); n != 3 || !runners[0].health(time.Now()).Ready {
			t.Errorf("%d records delivered beside a refused connector, want 3", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		_, ended, stop := start(t, nil, bad, missing)
		select {
		case <-ended:
		case <-time.After(time.Hour):
			t.Error("the daemon goes on with nothing to do")
		}
		if err := stop(); err == nil || !strings.Contains(err.Error(), "bad: sink: path is required") ||
			!strings.Contains(err.Error(), "missing: sink: no such sink") {
			t.Errorf("ended with %v", err)
		}
	})
}

// TestHurryCutsTheDrainShort: a call that does not end is not waited for.
func TestHurryCutsTheDrainShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("orders")
		r.Policy.Drain = 10 * time.Minute
		r.Policy.Timeout = 20 * time.Minute
		r.sink.Before(memory.Delay(15 * time.Minute))
		hurry := make(chan struct{})
		_, _, stop := start(t, hurry, r)
		r.insert(1, 1)
		time.Sleep(time.Second)
		began := time.Now()
		time.AfterFunc(time.Minute, func() { close(hurry) })
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < time.Minute || took > 2*time.Minute {
			t.Errorf("stopped after %v; the second signal came after 1m", took)
		}
		if rows := r.source.Rows(); rows[0].State != core.Pending || rows[0].Deliveries != 1 {
			t.Errorf("the row that was on its way: %+v", rows[0])
		}
	})
}

// TestLagThatCannotBeCountedIsUnknown, not the last one that could.
func TestLagThatCannotBeCountedIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("orders")
		var broken atomic.Bool
		r.Open = func(context.Context, *slog.Logger) (Outbox, error) { return lagless{outbox{r.source, r}, &broken}, nil }
		runners, _, stop := start(t, nil, r)
		time.Sleep(time.Second)
		if runners[0].health(time.Now()).Lag == nil {
			t.Error("no lag")
		}
		broken.Store(true)
		time.Sleep(lagEvery)
		synctest.Wait()
		if lag := runners[0].health(time.Now()).Lag; lag != nil {
			t.Errorf("lag %+v", lag)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// lagless is a source that cannot count at times.
type lagless struct {
	outbox
	broken *atomic.Bool
}

func (l lagless) Lag(ctx context.Context) (core.Lag, error) {
	if l.broken.Load() {
		return core.Lag{}, errors.New("database is locked")
	}
	return l.Source.Lag(ctx)
}

// TestSinkThatStaysAway: its worker gives the leases to one whose sink works, and comes back when its own does. Without
// another worker it keeps them, and with them its place in what operators see.
func TestSinkThatStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newRig("orders"), newRig("orders")
		second.source = first.source
		firsts, _, stopFirst := start(t, nil, first)
		time.Sleep(time.Second)
		first.away.Store(true)
		time.Sleep(time.Hour)
		if h := firsts[0].health(time.Now()); h.State != Running || h.Ready || h.Engine.Owned != 4 {
			t.Errorf("alone: %+v", h)
		}
		_, _, stopSecond := start(t, nil, second)
		first.insert(1, 40)
		time.Sleep(3 * first.Policy.Lease)
		if n := len(second.sink.Delivered()); n != 40 {
			t.Errorf("the other worker delivered %d records, want 40", n)
		}
		if h := firsts[0].health(time.Now()); h.State != Starting || h.Ready || h.Engine.Owned != 0 || h.Lag == nil {
			t.Errorf("its sink is away: %+v", h)
		}
		first.away.Store(false)
		time.Sleep(3 * first.Policy.Lease)
		if h := firsts[0].health(time.Now()); !h.Ready || h.Engine.Owned != 2 {
			t.Errorf("its sink is back: %+v", h)
		}
		if err := errors.Join(stopFirst(), stopSecond()); err != nil {
			t.Error(err)
		}
	})
}
