package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
)

// arrival is what the demo reads of a line that the sink wrote.
type arrival struct {
	ID                string          `json:"id"`
	Key               string          `json:"key"`
	Type              string          `json:"type"`
	Payload           json.RawMessage `json:"payload"`
	Deliveries        int             `json:"deliveries"`
	PossibleDuplicate bool            `json:"possible_duplicate"`
}

// books is what was found in the database and in the file.
type books struct {
	Orders     int
	Committed  int // commands committed, by the shop's own count
	InTable    int // rows in the outbox table
	RolledBack int
	Delivered  int // different commands that arrived
	Keys       int

	Duplicates int // copies beyond the first
	Marked     int // of these, marked as possible duplicates
	Invented   int // arrived but never committed, rolled-back ones included
	Missing    int
	Reordered  int // first arrivals that came before an earlier row of their key
}

func (b books) balanced() bool {
	return b.Committed == b.InTable && b.Missing == 0 && b.Invented == 0 && b.Reordered == 0 && b.Duplicates == b.Marked &&
		b.Delivered == b.Committed && b.Committed > 0
}

// audit compares the shop's own count, the outbox table and the file the sink wrote. It uses nothing of connectd.
func audit(ctx context.Context, s *shop, path string) (books, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := books{Orders: s.orders, Committed: len(s.committed), RolledBack: len(s.rolledBack)}
	committed := make(map[string]bool, len(s.committed))
	for _, id := range s.committed {
		committed[id] = true
	}
	place, err := s.places(ctx)
	if err != nil {
		return b, err
	}
	b.InTable = len(place)
	seen := map[string]bool{}
	last := map[string]int64{} // by key: seq of the newest first arrival
	err = readArrivals(path, func(a arrival) {
		if !committed[a.ID] {
			b.Invented++
			return
		}
		if seen[a.ID] {
			b.Duplicates++
			if a.PossibleDuplicate {
				b.Marked++
			}
			return
		}
		seen[a.ID] = true
		if place[a.ID] < last[a.Key] {
			b.Reordered++
		}
		last[a.Key] = place[a.ID]
	})
	b.Delivered, b.Keys = len(seen), len(last)
	b.Missing = len(committed) - len(seen)
	return b, err
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

// readArrivals calls each with every line of the file.
func readArrivals(path string, each func(arrival)) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read what arrived: %w", err)
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var a arrival
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return fmt.Errorf("read what arrived: %w", err)
		}
		each(a)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read what arrived: %w", err)
	}
	return nil
}
