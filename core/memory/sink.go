// Package memory has a source and a sink that live in memory: for tests of the engine, and as the references of the two
// conformance suites.
package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/connectd/connectd/core"
)

// Sink is a core.Sink that keeps what it is sent, for tests of the engine and as the reference of the conformance
// suite. It starts no goroutine and looks at no clock, so it works under testing/synctest. All methods may be called
// at any time from any goroutine; Deliver works without Configure and Open, and fails after Close.
//
// What a call does is steered by three functions, all nil at first: Before runs when a call comes in, Decide gives each
// record its outcome, After may change the answer. They are called without the sink's lock, so they may block and
// may call the sink's own methods.
type Sink struct {
	mu        sync.Mutex
	before    func(ctx context.Context, batch []core.Record) error
	decide    func(r core.Record) core.Outcome
	after     func(ctx context.Context, batch []core.Record, outcomes []core.Outcome) ([]core.Outcome, error)
	health    error
	closed    bool
	calls     int
	arrivals  []Arrival
	delivered int
	waiters   map[chan struct{}]int // wanted number of deliveries
	watch     watch
}

// Arrival is one record that reached the sink and what the sink said of it. A record answered NotAttempted because an
// earlier one of its key failed did not arrive.
type Arrival struct {
	Record  core.Record // a copy
	Outcome core.Outcome
	Call    int // number of the Deliver call, from 1
}

var _ core.Sink = (*Sink)(nil)

// NewSink returns a sink that delivers everything.
func NewSink() *Sink {
	return &Sink{waiters: map[chan struct{}]int{}, watch: newWatch()}
}

// Before sets what happens when a call comes in: nothing of a call whose Before fails arrives, and the call returns
// its error. Nil does nothing. See Block, Delay and Fail.
func (s *Sink) Before(f func(ctx context.Context, batch []core.Record) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// Decide sets what becomes of each record; nil delivers all. The records of one call are decided in order, and a
// keyed record behind one of its key that was not delivered is not asked about.
func (s *Sink) Decide(f func(r core.Record) core.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decide = f
}

// After sets what the caller gets once the batch has arrived: other outcomes, or an error although records were
// delivered. Nil changes nothing.
func (s *Sink) After(f func(ctx context.Context, batch []core.Record, outcomes []core.Outcome) ([]core.Outcome, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = f
}

// SetHealth sets what Health answers.
func (s *Sink) SetHealth(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health = err
}

// Describe says that the sink is called memory and has no settings and no limits.
func (s *Sink) Describe(context.Context) (core.Description, error) {
	return core.Description{
		Name:    "memory",
		Version: "1",
		Schema: []byte(`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",` +
			`"properties":{},"additionalProperties":false}`),
	}, nil
}

// Configure accepts the empty object only.
func (s *Sink) Configure(_ context.Context, settings []byte) ([]core.Diagnostic, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(settings, &object); err != nil || object == nil {
		return []core.Diagnostic{{Message: "the settings must be a JSON object"}}, nil
	}
	var diagnostics []core.Diagnostic
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for name := range object {
		diagnostics = append(diagnostics, core.Diagnostic{
			Pointer: "/" + escape.Replace(name), Message: "the memory sink has no settings",
		})
	}
	slices.SortFunc(diagnostics, func(a, b core.Diagnostic) int { return strings.Compare(a.Pointer, b.Pointer) })
	return diagnostics, nil
}

// Open does nothing.
func (s *Sink) Open(context.Context) error { return nil }

// Deliver keeps copies of the records and answers as it was told to.
func (s *Sink) Deliver(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
	s.mu.Lock()
	if s.closed {
		s.watch.report("Deliver was called after Close")
		s.mu.Unlock()
		return nil, fmt.Errorf("memory sink is closed: %w", core.ErrNotSent)
	}
	s.calls++
	call, before, decide, after := s.calls, s.before, s.decide, s.after
	places := s.watch.begin(batch)
	s.mu.Unlock()

	var answer []core.Outcome // nil while nothing is known
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watch.end(places, answer)
	}()
	if before != nil {
		if err := before(ctx, batch); err != nil {
			return nil, err
		}
	}
	outcomes := s.take(batch, call, decide)
	if after != nil {
		var err error
		if outcomes, err = after(ctx, batch, outcomes); err != nil {
			return nil, err
		}
	}
	answer = outcomes
	return outcomes, nil
}

// take decides the records of a batch in order and keeps those that arrive.
func (s *Sink) take(batch []core.Record, call int, decide func(core.Record) core.Outcome) []core.Outcome {
	outcomes := make([]core.Outcome, len(batch))
	failed := map[string]bool{} // lives no longer than the batch, so its keys need no copies
	for i, r := range batch {
		if r.Keyed && failed[r.Key] {
			outcomes[i] = core.Outcome{Kind: core.NotAttempted, Code: "behind",
				Message: "an earlier record of its key was not delivered"}
			continue
		}
		outcomes[i] = core.Outcome{Kind: core.Delivered}
		if decide != nil {
			outcomes[i] = decide(r)
		}
		if r.Keyed && outcomes[i].Kind != core.Delivered {
			failed[r.Key] = true
		}
		s.arrive(Arrival{Record: Clone(r), Outcome: outcomes[i], Call: call})
	}
	return outcomes
}

func (s *Sink) arrive(a Arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrivals = append(s.arrivals, a)
	if a.Outcome.Kind != core.Delivered {
		return
	}
	s.delivered++
	for ch, want := range s.waiters {
		if s.delivered >= want {
			close(ch)
			delete(s.waiters, ch)
		}
	}
}

// Health answers what SetHealth set.
func (s *Sink) Health(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("memory sink is closed")
	}
	return s.health
}

