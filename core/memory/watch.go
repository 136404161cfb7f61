package memory

import (
	"fmt"
	"strings"

	"github.com/connectd/connectd/core"
)

// watch looks at what a sink is sent and notes what the caller may not do while ordering is by key:
//   - two batches at the same time share a key;
//   - a batch has a key's records out of seq order;
//   - a record is sent although an earlier one of its key was sent, must be sent again, and is not in the same batch;
//   - a record is sent for the first time after a later one of its key;
//
// except that records named by excuse may be passed.
//
// Repeating what was delivered is allowed. A worker that lost its lease may break these rules once, with what it had
// announced. Seqs are those of one outbox table; records without a key have no order.
type watch struct {
	keys       map[string]*lane
	excused    map[string]bool // ids that may be passed by the later records of their key
	violations []string
}

// lane is what is known of one key.
type lane struct {
	calls     int            // in flight
	delivered map[int64]bool // seqs delivered at least once
	owed      map[int64]bool // seqs sent whose last word was neither Delivered nor Permanent
	highest   int64          // seq sent so far
}

// place is where a record belongs.
type place struct {
	key string
	seq int64
}

// maxViolations bounds the list; a broken test needs no more to be understood.
const maxViolations = 100

func newWatch() watch {
	return watch{keys: map[string]*lane{}, excused: map[string]bool{}}
}

func (w *watch) report(format string, args ...any) {
	if len(w.violations) < maxViolations {
		w.violations = append(w.violations, fmt.Sprintf(format, args...))
	}
}

// begin notes a call. Its keyed records are owed from here on. It returns their places, for end.
func (w *watch) begin(batch []core.Record) []place {
	places := make([]place, len(batch)) // the zero place for a record without a key
	inBatch := map[string][]int64{}
	excused := map[int64]bool{}
	for i := range batch {
		r := &batch[i]
		if !r.Keyed {
			continue
		}
		p := place{key: strings.Clone(r.Key), seq: r.Seq}
		places[i] = p
		inBatch[p.key] = append(inBatch[p.key], p.seq)
		if w.excused[r.ID] {
			excused[p.seq] = true
		}
	}
	for key, seqs := range inBatch {
		l := w.keys[key]
		if l == nil {
			l = &lane{delivered: map[int64]bool{}, owed: map[int64]bool{}}
			w.keys[key] = l
		}
		l.calls++
		if l.calls > 1 {
			w.report("key %q is in %d calls at once", key, l.calls)
		}
		w.check(key, l, seqs, excused)
	}
	return places
}

// check compares one key's part of a batch with the key's past.
func (w *watch) check(key string, l *lane, seqs []int64, excused map[int64]bool) {
	together := map[int64]bool{}
	for i, seq := range seqs {
		together[seq] = true
		if i > 0 && seq <= seqs[i-1] {
			w.report("key %q: seq %d is behind %d in one batch", key, seq, seqs[i-1])
		}
	}
	for _, seq := range seqs {
		if l.delivered[seq] {
			continue
		}
		if seq < l.highest && !l.owed[seq] && !excused[seq] {
			w.report("key %q: seq %d is sent for the first time after %d", key, seq, l.highest)
		}
		for owed := range l.owed {
			if owed < seq && !together[owed] {
				w.report("key %q: seq %d is sent while %d must be sent again", key, seq, owed)
			}
		}
	}
	for _, seq := range seqs {
		if !excused[seq] {
			l.owed[seq] = true
		}
		l.highest = max(l.highest, seq)
	}
}

// end notes what the caller was told; outcomes is nil when the call failed.
func (w *watch) end(places []place, outcomes []core.Outcome) {
	ended := map[string]bool{}
	for i, p := range places {
		l := w.keys[p.key]
		if p == (place{}) || l == nil {
			continue
		}
		if !ended[p.key] {
			ended[p.key] = true
			l.calls--
		}
		if i >= len(outcomes) {
			continue
		}
		switch o := outcomes[i]; {
		case o.Kind == core.Delivered:
			l.delivered[p.seq] = true
			delete(l.owed, p.seq)
		case o.Kind == core.Permanent && o.Scope != core.ScopeSink:
			delete(l.owed, p.seq)
		}
	}
}
