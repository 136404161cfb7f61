package demo

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the application's driver
)

// customers is how many ordering keys there are.
const customers = 20

// shop is the application: it writes with plain SQL and knows nothing of connectd.
type shop struct {
	db *sql.DB

	mu         sync.Mutex
	orders     int
	committed  []string            // ids of commands whose transaction committed
	rolledBack map[string]struct{} // ids of commands whose transaction did not
}

func openShop(ctx context.Context, path string) (*shop, error) {
	dsn := (&url.URL{Scheme: "file", Path: path, RawQuery: "_txlock=immediate&_pragma=busy_timeout(5000)"}).String()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, fmt.Errorf("open the shop's database: %w", err)
	}
	_, err = db.ExecContext(ctx, "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER NOT NULL)")
	if err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("create the shop's own table: %w", err)
	}
	return &shop{db: db, rolledBack: map[string]struct{}{}}, nil
}

func (s *shop) close() { _ = s.db.Close() }

// trade takes orders until ctx is done. Every seventh transaction is rolled back.
func (s *shop) trade(ctx context.Context) error {
	for n := 1; ctx.Err() == nil; n++ {
		// A transaction that has begun is finished: ctx closes the shop, it does not break its books.
		if err := s.order(context.WithoutCancel(ctx), n, n%7 != 0); err != nil {
			return err
		}
		if pause(ctx, 10*time.Millisecond+rand.N(10*time.Millisecond)) != nil {
			break
		}
	}
	return nil
}

// order writes an order and the two commands that follow from it, in one transaction.
func (s *shop) order(ctx context.Context, n int, commit bool) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	customer := fmt.Sprintf("customer-%02d", n%customers)
	cents := 100 + rand.IntN(9900)
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("the shop begins a transaction: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, customer, cents) VALUES (?, ?, ?)", n, customer, cents); err != nil {
		return fmt.Errorf("the shop writes an order: %w", err)
	}
	var ids []string
	for _, kind := range []string{"order.placed", "payment.requested"} {
		subject, _, _ := strings.Cut(kind, ".")
		id := fmt.Sprintf("%s-%d", subject, n)
		payload := fmt.Sprintf(`{"order":%d,"cents":%d}`, n, cents)
		_, err := tx.ExecContext(ctx, "INSERT INTO outbox (id, aggregateid, aggregatetype, type, payload) VALUES (?, ?, 'order', ?, ?)",
			id, customer, kind, payload)
		if err != nil {
			return fmt.Errorf("the shop writes a command: %w", err)
		}
		ids = append(ids, id)
	}
	if commit {
		if err := tx.Commit(); err != nil {
			return fmt.Errorf("the shop commits: %w", err)
		}
	} else if err := tx.Rollback(); err != nil {
		return fmt.Errorf("the shop rolls back: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !commit {
		for _, id := range ids {
			s.rolledBack[id] = struct{}{}
		}
		return nil
	}
	s.orders++
	s.committed = append(s.committed, ids...)
	return nil
}

// counts says how many commands were committed and rolled back so far.
func (s *shop) counts() (committed, rolledBack int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.committed), len(s.rolledBack)
}

// drained waits until the table has no pending row.
func (s *shop) drained(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		var pending int
		if err := s.db.QueryRowContext(ctx, "SELECT count(*) FROM outbox WHERE state = 'pending'").Scan(&pending); err != nil {
			return fmt.Errorf("count the pending rows: %w", err)
		}
		if pending == 0 {
			return nil
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("%d rows are still pending after %v", pending, limit)
		}
	}
}