// Close makes later calls of Deliver fail.
func (s *Sink) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// Arrivals returns everything that arrived so far, in order.
func (s *Sink) Arrivals() []Arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.arrivals)
}

// Delivered returns the records the sink answered Delivered for, in order, repetitions included.
func (s *Sink) Delivered() []core.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	records := make([]core.Record, 0, s.delivered)
	for _, a := range s.arrivals {
		if a.Outcome.Kind == core.Delivered {
			records = append(records, a.Record)
		}
	}
	return records
}

// Calls is the number of Deliver calls so far, those that still run included.
func (s *Sink) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// WaitDelivered waits until n deliveries have been made since the sink was new, repetitions included.
func (s *Sink) WaitDelivered(ctx context.Context, n int) error {
	s.mu.Lock()
	if s.delivered >= n {
		s.mu.Unlock()
		return nil
	}
	ch := make(chan struct{})
	s.waiters[ch] = n
	s.mu.Unlock()
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiters, ch)
		return fmt.Errorf("wait for %d deliveries, have %d: %w", n, s.delivered, ctx.Err())
	}
}

// Violations lists where the caller broke the contract of core.Sink or the order of a key: a key in two calls at once,
// records of a key out of seq order, a record sent while an earlier one of its key must be sent again, a call after
// Close. Empty is good. Under ordering none keys mean nothing, and neither does this list.
func (s *Sink) Violations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.watch.violations)
}

// Excuse names rows that may be buried, held or skipped although their last outcome asked for another try, so that later
// records of their keys are no violation. Call it before they are sent.
func (s *Sink) Excuse(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.watch.excused[id] = true
	}
}

// Block returns a Before that waits until release is closed or the call's context is done.
func Block(release <-chan struct{}) func(context.Context, []core.Record) error {
	return func(ctx context.Context, _ []core.Record) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Delay returns a Before that takes its time.
func Delay(d time.Duration) func(context.Context, []core.Record) error {
	return func(ctx context.Context, _ []core.Record) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Fail returns a Before that fails each call with err.
func Fail(err error) func(context.Context, []core.Record) error {
	return func(context.Context, []core.Record) error { return err }
}

// Clone copies a record with everything it refers to.
func Clone(r core.Record) core.Record {
	r.ID, r.Key = strings.Clone(r.ID), strings.Clone(r.Key)
	r.Route, r.Type = strings.Clone(r.Route), strings.Clone(r.Type)
	r.Payload = slices.Clone(r.Payload)
	r.Headers = slices.Clone(r.Headers)
	for i, h := range r.Headers {
		r.Headers[i] = core.Header{Name: strings.Clone(h.Name), Value: strings.Clone(h.Value)}
	}
	return r
}
