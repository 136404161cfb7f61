// Command shop is an application with an outbox in PostgreSQL. It writes orders, and in the same transactions the commands
// that follow from them, with plain SQL. It knows nothing of connectd.
//
//	shop order      three customers order at the same time
//	shop mend ID    corrects the headers of a command
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib"
)

func main() {
	if err := run(context.Background(), os.Getenv("SHOP_DSN"), os.Args[1:]); err != nil {
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
	case len(args) == 1 && args[0] == "order":
		return orderAll(ctx, db)
	case len(args) == 2 && args[0] == "mend":
		_, err := db.ExecContext(ctx, `UPDATE outbox SET headers = '{"priority":"high"}' WHERE id = $1`, args[1])
		return err
	default:
		return errors.New("say order, or mend and an id")
	}
}

// orderAll lets the customers order at the same time, each one order after another. So the commands of one customer, who
// is the ordering key, are committed in order; those of different customers have none.
func orderAll(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, customer text)`); err != nil {
		return fmt.Errorf("create the orders table: %w", err)
	}
	customers := []string{"ada", "bob", "eve"}
	done := make(chan error)
	for _, customer := range customers {
		go func() {
			var err error
			for n := 1; n <= 4 && err == nil; n++ {
				err = order(ctx, db, customer, n)
			}
			done <- err
		}()
	}
	var all error
	for range customers {
		all = errors.Join(all, <-done)
	}
	return all
}

// order writes a customer's nth order and its command. Eve does not pay her third: both are rolled back, and the command
// never existed. Bob's second command has a mistake: headers must be a JSON object.
func order(ctx context.Context, db *sql.DB, customer string, n int) error {
	id, headers := fmt.Sprintf("%s-%d", customer, n), `{"priority":"low"}`
	if id == "bob-2" {
		headers = `["high"]`
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, customer) VALUES ($1, $2)`, id, customer); err != nil {
		return fmt.Errorf("order %s: %w", id, err)
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO outbox (id, aggregateid, type, payload, headers) VALUES ($1, $2, 'order.placed', $3, $4)`,
		id, customer, []byte(fmt.Sprintf(`{"order":%q}`, id)), headers)
	if err != nil {
		return fmt.Errorf("command %s: %w", id, err)
	}
	if id == "eve-3" {
		fmt.Printf("order %s: rolled back\n", id)
		return nil
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("order %s: %w", id, err)
	}
	fmt.Printf("order %s: committed\n", id)
	return nil
}
