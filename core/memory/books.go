package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/connectd/connectd/core"
)

var _ core.Books = (*Source)(nil)

// cleans says that owner is the one who cleans.
func (s *Source) cleans(owner string) bool {
	p := s.parts[0]
	return p.owner == owner && p.until.After(s.now())
}

// Clean removes rows whose time has come.
func (s *Source) Clean(ctx context.Context, req core.CleanRequest) (core.Cleaned, error) {
	if err := ctx.Err(); err != nil {
		return core.Cleaned{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.cleans(req.Owner) {
		return core.Cleaned{}, core.ErrLeaseNotOwned
	}
	c, removed := core.Cleaned{Removed: map[core.State]int{}}, 0
	for _, seq := range slices.Sorted(maps.Keys(s.bySeq)) {
		if seq <= req.After {
			continue
		}
		if c.Looked == req.Limit || req.UpTo > 0 && seq > req.UpTo {
			break
		}
		r := s.bySeq[seq]
		c.Looked, c.Last = c.Looked+1, seq
		goes, again := req.Retention.Judge(core.Kept{State: r.state, Since: s.since(r), Receipt: r.deliveries == 0 || s.completed(r.rec.ID)})
		if !goes || req.Full(removed) {
			c.Leave(again)
			continue
		}
		removed++
		c.Removed[r.state]++
		s.ledger[r.state]++
		s.remove(r)
	}
	return c, nil
}

// since is how long the row has been in its state.
func (s *Source) since(r *row) time.Duration {
	at := r.publishedAt
	if r.state != core.Published {
		if at = (time.Time{}); len(r.history) > 0 {
			at = r.history[len(r.history)-1].At
		}
	}
	if at.IsZero() {
		return -1
	}
	return s.now().Sub(at)
}

// complete stores a receipt for a row that was just settled, unless the consumer has one. A row that is gone with its
// settlement is known as cleaned.
func (s *Source) complete(r *row, consumer string) {
	id := r.rec.ID
	if s.receipts[id] == nil {
		s.receipts[id] = map[string]core.Receipt{}
	}
	if _, has := s.receipts[id][consumer]; !has {
		s.receipts[id][consumer] = core.Receipt{Command: id, Consumer: consumer, Status: core.ReceiptDone, At: s.now().UTC()}
	}
	if s.bySeq[r.seq] == nil {
		s.cleaned[id] = s.now()
	}
}

func (s *Source) completed(id string) bool {
	for _, r := range s.receipts[id] {
		if r.Status == core.ReceiptDone {
			return true
		}
	}
	return false
}

func (s *Source) remove(r *row) {
	delete(s.bySeq, r.seq)
	delete(s.byID, r.rec.ID)
	delete(s.parts[r.part].stopped, r.seq)
	if len(s.receipts[r.rec.ID]) > 0 {
		s.cleaned[r.rec.ID] = s.now()
	}
}

// CleanReceipts removes receipts that nobody needs any more.
func (s *Source) CleanReceipts(ctx context.Context, req core.ReceiptsRequest) (core.CleanedReceipts, error) {
	if err := ctx.Err(); err != nil {
		return core.CleanedReceipts{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.cleans(req.Owner) {
		return core.CleanedReceipts{}, core.ErrLeaseNotOwned
	}
	c := core.CleanedReceipts{Removed: map[core.RowPlace]int{}}
	for _, r := range s.receiptPage(core.ReceiptFilter{After: req.After, Limit: req.Limit}) {
		c.Looked, c.Last = c.Looked+1, r.Key()
		from := r.At
		if at, is := s.cleaned[r.Command]; is && at.After(from) {
			from = at
		}
		switch {
		case r.Row == core.RowThere || r.Row == core.RowElsewhere:
		case req.Retention >= 0 && s.now().Sub(from) >= req.Retention:
			c.Removed[r.Row]++
			delete(s.receipts[r.Command], r.Consumer)
			if len(s.receipts[r.Command]) == 0 {
				delete(s.receipts, r.Command)
				delete(s.cleaned, r.Command)
			}
		case r.Row == core.RowUnknown:
			c.Unknown = append(c.Unknown, r)
		}
	}
	return c, nil
}

// SaveReceipts stores receipts.
func (s *Source) SaveReceipts(ctx context.Context, list []core.Receipt) ([]core.ReceiptResult, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	call := core.NewReceiptCall(list, nil)
	stored, written := map[core.ReceiptKey]core.Receipt{}, map[core.ReceiptKey]bool{}
	for _, r := range call.Write {
		if s.receipts[r.Command] == nil {
			s.receipts[r.Command] = map[string]core.Receipt{}
		}
		of := s.receipts[r.Command]
		if is, there := of[r.Consumer]; !there || r.Replaces(is.Status) {
			r.At, written[r.Key()] = s.now().UTC(), true
			of[r.Consumer] = r
		}
		stored[r.Key()] = s.placed(of[r.Consumer])
	}
	return call.Answers(stored, written), nil
}

// Receipts lists receipts.
func (s *Source) Receipts(ctx context.Context, f core.ReceiptFilter) ([]core.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.receiptPage(f), nil
}

func (s *Source) receiptPage(f core.ReceiptFilter) []core.Receipt {
	var list []core.Receipt
	for command, of := range s.receipts {
		if f.Command != "" && f.Command != command || command < f.After.Command {
			continue
		}
		for consumer, r := range of {
			if command > f.After.Command || consumer > f.After.Consumer {
				list = append(list, s.placed(r))
			}
		}
	}
	slices.SortFunc(list, func(a, b core.Receipt) int {
		return cmp.Or(cmp.Compare(a.Command, b.Command), cmp.Compare(a.Consumer, b.Consumer))
	})
	return list[:min(len(list), cmp.Or(f.Limit, 100))]
}

func (s *Source) placed(r core.Receipt) core.Receipt {
	r.Row = s.place(r.Command)
	for _, other := range *s.tables {
		if r.Row == core.RowUnknown && other.place(r.Command) != core.RowUnknown {
			r.Row = core.RowElsewhere
		}
	}
	return r
}

// place is where this table has a command's row.
func (s *Source) place(command string) core.RowPlace {
	if s.byID[command] != nil {
		return core.RowThere
	}
	if _, is := s.cleaned[command]; is {
		return core.RowCleaned
	}
	return core.RowUnknown
}

// Ledger returns how many rows were removed, by state.
func (s *Source) Ledger() map[core.State]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.ledger)
}
