package daemon

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/connectd/connectd/core"
)

// tracked counts what is open.
type tracked struct {
	outbox
	open *atomic.Int32
}

func (s tracked) Close() error {
	s.open.Add(-1)
	return s.Source.Close()
}

// trackedPlugin counts what runs, and may be one whose limits cannot be had.
type trackedPlugin struct {
	inProcess
	running *atomic.Int32
	mute    bool
}

func (p trackedPlugin) Close(ctx context.Context) error {
	p.running.Add(-1)
	return p.inProcess.Close(ctx)
}

func (p trackedPlugin) Describe(ctx context.Context) (core.Description, error) {
	if p.mute {
		return core.Description{}, errors.New("no answer")
	}
	return p.inProcess.Describe(ctx)
}

// However a connector ends, and as often as it is tried again, its sink's process and its source end with it:
// https://github.com/ConduitIO/conduit/issues/2559
func TestNothingIsLeftOnAnyWayOut(t *testing.T) {
	for name, spoil := range map[string]func(r *rig, p *trackedPlugin){
		"it runs":                     func(*rig, *trackedPlugin) {},
		"the sink cannot start":       func(r *rig, _ *trackedPlugin) { r.Start = nil },
		"the sink refuses":            func(_ *rig, p *trackedPlugin) { p.ready = errors.New("path is required") },
		"the sink is not ready":       func(r *rig, _ *trackedPlugin) { r.away.Store(true) },
		"the sink does not describe":  func(_ *rig, p *trackedPlugin) { p.mute = true },
		"the engine refuses to begin": func(r *rig, _ *trackedPlugin) { r.Policy.Lease = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				good, r := newRig("good"), newRig("orders")
				var open, running, begun atomic.Int32
				plugin := trackedPlugin{inProcess{r.sink, nil, r.away}, &running, false}
				r.Start = func(*slog.Logger) (Plugin, error) {
					running.Add(1)
					return plugin, nil
				}
				spoil(r, &plugin)
				if r.Start == nil {
					r.Start = func(*slog.Logger) (Plugin, error) { return nil, errors.New("no such sink") }
				}
				r.Open = func(context.Context, *slog.Logger) (Outbox, error) {
					begun.Add(1)
					open.Add(1)
					return tracked{outbox{r.source, r}, &open}, nil
				}
				_, _, stop := start(t, nil, good, r)
				for range 5 {
					time.Sleep(time.Minute)
					if open.Load() > 1 || running.Load() > 1 {
						t.Fatalf("%d sources and %d processes are open at once", open.Load(), running.Load())
					}
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				if begun.Load() == 0 || open.Load() != 0 || running.Load() != 0 {
					t.Errorf("of %d sources %d are open, and %d processes run", begun.Load(), open.Load(), running.Load())
				}
			})
		})
	}
}
