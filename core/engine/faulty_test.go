package engine_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/memory"
)

var errAway = errors.New("connection refused")

// faultySource is a source whose calls can be made to fail or to hang. Wake-ups are left to polling.
type faultySource struct {
	*memory.Source
	mu    sync.Mutex
	fault func(ctx context.Context, call string) error
	calls map[string]int
}

func (f *faultySource) set(fault func(ctx context.Context, call string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// away makes every call fail at once.
func (f *faultySource) away() { f.set(func(context.Context, string) error { return errAway }) }

// frozen makes every call hang until its context ends.
func (f *faultySource) frozen() {
	f.set(func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() })
}

func (f *faultySource) count(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

func (f *faultySource) enter(ctx context.Context, call string) error {
	f.mu.Lock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[call]++
	fault := f.fault
	f.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault(ctx, call)
}

func (f *faultySource) Heartbeat(ctx context.Context, owner string, info []byte, ttl time.Duration) (core.Pulse, error) {
	if err := f.enter(ctx, "heartbeat"); err != nil {
		return core.Pulse{}, err
	}
	return f.Source.Heartbeat(ctx, owner, info, ttl)
}

func (f *faultySource) Acquire(ctx context.Context, owner string, limit int, lease time.Duration, hold bool) ([]core.Acquired, error) {
	if err := f.enter(ctx, "acquire"); err != nil {
		return nil, err
	}
	return f.Source.Acquire(ctx, owner, limit, lease, hold)
}

func (f *faultySource) Renew(ctx context.Context, owner string, leases []core.Lease, lease time.Duration) ([]core.Lease, error) {
	if err := f.enter(ctx, "renew"); err != nil {
		return nil, err
	}
	return f.Source.Renew(ctx, owner, leases, lease)
}

func (f *faultySource) Release(ctx context.Context, owner string, l core.Lease) error {
	if err := f.enter(ctx, "release"); err != nil {
		return err
	}
	return f.Source.Release(ctx, owner, l)
}

func (f *faultySource) Blocking(ctx context.Context, part int, dead bool) ([]core.Block, error) {
	if err := f.enter(ctx, "blocking"); err != nil {
		return nil, err
	}
	return f.Source.Blocking(ctx, part, dead)
}

func (f *faultySource) Fetch(ctx context.Context, reqs []core.FetchRequest) ([]core.Page, error) {
	if err := f.enter(ctx, "fetch"); err != nil {
		return nil, err
	}
	return f.Source.Fetch(ctx, reqs)
}

func (f *faultySource) Step(ctx context.Context, owner string, changes []core.Change) error {
	if err := f.enter(ctx, "step"); err != nil {
		return err
	}
	return f.Source.Step(ctx, owner, changes)
}

func (f *faultySource) Leave(ctx context.Context, owner string) error {
	if err := f.enter(ctx, "leave"); err != nil {
		return err
	}
	return f.Source.Leave(ctx, owner)
}
