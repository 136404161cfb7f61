package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/connectd/connectd/core"
)

// How long after a mark the next is taken: when rows have been read since, and when others have written something.
const (
	markSoon  = time.Second
	markLater = 5 * time.Second
	markNotes = 64
)

// horizon tells a page which transactions its snapshot could not see yet.
//
// A snapshot does not say that: its xmax is one more than the last transaction that has ended, and those with higher
// numbers may be running. So every now and then a mark is taken, which is a transaction of our own that takes a number
// and does nothing else: all that run at that moment have lower ones. When a snapshot's xmin is above a mark, all of
// those have ended. Marks are counted, and their counts are what core.Horizon calls transaction numbers: a page names
// the next mark, which will be taken after its snapshot, and the last mark that its snapshot has passed.
type horizon struct {
	marking sync.Mutex // held by whoever takes a mark

	mu    sync.Mutex
	begun int64 // marks begun
	marks []mark
	at    time.Time // of the last mark
	read  bool      // rows have been read since
	wrote bool      // somebody has written since
}

// mark is a transaction: its place among the marks, and its number.
type mark struct{ count, xid int64 }

// refresh takes a mark if one is due.
func (h *horizon) refresh(ctx context.Context, q querier) error {
	if !h.marking.TryLock() {
		return nil
	}
	defer h.marking.Unlock()
	h.mu.Lock()
	age := time.Since(h.at)
	due := h.begun == 0 || h.read && age >= markSoon || h.wrote && age >= markLater
	if due {
		h.begun++
	}
	count := h.begun
	h.mu.Unlock()
	if !due {
		return nil
	}
	var xid int64
	if err := q.QueryRow(ctx, takeMark).Scan(&xid); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at, h.read, h.wrote = time.Now(), false, false
	if h.marks = append(h.marks, mark{count, xid}); len(h.marks) > markNotes {
		h.marks = h.marks[1:]
	}
	return nil
}

// takeMark takes a number and writes nothing that anybody would wait for.
const takeMark = `SELECT pg_current_xact_id()::text::bigint`

// of is the horizon of a page that has just come, with its snapshot's xmin and xmax.
func (h *horizon) of(xmin, xmax int64, rows int) *core.Horizon {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.read = h.read || rows > 0
	p := &core.Horizon{Next: h.begun + 1}
	for _, m := range h.marks {
		if m.xid < xmin {
			p.Oldest = m.count
		}
		h.wrote = xmax > m.xid+1
	}
	return p
}
