// Command shop is an application with an outbox in MySQL. It writes orders, and in the same transactions the commands that
// follow from them, with plain SQL. It knows nothing of connectd.
//
//	shop order N    three customers place their Nth order; eve wants an invoice too
//	shop report     reads the outbox and locks it against changes, until it is ended
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/go-sql-driver/mysql"
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
	db, err := sql.Open("mysql", dsn)
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
	case len(args) == 1 && args[0] == "report":
		return report(ctx, db)
	default:
		return errors.New("say order and a number, or report")
	}
}

// order writes an order and its commands, or none of them.
func order(ctx context.Context, db *sql.DB, customer, id string) error {
	if _, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (id varchar(40) PRIMARY KEY, customer varchar(40))`); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, customer) VALUES (?, ?)`, id, customer); err != nil {
		return err
	}
	types := []string{"order.placed"}
	if customer == "eve" {
		types = append(types, "invoice.wanted")
	}
	for _, kind := range types {
		_, err := tx.ExecContext(ctx, `INSERT INTO outbox (id, aggregateid, type, payload) VALUES (?, ?, ?, ?)`,
			id+"-"+kind, customer, kind, fmt.Sprintf(`{"order":%q}`, id))
		if err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	fmt.Printf("order %s: committed\n", id)
	return nil
}

func report(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var n int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT id FROM outbox FOR SHARE) AS locked`).Scan(&n); err != nil {
		return err
	}
	fmt.Println("rows read and locked:", n)
	<-ctx.Done()
	return nil
}
