// Command shop is an application with an outbox in PostgreSQL. It writes orders, and in the same transactions the commands
// that follow from them, with plain SQL. It knows nothing of connectd.
//
//	shop order N    three customers place their Nth order; each gives two commands
//	shop lock       locks the outbox against changes, as CREATE INDEX does, until it is ended
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/jackc/pgx/v5/stdlib"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("SHOP_DSN"), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dsn string, args []string) error {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer func() { _ = db.Close() }()
	switch {
	case len(args) == 2 && args[0] == "order":
		for _, customer := range []string{"ada", "bob", "eve"} {
			if err := order(ctx, db, customer, customer+"-"+args[1]); err != nil {
				return fmt.Errorf("order %s-%s: %w", customer, args[1], err)
			}
		}
		return nil
	case len(args) == 1 && args[0] == "lock":
		return lock(ctx, db)
	default:
		return errors.New("say order and a number, or lock")
	}
}

// order writes an order and its commands, or none of them.
func order(ctx context.Context, db *sql.DB, customer, id string) error {
	if _, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, customer text)`); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, customer) VALUES ($1, $2)`, id, customer); err != nil {
		return err
	}
	payload := fmt.Appendf(nil, `{"order":%q}`, id)
	_, err = tx.ExecContext(ctx, `INSERT INTO outbox (id, aggregateid, aggregatetype, type, payload)
		VALUES ($1, $3, 'orders', 'order.placed', $4), ($2, $3, 'payments', 'payment.wanted', $4)`,
		id+"-placed", id+"-payment", customer, payload)
	if err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	fmt.Printf("order %s: committed\n", id)
	return nil
}

func lock(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, `LOCK TABLE outbox IN SHARE MODE`); err != nil {
		return err
	}
	fmt.Println("locked")
	<-ctx.Done()
	return nil
}
