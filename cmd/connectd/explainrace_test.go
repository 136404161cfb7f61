package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/memory"
)

// moving is a table in which something happens when its leases are read for the first time.
type moving struct {
	*memory.Source
	happens func()
}

func (m *moving) Leases(ctx context.Context) ([]core.LeaseInfo, error) {
	if m.happens != nil {
		m.happens()
		m.happens = nil
	}
	return m.Source.Leases(ctx)
}

// TestExplainARowThatMoves: another worker takes over between the reading of the announcement and that of the leases. What
// the first one announced is not told as the second one's.
func TestExplainARowThatMoves(t *testing.T) {
	now := time.Now()
	src := memory.NewSource(1, func() time.Time { return now })
	tx := src.Begin()
	seq := tx.Insert(memory.Row{ID: "a"})
	tx.Commit()
	acquire := func(owner string) core.Lease {
		got, err := src.Acquire(t.Context(), owner, 1, time.Minute, false)
		if err != nil || len(got) != 1 {
			t.Fatalf("%s acquires %v, %v", owner, got, err)
		}
		if _, err := src.Heartbeat(t.Context(), owner, nil, time.Minute); err != nil {
			t.Fatal(err)
		}
		return got[0].Lease
	}
	err := src.Step(t.Context(), "first", []core.Change{{Lease: acquire("first"), Announce: []core.Announcement{{Batch: 1, Seqs: []int64{seq}}}}})
	if err != nil {
		t.Fatal(err)
	}
	there := moving{src, func() {
		now = now.Add(2 * time.Minute)
		acquire("second")
	}}
	e, err := explain(t.Context(), []table{{ops: &there}}, "a")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range e.Because {
		if strings.HasPrefix(r.Code, "in_flight") {
			t.Errorf("the second worker announced nothing: %s", r.Say)
		}
	}
}
