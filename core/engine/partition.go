package engine

import (
	"math"
	"slices"
	"time"

	"github.com/connectd/connectd/core"
)

// Instants are times on the worker's monotonic clock since the connector began.

const (
	never = time.Duration(math.MaxInt64)
	// whenRoom marks a key whose rows in memory reached their share: its later rows are read again when these are
	// nearly done.
	whenRoom = time.Duration(math.MaxInt64 - 1)

	rescanEvery  = time.Minute
	rescanPause  = 100 * time.Millisecond // between two readings from the start, at least
	floorNoteAge = 2 * time.Second
	maxNotes     = 64
	longestWait  = 24 * time.Hour // a row due later is looked at again then; and no sum overflows
	maxCrowd     = 10
	maxExclude   = 10_000 // keys and rows named to the source; the rest is dropped as it comes
)

// partition is a worker's memory of one leased partition.
//
// There is one reading position, pos. Every pending, committed row at or below it is either in memory, or not due
// and in waiting, or its key is in behind: the key's later rows are then dropped as they are read. A key leaves behind
// only together with pos going back to the start, so that its rows come again in order, all of them. (Rows that
// commit late, behind pos, are found because each read begins at the floor.)
type partition struct {
	lease     core.Lease
	deadline  time.Duration // local: nothing is sent after it
	suspended bool          // the lease is in doubt until a renewal answers
	draining  bool          // being handed over: nothing new is read or announced
	releasing bool
	lost      bool

	reading  bool
	stepping bool
	step     *step // issued and not known to have committed or failed for good

	rows  map[int64]*entry // in memory: queued or in a batch
	order []*entry         // the same by seq, with holes (gone entries) swept now and then
	gone  int
	// memory is what the rows take, of which lent is beyond their keys' shares.
	memory, lent amount
	// How many rows in memory must be sent carefully, and how many cannot be sent at all.
	suspects, unsendable int
	keys                 map[string]*keyState
	batches              map[int64]*batch
	lastID               int64

	// trouble counts, for a row, the calls in a row that failed as a whole with it and whose fault that was nobody knows.
	// Such rows go alone and after a pause, so that one that fails every call stops no other.
	trouble map[int64]failedCalls

	behind  map[string]time.Duration // key → when it may go on
	blocked map[string]int64         // key → lowest row that blocks it, as last read
	waiting map[int64]time.Duration  // rows without an order that are not due → when they are

	pos, high int64 // reading position; the highest it has been
	// The operators' changes: of which pages and heartbeats told, and of which one had told when the reading from the start
	// began, or its first page.
	told, began int64
	// Rows that were sent before and that a page had with changes later than that: those of the last reading from the start, and
	// of this one.
	seen, late map[int64]bool
	floor      int64 // no row at or below it can still commit
	notes      []note
	scanning   bool          // pos is on its way from the start
	stopped    *step         // the first that made rows dead or held since the last read was asked for
	needBlock  bool          // the blocked keys are to be read before the next page
	scanAt     time.Duration // when the next reading from the start is due; never while one runs, unless it is asked for
	scanAgain  time.Duration // not before
	scanBegan  time.Duration
	ready      time.Duration // when the first key in behind or row in waiting may go on
	nextRead   time.Duration
	readAgain  time.Duration // not before, after a failed read
	idle       time.Duration // present pause between reads that find nothing
	woken      bool          // something may have been committed since the running read began
	readAlone  bool          // its last read failed
	expect     int           // rows that the next read will find, as far as the last one tells
	crowd      int           // how often the limit of a read is doubled, see take
}

// failedCalls is what a row's calls that failed as a whole amount to.
type failedCalls struct {
	calls     int
	since     time.Duration // since when others were delivered meanwhile
	published int64         // by the connector, when it was last looked at
	progress  time.Duration // when that was last seen to have risen
}

type note struct {
	pos, next int64
	at        time.Duration
}

// entry is a row in memory. row.Deliveries, Attempts and Crashes are as last known in the database.
type entry struct {
	row    core.Row
	size   int64
	readAt time.Duration
	batch  *batch // nil: queued
	gone   bool
	lent   bool // beyond its key's share of memory
}

// keyState counts a key's rows in memory; busy is the batch that holds some of them.
type keyState struct {
	memory, lent amount
	busy         *batch
}

func newPartition(l core.Lease, deadline time.Duration, changes int64) *partition {
	return &partition{
		lease: l, deadline: deadline, told: changes, began: changes, late: map[int64]bool{},
		rows: map[int64]*entry{}, keys: map[string]*keyState{}, batches: map[int64]*batch{}, trouble: map[int64]failedCalls{},
		behind: map[string]time.Duration{}, blocked: map[string]int64{}, waiting: map[int64]time.Duration{},
		ready: never, scanning: true, needBlock: true, scanAt: never, expect: stepRows,
	}
}

