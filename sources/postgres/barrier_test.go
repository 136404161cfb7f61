package postgres

import (
	"testing"
	"time"
)

// looks gives a barrier one look after the other and compares how far rows are there.
type looks struct {
	t      *testing.T
	b      barrier
	server time.Time
}

func (l *looks) see(want, given int64, holders ...string) {
	l.t.Helper()
	if got := l.b.take(look{l.server, given, holders}, time.Now()); got != want {
		l.t.Errorf("number %d was drawn, %v write: passed %d, want %d", given, holders, got, want)
	}
}

func newLooks(t *testing.T) *looks {
	l := &looks{t: t, server: time.Unix(1, 0)}
	l.see(3, 3)
	return l
}

func TestBarrier(t *testing.T) {
	l := newLooks(t)
	l.see(3, 5, "3/1") // may have drawn 4 or 5
	l.see(3, 7, "3/1", "4/1")
	l.see(5, 8, "4/1") // had no lock when 5 was drawn
	l.see(8, 8)
	l.see(8, 8, "5/1")
	l.see(8, 9, "5/1")
	l.see(9, 9)
}

// However many transactions overlap, rows go on.
func TestWritersThatOverlapDoNotStarveTheBarrier(t *testing.T) {
	l := newLooks(t)
	names := []string{"1/1", "2/1", "3/1", "4/1"}
	l.see(3, 4, "1/1")
	for i := int64(5); i < 1000; i++ {
		l.see(i-2, i, names[i%4], names[(i+3)%4]) // one ends, the next begins, none is there at three looks
	}
	if len(l.b.writers) != 2 {
		t.Errorf("%d writers are remembered", len(l.b.writers))
	}
}

// Whoever writes at the first look may have drawn any number.
func TestTheFirstLook(t *testing.T) {
	l := &looks{t: t, server: time.Unix(1, 0)}
	if l.b.take(look{l.server, 5, []string{"3/1"}}, time.Now()) >= 1 {
		t.Error("a row has passed")
	}
	l.see(5, 5)
}

// Names of transactions, and numbers too, begin again with another server or one that was started again: the one that was
// restored, https://github.com/ThreeDotsLabs/watermill/issues/576, or the standby after a failover.
func TestAnotherServer(t *testing.T) {
	for _, again := range []func(l *looks) int64{
		func(l *looks) int64 { l.server = l.server.Add(time.Hour); return 20 },
		func(l *looks) int64 { return 2 }, // the sequence was set back
	} {
		l := newLooks(t)
		l.see(3, 5, "3/1")
		l.see(5, 6, "4/1")
		given := again(l)
		if l.b.take(look{l.server, given, []string{"4/1"}}, time.Now()) >= 1 {
			t.Error("a row has passed")
		}
		l.see(given, given)
	}
}

// After a crash a prepared transaction has another name: it may have drawn what it could before.
func TestAPreparedTransactionAfterACrash(t *testing.T) {
	l := newLooks(t)
	l.see(3, 5, "3/1")
	l.see(3, 9, "-1/700")
	l.see(3, 9, "-1/700", "5/1")
	l.see(9, 10, "5/1")
}

// A horizon's marks begin again below old ones.
func TestNumbersOfTransactionsBeginAgain(t *testing.T) {
	h := horizon{begun: 2, marks: []mark{{1, 1_000_000}, {2, 20}}}
	if got := h.of(21, 22, 0); got.Oldest != 2 || got.Next != 3 {
		t.Errorf("horizon %+v", got)
	}
}
