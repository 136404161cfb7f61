package single

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/connectd/connectd/core"
)

// Deliver sends the records one after another. A record that fails stops its key. The batch is stopped by a failure of the
// sink, by two records in a row without an answer, which may be the sink's fault too, and by the time.
func (s *Sink[S]) Deliver(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
	p := s.current()
	if p == nil {
		return nil, fmt.Errorf("the %s sink is not open: %w", s.name, core.ErrNotSent)
	}
	inTime := begins(ctx)
	outcomes := make([]core.Outcome, len(batch))
	stopped := map[string]bool{} // keys with a record that was not delivered
	silent := 0                  // records in a row without an answer
	down := false
	for i := range batch {
		r, o := &batch[i], &outcomes[i]
		if down = down || silent == 2 || !inTime(); down || r.Keyed && stopped[r.Key] {
			o.Kind = core.NotAttempted
			continue
		}
		*o = p.send(ctx, *r)
		down = o.AboutSink()
		if silent++; !o.Unknown {
			silent = 0
		}
		if r.Keyed && o.Kind != core.Delivered {
			stopped[r.Key] = true
		}
	}
	return outcomes, nil
}

// begins returns whether there is time to begin another record: nothing is begun in the second half of a call's time, which
// leaves each record that much at least.
func begins(ctx context.Context) func() bool {
	deadline, ok := ctx.Deadline()
	if !ok {
		return func() bool { return ctx.Err() == nil }
	}
	half := deadline.Add(-time.Until(deadline) / 2)
	return func() bool { return ctx.Err() == nil && time.Now().Before(half) }
}

// send sends one record.
func (p *pool) send(ctx context.Context, r core.Record) core.Outcome {
	c, err := p.take(ctx)
	if err != nil {
		return core.Outcome{Kind: core.Retryable, Scope: core.ScopeSink, Code: "connect", Message: p.mask(err.Error())}
	}
	err = p.use(ctx, c, func(ctx context.Context) error { return c.Send(ctx, r) })
	failure, answered := errors.AsType[Failure](err)
	switch {
	case err == nil:
		return core.Outcome{Kind: core.Delivered}
	case answered:
		o := failure.outcome()
		o.Code, o.Message = p.mask(o.Code), p.mask(o.Message)
		return o
	case errors.Is(err, core.ErrNotSent):
		return core.Outcome{Kind: core.Retryable, Scope: core.ScopeSink, Code: "not_sent", Message: p.mask(err.Error())}
	case ctx.Err() != nil:
		return core.Outcome{Kind: core.Retryable, Unknown: true, Code: "timeout", Message: p.mask("no confirmation in time: " + err.Error())}
	default:
		return core.Outcome{Kind: core.Retryable, Unknown: true, Code: "unconfirmed", Message: p.mask("no confirmation: " + err.Error())}
	}
}
