package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/connectd/connectd/core"
)

var errCancelled = errors.New("cancelled by the engine")

// callTimeout is the deadline of every call of the source.
func (r *runner) callTimeout() time.Duration {
	return min(max(r.c.Policy.Lease/2, 500*time.Millisecond), 15*time.Second)
}

func (r *runner) start(ops []op) {
	for _, o := range ops {
		r.startOne(o)
	}
}

// call runs f in a goroutine; the function it returns is run by the loop.
func (r *runner) call(f func(ctx context.Context) func(now time.Duration)) {
	r.running++
	go func() {
		ctx, cancel := context.WithTimeout(r.calls, r.callTimeout())
		defer cancel()
		r.reports <- f(ctx)
	}()
}

func (r *runner) startOne(o op) {
	c, m, asked := r.c, r.m, r.now()
	lease := c.Policy.Lease
	switch o := o.(type) {
	case opPulse:
		info := r.info(r.dated(o.info))
		total := m.total
		r.call(func(ctx context.Context) func(time.Duration) {
			pulse, total, err := r.pulse(ctx, total, info)
			return func(now time.Duration) { m.pulsed(pulse, total, err, now) }
		})
	case opAcquire:
		r.call(func(ctx context.Context) func(time.Duration) {
			got, err := c.Source.Acquire(ctx, c.Owner, o.max, lease, c.Policy.HoldUncertain)
			return func(now time.Duration) { m.acquired(got, err, asked, now) }
		})
	case opRenew:
		r.call(func(ctx context.Context) func(time.Duration) {
			kept, err := c.Source.Renew(ctx, c.Owner, o.leases, lease)
			return func(now time.Duration) { m.renewed(o.leases, kept, err, asked, now) }
		})
	case opRelease:
		r.call(func(ctx context.Context) func(time.Duration) {
			err := c.Source.Release(ctx, c.Owner, o.p.lease)
			return func(now time.Duration) { m.released(o.p, err) }
		})
	case opBlocking:
		r.call(func(ctx context.Context) func(time.Duration) {
			blocks, err := c.Source.Blocking(ctx, o.p.lease.Part, c.Policy.BlockOnDead)
			return func(now time.Duration) { m.blocking(o.p, blocks, err, now) }
		})
	case opFetch:
		r.call(func(ctx context.Context) func(time.Duration) {
			page, err := c.Source.Fetch(ctx, o.req)
			return func(now time.Duration) { m.fetched(o.p, page, err, now) }
		})
	case opStep:
		r.call(func(ctx context.Context) func(time.Duration) {
			err := c.Source.Step(ctx, c.Owner, o.change)
			return func(now time.Duration) { m.stepped(o.p, err, now) }
		})
	case opDeliver:
		r.deliver(o)
	case opCancel:
		if cancel := r.cancels[o.b]; cancel != nil {
			cancel(errCancelled)
		}
	}
}

// pulse learns the table's partitions, once, and sends the heartbeat. A worker that is silent for two thirds of a
// lease counts as gone, so that the others learn of it no later than its leases run out.
func (r *runner) pulse(ctx context.Context, total int, info []byte) (core.Pulse, int, error) {
	if total == 0 {
		n, err := r.c.Source.Partitions(ctx)
		if err != nil {
			return core.Pulse{}, 0, fmt.Errorf("read the number of partitions: %w", err)
		}
		total = n
	}
	pulse, err := r.c.Source.Heartbeat(ctx, r.c.Owner, info, r.c.Policy.Lease*2/3)
	return pulse, total, err
}

func (r *runner) info(s Status) []byte {
	if r.c.Info != nil {
		return r.c.Info(s)
	}
	b, err := json.Marshal(s)
	if err != nil {
		return nil
	}
	return b
}

// deliver runs one call of the sink.
func (r *runner) deliver(o opDeliver) {
	if e, ok := r.c.Sink.(core.CrashExpecter); ok {
		e.ExpectCrash(o.b.careful)
	}
	ctx, cancel := context.WithCancelCause(r.calls)
	r.cancels[o.b] = cancel
	r.running++
	go func() {
		ans := r.callSink(ctx, o.records)
		cancel(nil)
		r.reports <- func(now time.Duration) {
			delete(r.cancels, o.b)
			r.m.delivered(o.b, ans, now)
		}
	}()
}

func (r *runner) callSink(ctx context.Context, records []core.Record) answer {
	before := r.health(ctx)
	if err := context.Cause(ctx); err != nil { // the question took time: the lease may have run out
		return answer{failure: withdrawn, err: err}
	}
	call, cancel := context.WithTimeout(ctx, r.c.Policy.Timeout)
	defer cancel()
	began, timeout := time.Now(), r.c.Policy.Timeout
	watch := startWatch(timeout)
	outcomes, err := r.c.Sink.Deliver(call, records)
	ans := answer{outcomes: outcomes, err: err, took: time.Since(began)}
	stood := watch.end()
	switch {
	case err == nil:
		r.well()
	case errors.Is(err, core.ErrNotSent):
		ans.failure = notSent
	case errors.Is(err, core.ErrSinkDied):
		ans.failure = died
	case context.Cause(ctx) != nil:
		ans.failure = cancelled
	case call.Err() != nil && notable(stood, timeout):
		ans.failure = unknown
		ans.err = fmt.Errorf("no answer within %v, but this process stood still for %v meanwhile: %w", timeout, stood.Round(time.Millisecond), err)
	case call.Err() != nil && before && r.probe(ctx):
		ans.failure = hung
		ans.err = fmt.Errorf("no answer within %v although the sink is healthy: %w", timeout, err)
	default:
		ans.failure = unknown
	}
	return ans
}

// health reports whether the sink gave a good word just before now, and asks if the last one is too old.
func (r *runner) health(ctx context.Context) bool {
	last := <-r.healthy
	r.healthy <- last
	return time.Since(last) <= healthFresh && !last.IsZero() || r.probe(ctx)
}

func (r *runner) probe(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if r.c.Sink.Health(ctx) != nil {
		return false
	}
	r.well()
	return true
}

func (r *runner) well() {
	<-r.healthy
	r.healthy <- time.Now()
}
