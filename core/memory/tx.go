package memory

import (
	"hash/fnv"
	"slices"
	"unicode/utf8"

	"github.com/connectd/connectd/core"
)

// Row is what an application inserts.
type Row struct {
	ID string
	// Key is the ordering key if Keyed, else the column is NULL.
	Key     string
	Keyed   bool
	Route   string
	Type    string
	Payload []byte
	// Headers is the column's text, a JSON object; "" is NULL.
	Headers string
}

// Tx is an application's transaction. Transactions may overlap and end in any order; each is used by one goroutine.
type Tx struct {
	s    *Source
	num  int64 // 0 until the first insert
	rows []*row
}

// Begin opens a transaction. It gets its number at its first insert.
func (s *Source) Begin() *Tx { return &Tx{s: s} }

// TakeSeq takes the next seq from the table's sequence, as an application may do before its transaction.
func (s *Source) TakeSeq() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastSeq++
	return s.lastSeq
}

// Insert adds a row with the next seq, which it returns. The row is seen when the transaction commits.
func (t *Tx) Insert(r Row) int64 {
	seq := t.s.TakeSeq()
	t.InsertAt(seq, r)
	return seq
}

// InsertAt adds a row with a seq of the caller's. Later seqs are higher than any seq ever used.
func (t *Tx) InsertAt(seq int64, r Row) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.num == 0 {
		t.s.lastTx++
		t.num = t.s.lastTx
		t.s.running = append(t.s.running, t.num)
	}
	t.s.lastSeq = max(t.s.lastSeq, seq)
	t.rows = append(t.rows, t.s.newRow(seq, r))
}

// Commit makes the transaction's rows visible, all at once. It panics when an id or a seq is there already: the
// table has a unique constraint, and a test that runs into it is wrong.
func (t *Tx) Commit() {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range t.rows {
		if s.bySeq[r.seq] != nil || s.byID[r.rec.ID] != nil {
			panic("memory: row " + r.rec.ID + " is there already")
		}
		s.bySeq[r.seq], s.byID[r.rec.ID] = r, r
		s.enqueue(r)
	}
	t.end()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Rollback drops the transaction. Its seqs are not used again.
func (t *Tx) Rollback() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.end()
}

func (t *Tx) end() {
	t.rows = nil
	if i, found := slices.BinarySearch(t.s.running, t.num); found {
		t.s.running = slices.Delete(t.s.running, i, i+1)
	}
}

func (s *Source) newRow(seq int64, in Row) *row {
	if !in.Keyed {
		in.Key = ""
	}
	r := &row{
		seq: seq, part: s.partOf(in), headers: in.Headers, state: core.Pending,
		rec: core.Record{
			ID: in.ID, Key: in.Key, Keyed: in.Keyed, Route: in.Route, Type: in.Type,
			Payload: slices.Clone(in.Payload), CreatedAt: s.now().UTC(), Seq: seq,
		},
	}
	r.judge()
	return r
}

// judge reads the headers and says whether the row is fit to be sent.
func (r *row) judge() {
	r.invalid = ""
	var err error
	if r.rec.Headers, err = core.ParseHeaders([]byte(r.headers)); err != nil {
		r.invalid = err.Error()
	}
	for _, f := range []struct{ name, text string }{{"id", r.rec.ID}, {"key", r.rec.Key}, {"route", r.rec.Route}, {"type", r.rec.Type}} {
		if !utf8.ValidString(f.text) {
			r.invalid = f.name + " is not UTF-8"
		}
	}
}

// partOf hashes the key, or the id when there is no key.
func (s *Source) partOf(r Row) int {
	text := r.ID
	if r.Keyed {
		text = r.Key
	}
	h := fnv.New32a()
	h.Write([]byte(text))
	return int(h.Sum32() % uint32(len(s.parts)))
}
