package daemon

import (
	"context"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/retention"
)

// cleaning removes what is done beside everything else, and lets receipts and changes to rows come in over HTTP. The
// function it returns ends that.
func (r *runner) cleaning(ctx context.Context, outbox Outbox) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	c := retention.Cleaner{Books: outbox, Owner: r.owner, Retention: r.Retention, Log: r.log, Observer: r.observe}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	r.open(outbox)
	return func() {
		r.open(nil)
		cancel()
		<-done
		r.observe.Unknown(0)
	}
}

// open lets HTTP have the outbox table, or none.
func (r *runner) open(outbox Outbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outbox = outbox
}

// Cleaned counts a batch of the cleaner. It implements retention.Observer.
func (o *observer) Cleaned(removed map[core.State]int, held time.Duration) {
	o.m.cleanTime.WithLabelValues(o.name).Observe(held.Seconds())
	for state, n := range removed {
		o.m.cleaned.WithLabelValues(o.name, string(state)).Add(float64(n))
	}
}

// Forgotten counts receipts that the cleaner removed.
func (o *observer) Forgotten(removed map[core.RowPlace]int) {
	for place, n := range removed {
		o.m.forgotten.WithLabelValues(o.name, string(place)).Add(float64(n))
	}
}

// Unknown notes how many receipts there are of no known row.
func (o *observer) Unknown(receipts int) { o.m.unknown.WithLabelValues(o.name).Set(float64(receipts)) }

// received counts answers to receipts.
func (o *observer) received(results []core.ReceiptResult) {
	for _, r := range results {
		status := r.Receipt.Status
		if status != core.ReceiptDone && status != core.ReceiptFailed {
			status = "other" // whatever somebody sent: a label has few values
		}
		o.m.receipts.WithLabelValues(o.name, string(status), string(r.Answer)).Inc()
	}
}

// bookkeepers are where the receipts of each connector go, and where its rows are.
func bookkeepers(runners []*runner) []bookkeeper {
	list := make([]bookkeeper, len(runners))
	for i, r := range runners {
		r.mu.Lock()
		list[i] = bookkeeper{r.Name, r.outbox, r.outbox, r.observe.received}
		r.mu.Unlock()
	}
	return list
}
