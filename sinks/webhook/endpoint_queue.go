package webhook

import (
	"context"
	"slices"
	"time"

	"github.com/connectd/connectd/core"
)

// place takes one of the endpoint's places, or waits for one.
func (e *endpoint) place(ctx context.Context, hurried bool) *core.Outcome {
	e.mu.Lock()
	if len(e.queue) == 0 && e.window.room(e.used) {
		e.used++
		e.mu.Unlock()
		return nil
	}
	hangs, full := e.hangs(time.Now()), hurried && e.places != nil && len(e.queue) >= int(e.window.most)
	if hangs || full || hurried && !e.standAside() {
		e.mu.Unlock()
		if hangs {
			return e.hanging()
		}
		return e.later("busy", 0, "has as many requests as it takes at once")
	}
	mine := make(chan struct{})
	e.queue = append(e.queue, mine)
	e.mu.Unlock()
	if hurried {
		defer e.comeBack()
	}
	return e.wait(ctx, mine)
}

// wait waits in the queue, until the place is given, the context ends, or the endpoint is found to hang.
func (e *endpoint) wait(ctx context.Context, mine chan struct{}) *core.Outcome {
	var look <-chan time.Time
	if e.places != nil {
		ticker := time.NewTicker(e.stall)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		select {
		case <-mine:
			return nil
		case <-ctx.Done():
			if e.giveUp(mine, func() bool { return true }) {
				return e.late(ctx)
			}
		case now := <-look:
			if e.giveUp(mine, func() bool { return e.hangs(now) }) {
				return e.hanging()
			}
		}
	}
}

// giveUp leaves the queue if the reason holds. It reports false when the place was given meanwhile.
func (e *endpoint) giveUp(mine chan struct{}, reason func() bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := slices.Index(e.queue, mine)
	if i < 0 || !reason() {
		return false
	}
	e.queue = slices.Delete(e.queue, i, i+1)
	return true
}

// free gives a place back and fills what is free.
func (e *endpoint) free() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.used--
	e.moved = time.Now()
	for len(e.queue) > 0 && e.window.room(e.used) {
		close(e.queue[0])
		e.queue = slices.Delete(e.queue, 0, 1)
		e.used++
	}
}

// hangs reports whether all places are taken and nothing has happened for long, though something is on the wire. (If
// nothing is, it is others that keep it from beginning.) The caller holds mu.
func (e *endpoint) hangs(now time.Time) bool {
	return e.places != nil && e.wire > 0 && !e.window.room(e.used) && now.Sub(e.moved) >= e.stall
}

func (e *endpoint) hanging() *core.Outcome {
	e.mu.Lock()
	wait := e.patience(time.Now())
	e.mu.Unlock()
	return e.later("stalled", wait, "has as many requests as it takes at once and has not answered for a while")
}

// standAside takes a place aside, where that is asked of a call that waits; comeBack gives it back.
func (e *endpoint) standAside() bool { return e.places == nil || e.places.standAside() }

func (e *endpoint) comeBack() {
	if e.places != nil {
		e.places.comeBack()
	}
}
