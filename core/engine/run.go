package engine

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/connectd/connectd/core"
)

// settleGrace is how long a drain that was cut short may still settle and release.
const settleGrace = 5 * time.Second

// healthFresh is how old the sink's last good word may be to count as "just before the call".
const healthFresh = 5 * time.Second

const healthTimeout = 2 * time.Second

// runner gives the machine a clock, goroutines and I/O. Its loop is the only one that touches the machine; every
// call of the source and the sink runs in a goroutine of its own, with a deadline, and reports to the loop.
type runner struct {
	c       *Connector
	m       *machine
	began   time.Time
	reports chan func(now time.Duration)
	woken   chan struct{}   // the source has something new
	nudged  chan struct{}   // the send gate moved
	calls   context.Context // ends when the loop has ended
	cancels map[*batch]context.CancelCauseFunc
	running int
	healthy chan time.Time // the time of the sink's last good word; a one-element mailbox
}

func newRunner(c *Connector) *runner {
	r := &runner{
		c: c, began: time.Now(), reports: make(chan func(time.Duration)), woken: make(chan struct{}, 1),
		nudged:  make(chan struct{}, 1),
		cancels: map[*batch]context.CancelCauseFunc{}, healthy: make(chan time.Time, 1),
	}
	r.m = newMachine(c, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
	r.healthy <- time.Time{}
	return r
}

func (r *runner) now() time.Duration { return time.Since(r.began) }

func (r *runner) run(ctx context.Context) error {
	calls, endCalls := context.WithCancel(context.WithoutCancel(ctx))
	r.calls = calls
	r.m.gate.join(r.m, func() { poke(r.nudged) })
	waiter := r.startWaiter()
	r.loop(ctx)
	endCalls()
	r.m.gate.part(r.m)
	r.collect(settleGrace)
	<-waiter
	r.leave()
	return nil
}

// loop runs until the drain that ctx's end begins is over.
func (r *runner) loop(ctx context.Context) {
	done, stop := ctx.Done(), r.c.stopping()
	var cut, end <-chan time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !r.m.finished() {
		ops, at := r.m.next(r.now())
		r.start(ops)
		r.publish()
		timer.Reset(max(min(at-r.now(), time.Hour), 0))
		select {
		case report := <-r.reports:
			r.running--
			report(r.now())
			r.more()
		case <-r.woken:
			r.m.wake(r.now())
		case <-r.nudged:
		case <-timer.C:
		case <-done:
			done = nil
			r.m.drain()
			cut = time.After(r.c.Policy.Drain)
		case <-stop:
			stop, end = nil, time.After(settleGrace)
			r.start(r.m.hurry())
		case <-cut:
			cut = nil
			if stop != nil {
				r.c.Stop()
			}
		case <-end:
			return
		}
	}
}

// more takes the reports that are already there, so that one pass of the machine serves them all.
func (r *runner) more() {
	for range 64 {
		select {
		case report := <-r.reports:
			r.running--
			report(r.now())
		default:
			return
		}
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// startWaiter listens to a source that can tell when rows were committed, until the loop has ended.
func (r *runner) startWaiter() <-chan struct{} {
	ended := make(chan struct{})
	w, ok := r.c.Source.(core.Waiter)
	if !ok {
		close(ended)
		return ended
	}
	go func() {
		defer close(ended)
		failures := 0
		rnd := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
		for r.calls.Err() == nil {
			if err := w.Wait(r.calls); err == nil {
				failures = 0
				poke(r.woken)
				continue
			}
			failures++
			sleep(r.calls, 10*time.Millisecond+jitter(rnd, 50*time.Millisecond, 5*time.Second, failures))
		}
	}()
	return ended
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// collect waits for calls that still run, for at most limit.
func (r *runner) collect(limit time.Duration) {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for r.running > 0 {
		select {
		case <-r.reports:
			r.running--
		case <-timeout.C:
			r.c.Log.Error("calls did not end; leaving them behind", "connector", r.c.Name, "calls", r.running)
			go func(n int) {
				for range n {
					<-r.reports
				}
			}(r.running)
			return
		}
	}
}

// leave takes this worker off the list of the living, so that the others need not wait to miss it.
func (r *runner) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), settleGrace)
	defer cancel()
	if err := r.c.Source.Leave(ctx, r.c.Owner); err != nil {
		r.c.Log.Warn("could not sign off", "connector", r.c.Name, "error", err)
	}
}

// publish makes the machine's state what Status answers.
func (r *runner) publish() {
	s := r.dated(r.m.status(r.now()))
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.c.status = s
}

// dated puts the clock's times into a status of the machine, which has no clock.
func (r *runner) dated(s Status) Status {
	if !s.LastRead.IsZero() {
		s.LastRead = r.began.Add(r.m.lastRead)
	}
	if !s.GateUntil.IsZero() {
		s.GateUntil = r.began.Add(r.m.valve.until)
	}
	for i := range s.Waits {
		s.Waits[i].Until = r.began.Add(s.Waits[i].at)
	}
	return s
}
