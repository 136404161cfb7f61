package postgres

import (
	"testing"
	"time"
)

func TestBarrier(t *testing.T) {
	now := time.Now()
	ripen := func() { now = now.Add(barrierGrace) }
	var b barrier
	b.note(0, now)
	if len(b.notes) > 0 {
		t.Error("there is a note although there is no row")
	}
	b.note(5, now)
	if b.pass(100, 101, now); b.passed != 0 {
		t.Error("a note was marked at once")
	}
	ripen()
	if b.ripe(now) != 1 {
		t.Errorf("%d notes are ripe", b.ripe(now))
	}
	if b.pass(100, 99, now); b.passed != 0 {
		t.Error("passed while an older transaction runs")
	}
	if b.pass(0, 100, now); b.passed != 0 {
		t.Error("passed while the mark itself is the oldest")
	}
	if b.pass(0, 101, now); b.passed != 5 || len(b.notes) > 0 {
		t.Errorf("passed %d, %d notes are left", b.passed, len(b.notes))
	}
	b.note(5, now)
	if len(b.notes) > 0 {
		t.Error("there is a note although no row is new")
	}
}

// A transaction stays open while rows come: the notes are bounded, and when it ends everything passes.
func TestTheBarrierIsBounded(t *testing.T) {
	now := time.Now()
	var b barrier
	for i := int64(1); i <= 10*barrierNotes; i++ {
		now = now.Add(barrierGrace)
		b.note(i, now)
		b.pass(100+i, 50, now)
	}
	if len(b.notes) != barrierNotes || b.passed != 0 {
		t.Fatalf("%d notes, passed %d", len(b.notes), b.passed)
	}
	now = now.Add(barrierGrace)
	if b.pass(1000, 1001, now); b.passed != 10*barrierNotes {
		t.Errorf("passed %d", b.passed)
	}
}

// The database is restored into another server, whose transactions have lower numbers.
// https://github.com/ThreeDotsLabs/watermill/issues/576
func TestB2NumbersOfTransactionsBeginAgain(t *testing.T) {
	now := time.Now()
	var b barrier
	b.note(5, now)
	now = now.Add(barrierGrace)
	b.pass(1_000_000, 1, now)
	b.note(7, now)
	now = now.Add(barrierGrace)
	if b.pass(20, 21, now); b.passed != 7 {
		t.Errorf("passed %d", b.passed)
	}
	h := horizon{begun: 2, marks: []mark{{1, 1_000_000}, {2, 20}}}
	if got := h.of(21, 22, 0); got.Oldest != 2 || got.Next != 3 {
		t.Errorf("horizon %+v", got)
	}
}
