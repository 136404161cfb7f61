// Command flow is an application that had an outbox before there was connectd: steps of its runs give commands, written with
// plain SQL in the same transaction. It never changes for connectd.
//
//	flow before    makes its tables and some rows; of three commands a program of its own has sent two
//	flow go        makes more runs
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	_ "github.com/go-sql-driver/mysql"
)

func main() {
	if err := run(context.Background(), os.Getenv("FLOW_DSN"), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "flow:", err)
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
	case len(args) == 1 && args[0] == "before":
		return before(ctx, db)
	case len(args) == 1 && args[0] == "go":
		for _, s := range []struct {
			run, kind string
			fails     bool
		}{{"r2", "reserve", false}, {"r2", "charge", false}, {"r3", "reserve", true}, {"r2", "ship", false}} {
			if err := step(ctx, db, s.run, s.kind, s.fails); err != nil {
				return fmt.Errorf("step %s of %s: %w", s.kind, s.run, err)
			}
		}
		return nil
	default:
		return errors.New("say before or go")
	}
}

func before(ctx context.Context, db *sql.DB) error {
	for _, statement := range []string{
		`CREATE TABLE step (run_id varchar(40) NOT NULL, kind varchar(40) NOT NULL, PRIMARY KEY (run_id, kind))`,
		`CREATE TABLE command (command_id varchar(80) PRIMARY KEY, run_id varchar(40) NOT NULL, kind varchar(40) NOT NULL,
			payload json NOT NULL, published boolean NOT NULL DEFAULT FALSE, created_at timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6))`,
		`INSERT INTO command (command_id, run_id, kind, payload, published) VALUES ('r1-charge', 'r1', 'charge', '{"run":"r1"}', TRUE),
			('r1-reserve', 'r1', 'reserve', '{"run":"r1"}', TRUE), ('r1-ship', 'r1', 'ship', '{"run":"r1"}', FALSE)`,
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// step does a step of a run and writes its command. When the step fails both are rolled back: the command never existed.
func step(ctx context.Context, db *sql.DB, run, kind string, fails bool) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if _, err := tx.ExecContext(ctx, `INSERT INTO step (run_id, kind) VALUES (?, ?)`, run, kind); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO command (command_id, run_id, kind, payload) VALUES (?, ?, ?, ?)`,
		run+"-"+kind, run, kind, fmt.Sprintf(`{"run": %q}`, run))
	if err != nil {
		return err
	}
	if fails {
		fmt.Printf("%s of %s: rolled back\n", kind, run)
		return nil
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	fmt.Printf("%s of %s: committed\n", kind, run)
	return nil
}
