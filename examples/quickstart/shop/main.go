// Command shop is an application with an outbox: it writes its orders, and in the same transaction the commands that
// follow from them, with plain SQL. It knows nothing of connectd.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	_ "modernc.org/sqlite"
)

func main() {
	if err := run(context.Background(), "shop.db"); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, path string) error {
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT, cents INTEGER)"); err != nil {
		return fmt.Errorf("create the orders table: %w", err)
	}
	for _, o := range []struct {
		id       int
		customer string
		cents    int
		paid     bool
	}{{1, "ada", 4200, true}, {2, "bob", 999, false}, {3, "ada", 100, true}} {
		if err := order(ctx, db, o.id, o.customer, o.cents, o.paid); err != nil {
			return fmt.Errorf("order %d: %w", o.id, err)
		}
	}
	return nil
}

// order writes an order and its command. When it is not paid, both are rolled back: the command never existed.
func order(ctx context.Context, db *sql.DB, id int, customer string, cents int, paid bool) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, customer, cents) VALUES (?, ?, ?)", id, customer, cents); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO outbox (id, aggregateid, type, payload) VALUES (?, ?, 'order.placed', ?)",
		fmt.Sprintf("order-%d", id), customer, fmt.Sprintf(`{"order":%d,"cents":%d}`, id, cents))
	if err != nil {
		return err
	}
	if !paid {
		fmt.Printf("order %d of %s: rolled back\n", id, customer)
		return nil
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	fmt.Printf("order %d of %s: committed\n", id, customer)
	return nil
}
