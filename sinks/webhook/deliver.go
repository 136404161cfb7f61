package webhook

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/connectd/connectd/core"
)

// delivery is one call of Deliver. The batch is divided into lanes: a lane has all records of its keys, and sends them in
// order, one request after another; lanes run beside each other. After a record that was not delivered, none of its key is
// sent.
type delivery struct {
	*courier
	batch    []core.Record
	outcomes []core.Outcome // each lane writes those of its records
	gate     context.Context
	shut     context.CancelCauseFunc // ends gate: nothing more of this call is begun
}

// lane is some of a batch's records, on their way one request after another.
type lane struct {
	*delivery
	hurried bool            // the call waits for this lane alone
	stopped map[string]bool // keys with a record that was not delivered
}

// closedError is why a gate was shut: the outcome that every record of the sink would have.
type closedError struct{ outcome core.Outcome }

func (e *closedError) Error() string { return e.outcome.Message }

// deliver sends the batch and returns an outcome for each record, soon after ctx is done at the latest.
func (c *courier) deliver(ctx context.Context, batch []core.Record) []core.Outcome {
	d := &delivery{courier: c, batch: batch, outcomes: make([]core.Outcome, len(batch))}
	open, cancel := c.lastStart(ctx)
	defer cancel()
	d.gate, d.shut = context.WithCancelCause(open)
	defer d.shut(nil)
	lanes := divide(batch, c.perRequest, c.perRow)
	if len(lanes) == 1 {
		(&lane{delivery: d, hurried: true}).send(ctx, lanes[0])
		return d.outcomes
	}
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(len(lanes), d.lanes) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(lanes)); i = next.Add(1) - 1 {
				(&lane{delivery: d}).send(ctx, lanes[i])
			}
		})
	}
	wg.Wait()
	return d.outcomes
}

// lastStart ends when no request may be begun any more: when less time is left of the call than one may take, or than two
// thirds of a call that is shorter. What has not begun is known not to have been sent; of what is cut off nobody knows.
func (c *courier) lastStart(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(c.total, time.Until(deadline)*2/3)))
}

// divide makes lanes: one for each key and each record without a key, and when a request takes several rows, as many keys
// together as fill one.
func divide(batch []core.Record, perRequest int, once bool) [][]int {
	keys := make(map[string]int, len(batch)) // the lane of each
	var lanes [][]int
	for i := range batch {
		if !batch[i].Keyed {
			lanes = append(lanes, []int{i})
		} else if at, known := keys[batch[i].Key]; known {
			lanes[at] = append(lanes[at], i)
		} else {
			keys[batch[i].Key] = len(lanes)
			lanes = append(lanes, []int{i})
		}
	}
	if perRequest == 1 {
		return lanes
	}
	var full [][]int
	weight := perRequest
	for _, l := range lanes {
		w := len(l)
		if once {
			w = 1 // of its rows one request has only one
		}
		if weight += w; len(full) == 0 || weight > perRequest {
			full, weight = append(full, nil), w
		}
		full[len(full)-1] = append(full[len(full)-1], l...)
	}
	for _, l := range full {
		slices.Sort(l)
	}
	return full
}

// send sends records in order and notes their outcomes.
func (l *lane) send(ctx context.Context, records []int) {
	for {
		if l.gate.Err() != nil {
			l.note(records, l.closed())
			return
		}
		records = slices.DeleteFunc(records, l.behind)
		if len(records) == 0 {
			return
		}
		m, unfit := l.composer.compose(l.batch, l.front(records))
		if unfit != nil {
			l.note(records[:1], *unfit)
			records = records[1:]
			continue
		}
		l.exchange(ctx, m)
		records = without(records, m.records)
	}
}

// without is records but those that some names, in the same order.
func without(records, some []int) []int {
	var rest []int
	for _, i := range records {
		if len(some) > 0 && some[0] == i {
			some = some[1:]
		} else {
			rest = append(rest, i)
		}
	}
	return rest
}

// behind notes that a record is behind one of its key that was not delivered, if so.
func (l *lane) behind(i int) bool {
	if !l.batch[i].Keyed || !l.stopped[l.batch[i].Key] {
		return false
	}
	l.outcomes[i] = core.Outcome{
		Kind: core.NotAttempted, Code: "behind", Message: "an earlier record of the same key was not delivered",
	}
	return true
}

// front is what the next request may take from: all, or where answers are per row, the first of each key, since a receiver
// that takes rows one by one might refuse a row and take the next of its key.
func (l *lane) front(records []int) []int {
	if !l.perRow {
		return records
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(records), func(i int) bool {
		r := &l.batch[i]
		again := r.Keyed && seen[r.Key]
		seen[r.Key] = seen[r.Key] || r.Keyed
		return again
	})
}

// exchange sends one message and notes the outcomes of its records. If one of several may be to blame, the halves are sent,
// in order.
func (l *lane) exchange(ctx context.Context, m *message) {
	v, sent := l.attempt(ctx, l.gate, m, l.hurried)
	if v.split && len(m.records) > 1 {
		half := (len(m.records) + 1) / 2
		l.send(ctx, slices.Clone(m.records[:half]))
		l.send(ctx, slices.Clone(m.records[half:]))
		return
	}
	if v.outcome.AboutSink() {
		l.shut(&closedError{v.outcome})
	}
	for at, i := range m.records {
		switch {
		case v.outcome.Kind == core.NotAttempted:
			l.note([]int{i}, l.closed())
		case len(v.perRecord) == len(m.records):
			l.note([]int{i}, v.perRecord[at])
		case !sent && l.behind(i): // of the same message, of which nothing was sent
		default:
			l.note([]int{i}, v.outcome)
		}
	}
}

// note notes an outcome for records.
func (l *lane) note(records []int, o core.Outcome) {
	for _, i := range records {
		l.outcomes[i] = o
		if o.Kind == core.Delivered || !l.batch[i].Keyed {
			continue
		}
		if l.stopped == nil {
			l.stopped = map[string]bool{}
		}
		l.stopped[l.batch[i].Key] = true
	}
}

// closed is the outcome of records that are not begun because the gate is shut.
func (l *lane) closed() core.Outcome {
	var why *closedError
	if errors.As(context.Cause(l.gate), &why) {
		return core.Outcome{
			Kind: core.NotAttempted, Scope: core.ScopeSink, Code: why.outcome.Code, Message: why.outcome.Message,
		}
	}
	return *notBegun()
}
