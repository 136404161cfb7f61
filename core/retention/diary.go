package retention

import (
	"math"
	"slices"
	"time"
)

// diary is when each stretch of a table is worth another look. Stretches follow each other from the lowest seq to the
// table's end, so that a table of which most is kept is not walked through again and again: a stretch whose rows stay
// for a day is left alone for a day. It is kept in memory; a new one has the whole table to look at.
type diary struct {
	spans []span // never empty; the last one is the table's end
}

// span is the stretch from the span before it to upTo.
type span struct {
	upTo  int64 // 0: the end
	due   time.Time
	empty bool // nothing was there
}

// maxSpans bounds the diary. What is beyond is remembered less exactly: neighbours become one.
const maxSpans = 100_000

func newDiary() *diary { return &diary{spans: []span{{}}} }

// due finds the first stretch that is due, with the due ones that follow it. Without one it says when the next will be.
func (d *diary) due(now time.Time) (first, last int, next time.Time) {
	for i, s := range d.spans {
		if !s.due.After(now) {
			last = i
			for last+1 < len(d.spans) && !d.spans[last+1].due.After(now) {
				last++
			}
			return i, last, now
		}
		if i == 0 || s.due.Before(next) {
			next = s.due
		}
	}
	return -1, -1, next
}

// after is where a span begins.
func (d *diary) after(i int) int64 {
	if i == 0 {
		return math.MinInt64
	}
	return d.spans[i-1].upTo
}

// looked notes a look at the spans first to last that ended with the row of seq upTo, or at their end when whole. What was
// there is due again, and what may come at the table's end fresh.
func (d *diary) looked(first, last int, upTo int64, whole, empty bool, again, fresh time.Time) {
	seen := []span{{upTo: upTo, due: again, empty: empty}}
	switch end := d.spans[last]; {
	case !whole && (end.upTo == 0 || upTo < end.upTo):
		seen = append(seen, end) // the rest is still due
	case end.upTo != 0:
		seen[0].upTo = end.upTo
	case empty:
		seen[0] = span{due: fresh, empty: true}
	default: // rows that come later are a stretch of their own
		seen = append(seen, span{due: fresh, empty: true})
	}
	if before := first - 1; before >= 0 && empty && d.spans[before].empty && seen[0].upTo != 0 {
		seen[0].due = d.spans[before].due
		first = before
	}
	d.spans = slices.Replace(d.spans, first, last+1, seen...)
	if len(d.spans) > maxSpans {
		d.shorten()
	}
}

// shorten makes one span of two.
func (d *diary) shorten() {
	var short []span
	for pair := range slices.Chunk(d.spans, 2) {
		s := pair[len(pair)-1]
		for _, other := range pair {
			if other.due.Before(s.due) {
				s.due = other.due
			}
			s.empty = s.empty && other.empty
		}
		short = append(short, s)
	}
	d.spans = short
}
