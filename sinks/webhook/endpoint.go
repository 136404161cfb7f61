package webhook

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
	tokens "golang.org/x/time/rate"

	"github.com/connectd/connectd/core"
)

// rateWait is the longest wait for the rate limit where other endpoints want to go on.
const rateWait = time.Second

// endpoint is one scheme, host and port, and what is known of it. Whoever sends to it asks with admit and reports what
// came of it.
//
// When the host is fixed, the endpoint is all there is to the sink: admit waits as long as its context allows, and what
// goes wrong is left to the engine, which stops the connector. When it is one of many (places is set), it must not hold up
// the others: admit refuses what has no good prospect soon. Refused is Throttled, of the key alone: that costs a record
// nothing and takes it out of the way.
type endpoint struct {
	name    string
	places  *places                                    // nil when the host is fixed
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}] // nil when the host is fixed
	openFor time.Duration                              // the breaker's
	limit   *tokens.Limiter                            // nil without a rate limit
	stall   time.Duration                              // it hangs when all its places are taken and nothing happens for so long
	relook  time.Duration                              // until what hangs is looked at again, at least

	mu     sync.Mutex
	window window
	used   int             // places taken
	wire   int             // requests begun and not ended; the others' places wait to begin
	queue  []chan struct{} // who waits for a place, first come first served; closed when it is theirs
	moved  time.Time       // when a request was last begun or ended
	well   time.Time       // when there was a good answer, or the endpoint was first met
	opened time.Time       // when the breaker last opened
	asked  asked
	turns  turns

	users   int           // of the table
	element *list.Element // of the table; nil while in use
}

// What a breaker is told of a request.
var (
	errTrouble = errors.New("trouble")
	errUnseen  = errors.New("ended by ourselves, which says nothing")
)

// admit waits until one request may go out. It returns what must be called with the verdict on that request when it has
// ended, or with nil when we ended it ourselves and it says nothing. Or it returns the outcome of records that do not go
// out. hurried says that a call of Deliver waits for nothing but this request.
func (e *endpoint) admit(ctx context.Context, hurried bool) (func(*verdict), *core.Outcome) {
	if o := e.closed(time.Now()); o != nil {
		return nil, o
	}
	if o := e.place(ctx, hurried); o != nil {
		return nil, o
	}
	done, o := e.begin(ctx, hurried)
	if o != nil {
		e.free()
	}
	return done, o
}

// closed says why nothing may go out now, if so: the endpoint asked to wait, or its breaker is not closed.
func (e *endpoint) closed(now time.Time) *core.Outcome {
	if e.places == nil {
		return nil
	}
	state := e.breaker.State()
	e.mu.Lock()
	wait, used := e.asked.until.Sub(now), e.used
	e.mu.Unlock()
	switch {
	case wait > 0:
		return e.later("paused", wait, "asked for a pause")
	case state == gobreaker.StateOpen, state == gobreaker.StateHalfOpen && used > 0:
		return e.broken(now)
	default:
		return nil
	}
}

// begin is the rest of admit with a place taken.
func (e *endpoint) begin(ctx context.Context, hurried bool) (func(*verdict), *core.Outcome) {
	if o := e.token(ctx, hurried); o != nil {
		return nil, o
	}
	leave, report := func() {}, func(error) {}
	if e.places != nil {
		var err error
		if leave, err = e.places.enter(ctx); err != nil {
			return nil, e.late(ctx)
		}
		if report, err = e.breaker.Allow(); err != nil {
			leave()
			return nil, e.broken(time.Now())
		}
	}
	began := time.Now()
	e.mu.Lock()
	e.moved = began
	e.wire++
	e.mu.Unlock()
	return func(v *verdict) {
		leave()
		e.learn(v, began, report)
		e.mu.Lock()
		e.wire--
		e.mu.Unlock()
		e.free()
	}, nil
}

