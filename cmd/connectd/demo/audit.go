package demo

import (
	"context"
	"fmt"
)

// books is what was found in the database and at the receiver.
type books struct {
	Orders     int
	Committed  int // commands committed, by the shop's own count
	InTable    int // rows in the outbox table
	RolledBack int
	Verified   int // requests whose signature was right
	Forged     int // requests of somebody else
	Refused    int // requests that the receiver refused
	Delivered  int // different commands that arrived
	Keys       int

	Duplicates int // copies beyond the first
	Unmarked   int // copies without the mark, beyond the one that is no repeat
	Invented   int // arrived but never committed, rolled-back ones included
	Missing    int
	Reordered  int // first arrivals that came before an earlier row of their key
}

func (b books) balanced() bool {
	return b.Committed == b.InTable && b.Missing == 0 && b.Invented == 0 && b.Reordered == 0 && b.Unmarked == 0 &&
		b.Refused == b.Forged && b.Delivered == b.Committed && b.Committed > 0
}

// audit compares the shop's own count, the outbox table and what the receiver has. It uses nothing of connectd.
func audit(ctx context.Context, s *shop, arrivals []arrival, refused, forged int) (books, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := books{
		Orders: s.orders, Committed: len(s.committed), RolledBack: len(s.rolledBack), Verified: len(arrivals), Refused: refused, Forged: forged,
	}
	committed := make(map[string]bool, len(s.committed))
	for _, id := range s.committed {
		committed[id] = true
	}
	place, err := s.places(ctx)
	if err != nil {
		return b, err
	}
	b.InTable = len(place)
	seen, plain := map[string]bool{}, map[string]bool{}
	last := map[string]int64{} // by key: seq of the newest first arrival
	for _, a := range arrivals {
		if !committed[a.ID] {
			b.Invented++
			continue
		}
		// Only the first send has no mark. It may be overtaken by the second: who dies cannot call it back.
		if !a.PossibleDuplicate && plain[a.ID] {
			b.Unmarked++
		}
		plain[a.ID] = plain[a.ID] || !a.PossibleDuplicate
		if seen[a.ID] {
			b.Duplicates++
			continue
		}
		seen[a.ID] = true
		if place[a.ID] < last[a.Key] {
			b.Reordered++
		}
		last[a.Key] = place[a.ID]
	}
	b.Delivered, b.Keys = len(seen), len(last)
	b.Missing = len(committed) - len(seen)
	return b, nil
}

// places gives the seq of every row of the outbox table.
func (s *shop) places(ctx context.Context) (map[string]int64, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT id, seq FROM outbox")
	if err != nil {
		return nil, fmt.Errorf("read the outbox table: %w", err)
	}
	defer func() { _ = rows.Close() }()
	place := map[string]int64{}
	for rows.Next() {
		var id string
		var seq int64
		if err := rows.Scan(&id, &seq); err != nil {
			return nil, fmt.Errorf("read the outbox table: %w", err)
		}
		place[id] = seq
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the outbox table: %w", err)
	}
	return place, nil
}
