package memory

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/connectd/connectd/core"
)

// Source is an outbox table in memory. Any number of workers may share one: it is the database. All methods may be
// called from several goroutines; one mutex serialises them, so each sees and makes whole transactions.
type Source struct {
	// KeepPublished keeps published rows; otherwise publishing deletes the row. Set it before use.
	KeepPublished bool

	now   func() time.Time
	wake  chan struct{}
	parts []*partition

	mu      *sync.Mutex // the database's
	lastSeq int64
	lastTx  int64
	running []int64 // numbers of open transactions, ascending
	bySeq   map[int64]*row
	byID    map[string]*row
	workers map[string]worker
	changes int64

	receipts map[string]map[string]core.Receipt // of the database, by command and consumer
	tables   *[]*Source                         // of the database
	cleaned  map[string]time.Time               // ids of rows that were cleaned and have a receipt
	ledger   map[core.State]int
}

var (
	_ core.Source   = (*Source)(nil)
	_ core.Operator = (*Source)(nil)
	_ core.Waiter   = (*Source)(nil)
)

// partition is one lease with its rows.
type partition struct {
	owner    string
	epoch    int64
	until    time.Time
	inflight []Inflight // in order of epoch, then batch
	// queue holds every pending row, by seq, and rows that were pending a while ago: stale counts those, and when
	// they are the half they are swept. So settling costs nothing and a fetch skips few.
	queue []*row
	stale int
	// stopped holds the dead and the held rows.
	stopped map[int64]*row
}

type row struct {
	seq     int64
	part    int
	rec     core.Record
	headers string
	invalid string

	state        core.State
	queued       bool // is in its partition's queue
	available    time.Time
	attempts     int
	deliveries   int
	crashes      int
	lastError    string
	failingSince time.Time
	publishedAt  time.Time
	history      []core.Attempt
	revisions    []core.Revision
}

type worker struct {
	at   time.Time
	info []byte
}

// Inflight is one inflight row: an announced batch that is not settled.
type Inflight struct {
	Epoch, Batch int64
	Seqs         []int64
	SentAt       time.Time
}

// NewSource returns an empty table of that many partitions, all free. now is the database's clock.
func NewSource(partitions int, now func() time.Time) *Source {
	return tableIn(partitions, now, &Source{mu: new(sync.Mutex), receipts: map[string]map[string]core.Receipt{}, tables: &[]*Source{}})
}

// Beside makes another outbox table in the same database, which shares the receipts.
func (s *Source) Beside() *Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	table := tableIn(len(s.parts), s.now, s)
	table.KeepPublished = s.KeepPublished
	return table
}

// tableIn makes a table in the database that another one is in.
func tableIn(partitions int, now func() time.Time, in *Source) *Source {
	s := &Source{
		mu: in.mu, receipts: in.receipts, tables: in.tables,

		now:     now,
		wake:    make(chan struct{}, 1),
		parts:   make([]*partition, partitions),
		bySeq:   map[int64]*row{},
		byID:    map[string]*row{},
		workers: map[string]worker{},

		cleaned: map[string]time.Time{},
		ledger:  map[core.State]int{},
	}
	*s.tables = append(*s.tables, s)
	for i := range s.parts {
		s.parts[i] = &partition{stopped: map[int64]*row{}}
	}
	return s
}

// enqueue puts a row that just became pending where a fetch finds it.
func (s *Source) enqueue(r *row) {
	p := s.parts[r.part]
	delete(p.stopped, r.seq)
	if r.queued {
		p.stale--
		return
	}
	r.queued = true
	if n := len(p.queue); n == 0 || p.queue[n-1].seq < r.seq {
		p.queue = append(p.queue, r)
		return
	}
	p.queue = slices.Insert(p.queue, p.after(r.seq), r)
}

// after is the place in the queue of the first row above seq.
func (p *partition) after(seq int64) int {
	return sort.Search(len(p.queue), func(i int) bool { return p.queue[i].seq > seq })
}

// leave takes a row out of pending into state.
func (s *Source) leave(r *row, state core.State) {
	p := s.parts[r.part]
	r.state = state
	switch state {
	case core.Dead, core.Held:
		p.stopped[r.seq] = r
	case core.Published:
		r.publishedAt = s.now().UTC()
		if !s.KeepPublished {
			delete(s.bySeq, r.seq)
			delete(s.byID, r.rec.ID)
			s.ledger[state]++
		}
	}
	p.stale++
	if p.stale <= len(p.queue)/2 {
		return
	}
	p.queue = slices.DeleteFunc(p.queue, func(r *row) bool {
		r.queued = r.state == core.Pending
		return !r.queued
	})
	p.stale = 0
}

func (s *Source) part(i int) *partition {
	if i < 0 || i >= len(s.parts) {
		return &partition{}
	}
	return s.parts[i]
}

// Partitions is the number given to NewSource.
func (s *Source) Partitions(ctx context.Context) (int, error) { return len(s.parts), ctx.Err() }

// Wait returns after the next commit, or at once when there was one since the last call. With several workers on one
// Source a commit wakes one of them.
func (s *Source) Wait(ctx context.Context) error {
	select {
	case <-s.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close does nothing: the table belongs to the test, not to one worker.
func (s *Source) Close() error { return nil }

// Rows returns every committed row in seq order, without payloads and headers.
func (s *Source) Rows() []core.RowInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	sending := s.sending()
	infos := make([]core.RowInfo, 0, len(s.bySeq))
	for _, r := range s.bySeq {
		infos = append(infos, r.info(sending))
	}
	slices.SortFunc(infos, func(a, b core.RowInfo) int { return cmp.Compare(a.Seq, b.Seq) })
	return infos
}

// Inflight returns the partition's inflight rows, in order of epoch and batch. The slices are the caller's.
func (s *Source) Inflight(part int) []Inflight {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.Clone(s.part(part).inflight)
	for i := range list {
		list[i].Seqs = slices.Clone(list[i].Seqs)
	}
	return list
}

func (s *Source) sending() map[int64]bool {
	sending := map[int64]bool{}
	for _, p := range s.parts {
		for _, in := range p.inflight {
			for _, seq := range in.Seqs {
				sending[seq] = true
			}
		}
	}
	return sending
}

func (r *row) info(sending map[int64]bool) core.RowInfo {
	refused := 0
	for _, a := range r.history {
		if a.Refused() {
			refused++
		}
	}
	return core.RowInfo{
		Seq: r.seq, ID: r.rec.ID, Key: r.rec.Key, Keyed: r.rec.Keyed, Route: r.rec.Route, Type: r.rec.Type,
		State: r.state, Sending: r.state == core.Pending && sending[r.seq], Part: r.part, Attempts: r.attempts,
		Deliveries: r.deliveries, Refused: refused, Crashes: r.crashes, LastError: r.lastError, CreatedAt: r.rec.CreatedAt,
		AvailableAt: r.available, PublishedAt: r.publishedAt, Size: int64(len(r.rec.Payload)),
	}
}

// note writes one entry of the row's history.
func (r *row) note(a core.Attempt) {
	r.history = append(r.history, a)
	if over := len(r.history) - core.MaxHistory; over > 0 {
		r.history = slices.Delete(r.history, 0, over)
	}
}

func errorText(code, message string) string {
	return core.CleanText(strings.TrimSuffix(code+": "+message, ": "))
}
