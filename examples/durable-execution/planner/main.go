// Command planner plans trips. What happens in a run is an event; what must be done because of it is a command, written in the
// same transaction. Another process sends it, so that neither can be there without the other. The planner had its outbox
// before there was connectd, and knows nothing of it.
//
//	planner tables            makes its tables
//	planner decide RUN        a trip is requested: 900 of the budget must be locked
//	planner decide RUN fail   the same, and then something goes wrong, before the commit
//	planner count             prints how many events and commands there are, and the commands
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/connectd/connectd/core/outbox"
	"github.com/connectd/connectd/examples/durable-execution/database"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "planner:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	db, err := database.Open()
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	switch {
	case slices.Equal(args, []string{"tables"}):
		return db.Run(ctx,
			`CREATE TABLE events (run_id varchar(40) NOT NULL, n integer NOT NULL, kind varchar(40) NOT NULL, payload varchar(400) NOT NULL, PRIMARY KEY (run_id, n))`,
			`CREATE TABLE outbox (command_id varchar(40) NOT NULL PRIMARY KEY, run_id varchar(40) NOT NULL, kind varchar(40) NOT NULL,
				payload varchar(400) NOT NULL, published integer NOT NULL DEFAULT 0)`)
	case slices.Equal(args, []string{"count"}):
		return count(ctx, db)
	case len(args) == 2 && args[0] == "decide":
		return report(decide(ctx, db, args[1], false))
	case len(args) == 3 && args[0] == "decide" && args[2] == "fail":
		return report(decide(ctx, db, args[1], true))
	default:
		return errors.New("say tables, count, or decide and a run")
	}
}

// errTrip is what goes wrong on demand.
var errTrip = errors.New("the trip ends before it begins")

// decide notes that a trip was requested and writes the command that follows, or neither. The command's id comes from what
// the command is about: whoever decides the same once more has the same id, and the outbox's unique constraint refuses it.
func decide(ctx context.Context, db database.DB, run string, fail bool) error {
	table, err := outbox.New(outbox.Dialect(db.Kind), "outbox", outbox.Options{
		Columns: outbox.Columns{ID: "command_id", Key: "run_id", Type: "kind"},
		Payload: outbox.JSON,
	})
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	var n int
	if err := tx.QueryRowContext(ctx, db.SQL(`SELECT count(*) + 1 FROM events WHERE run_id = ?`), run).Scan(&n); err != nil {
		return fmt.Errorf("count the run's events: %w", err)
	}
	const payload = `{"amount": 900}`
	if _, err := tx.ExecContext(ctx, db.SQL(`INSERT INTO events (run_id, n, kind, payload) VALUES (?, ?, 'trip_requested', ?)`), run, n, payload); err != nil {
		return fmt.Errorf("write the event: %w", err)
	}
	id := "cmd-" + strings.TrimPrefix(run, "run-")
	if err := table.Enqueue(ctx, tx, outbox.Message{ID: id, Key: run, Type: "lock_budget", Payload: []byte(payload)}); err != nil {
		return err
	}
	if fail {
		return errTrip
	}
	return tx.Commit()
}

// report prints what became of a decision. That it was made before is an answer, and no reason to try again.
func report(err error) error {
	var duplicate *outbox.DuplicateError
	switch {
	case errors.As(err, &duplicate):
		fmt.Printf("refused, a duplicate: there is a command %s\n", duplicate.ID)
	case errors.Is(err, errTrip):
		fmt.Println("rolled back:", err)
	case err != nil:
		return err
	default:
		fmt.Println("committed")
	}
	return nil
}

func count(ctx context.Context, db database.DB) error {
	var events, commands int
	if err := db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM outbox)`).Scan(&events, &commands); err != nil {
		return err
	}
	fmt.Println("events=", events, "commands=", commands)
	rows, err := db.QueryContext(ctx, `SELECT command_id, kind, published FROM outbox ORDER BY command_id`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, kind string
		var published int
		if err := rows.Scan(&id, &kind, &published); err != nil {
			return err
		}
		fmt.Printf("('%s', '%s', %d)\n", id, kind, published)
	}
	return rows.Err()
}
