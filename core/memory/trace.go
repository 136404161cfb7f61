package memory

import (
	"context"
	"slices"

	"github.com/connectd/connectd/core"
)

// Queue tells what a pending row waits behind.
func (s *Source) Queue(ctx context.Context, of core.RowInfo, held ...core.State) (core.Queue, error) {
	if err := ctx.Err(); err != nil {
		return core.Queue{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := core.Queue{Now: s.now().UTC()}
	p := s.part(of.Part)
	for _, in := range p.inflight {
		if slices.Contains(in.Seqs, of.Seq) {
			q.Sent = &core.Sent{At: in.SentAt, Epoch: in.Epoch}
		}
	}
	var first *row
	consider := func(r *row) {
		if r.seq < of.Seq && len(held) > 0 && of.Keyed && r.rec.Keyed && r.rec.Key == of.Key && (first == nil || r.seq < first.seq) {
			first = r
		}
	}
	for _, r := range p.queue {
		if r.state == core.Pending && r.seq < of.Seq && q.Before < core.QueueBound {
			q.Before++
			consider(r)
		}
	}
	for _, r := range p.stopped {
		if slices.Contains(held, r.state) {
			consider(r)
		}
	}
	if first != nil {
		info := first.info(s.sending())
		q.First = &info
	}
	return q, nil
}

// Trace finds the receipts of an id.
func (s *Source) Trace(ctx context.Context, id string) (core.Trace, error) {
	if err := ctx.Err(); err != nil {
		return core.Trace{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var trace core.Trace
	if id != "" {
		trace.Receipts = s.receiptPage(core.ReceiptFilter{Command: id})
	}
	for _, n := range s.ledger {
		trace.Cleaned += int64(n)
	}
	return trace, nil
}