// token waits for the rate limit.
func (e *endpoint) token(ctx context.Context, hurried bool) *core.Outcome {
	if e.limit == nil {
		return nil
	}
	longest := rateWait
	if deadline, ok := ctx.Deadline(); e.places == nil && ok {
		longest = time.Until(deadline)
	}
	reservation, wait := e.reserve(longest, hurried)
	switch {
	case reservation == nil:
		return e.later("rate_limited", wait, "has had as many requests as its rate limit allows")
	case wait == 0:
		return nil
	}
	if hurried {
		defer e.comeBack()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		reservation.Cancel()
		return e.late(ctx)
	}
}

// reserve takes the next token, and a place aside for a call that has to wait for it. If that takes longer, or there is no
// such place, nothing is taken. wait is how long it takes.
func (e *endpoint) reserve(longest time.Duration, hurried bool) (reservation *tokens.Reservation, wait time.Duration) {
	e.mu.Lock() // a reservation that is cancelled among others would lose a token
	defer e.mu.Unlock()
	now := time.Now()
	if missing := 1 - e.limit.TokensAt(now); missing > 0 {
		wait = time.Duration(missing / float64(e.limit.Limit()) * float64(time.Second))
	}
	if wait > longest || wait > 0 && hurried && !e.standAside() {
		return nil, wait
	}
	return e.limit.ReserveN(now, 1), wait
}

// learn notes what a request that began at the given time showed.
func (e *endpoint) learn(v *verdict, began time.Time, report func(error)) {
	switch {
	case v == nil:
		report(errUnseen)
		return
	case v.trouble, v.endpoint && v.outcome.Kind != core.Throttled:
		report(errTrouble)
	default:
		report(nil)
	}
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case v.slower:
		e.window.halve(began, now)
	case v.endpoint && e.places == nil:
		e.window.restart() // what is left to the engine begins again with few, too
	case !v.trouble && !v.endpoint:
		e.well = now
		e.turns.answered(now.Sub(began), e.window.width)
		e.window.widen()
	}
	if e.places != nil && v.endpoint && v.outcome.Kind == core.Throttled {
		v.outcome.RetryAfter = e.asked.wait(v.outcome.RetryAfter, now)
	} else if v.outcome.Kind == core.Delivered {
		e.asked.times = 0
	}
}

// turned is told by the breaker. An endpoint that was away begins again with one request at a time.
func (e *endpoint) turned(to gobreaker.State) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if to == gobreaker.StateOpen {
		e.opened = time.Now()
		e.window.restart()
	}
}

// broken is the outcome while the breaker is not closed.
func (e *endpoint) broken(now time.Time) *core.Outcome {
	e.mu.Lock()
	wait := e.opened.Add(e.openFor).Sub(now)
	if wait <= 0 { // it is being tried
		wait = e.patience(now)
	}
	e.mu.Unlock()
	return e.later("breaker_open", wait, "failed too often and is left alone for a while")
}

// patience is how long an endpoint that does not answer is left to itself: the longer, the longer that lasts. The caller
// holds mu.
func (e *endpoint) patience(now time.Time) time.Duration {
	return min(max(now.Sub(e.well)/2, e.relook), max(e.openFor, e.relook))
}

// later is the outcome of a record that has to come again, after wait or more.
func (e *endpoint) later(code string, wait time.Duration, why string) *core.Outcome {
	o := &core.Outcome{Kind: core.Throttled, RetryAfter: wait, Code: code, Message: fmt.Sprintf("%s %s", e.name, why)}
	if e.places != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		o.Scope, o.RetryAfter = core.ScopeKey, e.turns.next(time.Now(), wait)
	}
	return o
}

// late is the outcome of records whose call ended while they waited. To have attempted none of a batch tells the engine of
// trouble with the whole sink, which too many records for one of many endpoints are not.
func (e *endpoint) late(ctx context.Context) *core.Outcome {
	if e.places != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return e.later("busy", 0, "was not to be had in the time of the call")
	}
	return notBegun()
}

// notBegun is the outcome of records whose call ended before their request began.
func notBegun() *core.Outcome {
	return &core.Outcome{Kind: core.NotAttempted, Code: "no_time", Message: "the call ended before the request could begin"}
}
