package memory

import (
	"errors"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

const lease = 30 * time.Second

type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func newTable(t *testing.T, partitions int) (*Source, *clock) {
	t.Helper()
	c := &clock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	return NewSource(partitions, c.now), c
}

func insert(s *Source, rows ...Row) {
	tx := s.Begin()
	for _, r := range rows {
		tx.Insert(r)
	}
	tx.Commit()
}

func fetch(t *testing.T, s *Source, req core.FetchRequest) core.Page {
	t.Helper()
	if req.Limit == 0 {
		req.Limit = 1000
	}
	pages, err := s.Fetch(t.Context(), []core.FetchRequest{req})
	if err != nil {
		t.Fatal(err)
	}
	return pages[0]
}

func ids(rows []core.Row) string {
	var s string
	for _, r := range rows {
		s += r.Record.ID
	}
	return s
}

func TestTransactionsCommitOutOfOrder(t *testing.T) {
	s, _ := newTable(t, 1)
	early := s.Begin()
	early.Insert(Row{ID: "a"})
	gone := s.Begin()
	gone.Insert(Row{ID: "x"})
	taken := s.TakeSeq()
	insert(s, Row{ID: "c"})
	gone.Rollback()
	if page := fetch(t, s, core.FetchRequest{}); ids(page.Rows) != "c" || page.Rows[0].Record.Seq != 4 {
		t.Fatalf("read %v", page.Rows)
	}
	early.Commit()
	late := s.Begin()
	late.InsertAt(taken, Row{ID: "b"})
	late.Commit()
	if page := fetch(t, s, core.FetchRequest{}); ids(page.Rows) != "abc" {
		t.Fatalf("read %q, want abc", ids(page.Rows))
	}
}

func TestHorizonTellsWhichTransactionsASnapshotCouldNotSee(t *testing.T) {
	s, _ := newTable(t, 1)
	open := s.Begin()
	first := fetch(t, s, core.FetchRequest{}).Horizon
	if first.Oldest != first.Next {
		t.Errorf("nothing has written, yet %+v", first)
	}
	open.Insert(Row{ID: "a"})
	insert(s, Row{ID: "b"})
	second := fetch(t, s, core.FetchRequest{}).Horizon
	if second.Oldest >= second.Next {
		t.Errorf("a transaction runs, yet %+v", second)
	}
	insert(s, Row{ID: "c"})
	if h := fetch(t, s, core.FetchRequest{}).Horizon; h.Oldest >= second.Next {
		t.Errorf("%+v has passed %+v while the transaction runs", h, second)
	}
	open.Commit()
	if h := fetch(t, s, core.FetchRequest{}).Horizon; h.Oldest < second.Next {
		t.Errorf("%+v has not passed %+v though the transaction ended", h, second)
	}
}

func TestASettledRowMayBecomePendingAgain(t *testing.T) {
	s, _ := newTable(t, 1)
	insert(s, Row{ID: "a"}, Row{ID: "b"}, Row{ID: "c"})
	a, err := s.Acquire(t.Context(), "me", 1, lease, false)
	if err != nil || len(a) != 1 {
		t.Fatal(a, err)
	}
	change := core.Change{Lease: a[0].Lease}
	for seq := int64(1); seq <= 3; seq++ {
		change.Settle = append(change.Settle, core.Settlement{Seq: seq, State: core.Dead, Attempts: 1})
	}
	if err := s.Step(t.Context(), "me", []core.Change{change}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"c", "a"} {
		if err := s.Retry(t.Context(), core.Act{ID: id, By: "ops"}); err != nil {
			t.Fatal(err)
		}
	}
	if page := fetch(t, s, core.FetchRequest{}); ids(page.Rows) != "ac" {
		t.Errorf("read %q, want ac", ids(page.Rows))
	}
	var state *core.StateError
	if err := s.Retry(t.Context(), core.Act{ID: "a", By: "ops"}); !errors.As(err, &state) || state.State != core.Pending {
		t.Errorf("retry of a pending row: %v", err)
	}
}

func TestManySettledRowsCostAFetchNothing(t *testing.T) {
	s, _ := newTable(t, 1)
	tx := s.Begin()
	for i := range 1000 {
		tx.Insert(Row{ID: string(rune('A' + i))})
	}
	tx.Commit()
	a, _ := s.Acquire(t.Context(), "me", 1, lease, false)
	for seq := int64(1); seq < 1000; seq++ {
		c := core.Change{Lease: a[0].Lease, Settle: []core.Settlement{{Seq: seq, State: core.Published}}}
		if err := s.Step(t.Context(), "me", []core.Change{c}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.parts[0].queue); n > 2 {
		t.Errorf("%d rows are walked to find one", n)
	}
	if page := fetch(t, s, core.FetchRequest{}); len(page.Rows) != 1 {
		t.Errorf("read %d rows, want 1", len(page.Rows))
	}
	if n := len(s.Rows()); n != 1 {
		t.Errorf("%d rows are left, want 1: publishing deletes", n)
	}
}