// key returns the row's ordering key, and whether it has one.
func (m *machine) key(r *core.Row) (string, bool) {
	return r.Record.Key, r.Record.Keyed && m.policy.Ordered
}

// admit takes one row that was read into memory, or notes why it must wait. It reports whether it was taken.
func (m *machine) admit(p *partition, r core.Row, now time.Duration) bool {
	seq := r.Record.Seq
	if _, ok := p.rows[seq]; ok {
		return false // memory knows it better than this snapshot
	}
	due := now + min(r.Wait, longestWait)
	delete(p.waiting, seq)
	key, keyed := m.key(&r)
	if !keyed {
		if r.Wait > 0 {
			p.wait(m, seq, due)
			return false
		}
		p.insert(m, &entry{row: r, size: int64(r.Record.Size()), readAt: now}, nil)
		return true
	}
	ks := p.keys[key]
	block, isBlocked := p.blocked[key]
	if m.off.blockAbove {
		block = -1
	}
	_, behind := p.behind[key]
	switch {
	case behind && !m.off.behind:
		return false
	case isBlocked && seq > block:
		p.putBehind(key, never)
		return false
	case r.Wait > 0:
		if !m.off.noteBehind {
			p.putBehind(key, due)
		}
		return false
	}
	place, lent := m.place(ks)
	if !place {
		p.putBehind(key, whenRoom)
		return false
	}
	if ks == nil {
		ks = &keyState{}
		p.keys[key] = ks
	}
	p.insert(m, &entry{row: r, size: int64(r.Record.Size()), readAt: now, lent: lent}, ks)
	return true
}

func (p *partition) wait(m *machine, seq int64, until time.Duration) {
	if len(p.waiting) < m.exclude {
		p.waiting[seq] = until
	}
	p.ready = min(p.ready, until)
}

func (p *partition) putBehind(key string, until time.Duration) {
	p.behind[key] = until
	if until != whenRoom {
		p.ready = min(p.ready, until)
	}
}

// weigh keeps the weights of the partition, and of its key if it has one, when e comes (+1) or goes (-1).
func (p *partition) weigh(e *entry, ks *keyState, by int) {
	size := amount{by, int64(by) * e.size}
	p.memory = p.memory.plus(size)
	if ks != nil {
		ks.memory = ks.memory.plus(size)
	}
	if e.lent {
		p.lent, ks.lent = p.lent.plus(size), ks.lent.plus(size)
	}
}

// countRow keeps the partition's counts when e comes (+1) or goes (-1).
func (p *partition) countRow(m *machine, e *entry, by int) {
	if careful, _ := suspect(e); careful {
		p.suspects += by
	}
	if m.unsendable(e) != "" {
		p.unsendable += by
	}
}

func (p *partition) insert(m *machine, e *entry, ks *keyState) {
	seq := e.row.Record.Seq
	p.rows[seq] = e
	p.weigh(e, ks, +1)
	p.countRow(m, e, +1)
	if n := len(p.order); n == 0 || p.order[n-1].row.Record.Seq < seq {
		p.order = append(p.order, e)
		return
	}
	at, _ := slices.BinarySearchFunc(p.order, seq, func(e *entry, s int64) int {
		return int(min(max(e.row.Record.Seq-s, -1), 1))
	})
	p.order = slices.Insert(p.order, at, e)
}

// remove forgets a row.
func (m *machine) remove(p *partition, e *entry, now time.Duration) {
	if e.gone {
		return
	}
	delete(p.rows, e.row.Record.Seq)
	p.countRow(m, e, -1)
	e.gone = true
	p.gone++
	key, keyed := m.key(&e.row)
	if !keyed {
		p.weigh(e, nil, -1)
		return
	}
	ks := p.keys[key]
	p.weigh(e, ks, -1)
	if until, ok := p.behind[key]; ok && until == whenRoom && m.nearlyDone(ks) {
		p.ready, p.scanAgain = now, now // rows are waiting and there is room: no pause
	}
	if ks.memory.rows == 0 && ks.busy == nil {
		delete(p.keys, key)
	}
}

// sweep drops gone entries from order when they are the half of it.
func (p *partition) sweep() {
	if p.gone > 64 && p.gone*2 > len(p.order) {
		p.order = slices.DeleteFunc(p.order, func(e *entry) bool { return e.gone })
		p.gone = 0
	}
}

// holdBack takes the queued rows of a key out of memory and puts the key behind: they are read again, in order.
func (m *machine) holdBack(p *partition, key string, until time.Duration, now time.Duration) {
	p.putBehind(key, until)
	ks := p.keys[key]
	if ks == nil || ks.memory.rows == 0 {
		return
	}
	for _, e := range p.order {
		if e.gone || e.batch != nil {
			continue
		}
		if k, keyed := m.key(&e.row); keyed && k == key {
			m.remove(p, e, now)
		}
	}
}
