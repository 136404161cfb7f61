// Command budget is the service that the planner's commands are for. It answers a webhook when it has stored the command, as a
// broker would, and carries it out later. A command may come several times and is carried out once: the effect and its receipt
// are one transaction.
//
//	budget serve           takes commands, until it is ended
//	budget serve silent    the same, and the first one gets no answer
//	budget work            carries out what has come
//	budget work ID         carries out this command alone
//	budget show            prints what is locked
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/connectd/connectd/core/inbox"
	"github.com/connectd/connectd/examples/durable-execution/database"
)

const maxBody = 1 << 20

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "budget:", err)
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
	case slices.Equal(args, []string{"serve"}):
		return serve(ctx, &receiver{db: db})
	case slices.Equal(args, []string{"serve", "silent"}):
		return serve(ctx, &receiver{db: db, silent: true})
	case slices.Equal(args, []string{"work"}):
		return work(ctx, db, "")
	case len(args) == 2 && args[0] == "work":
		return work(ctx, db, args[1])
	case slices.Equal(args, []string{"show"}):
		return show(ctx, db)
	default:
		return errors.New("say serve, work or show")
	}
}

// serve makes the service's tables and listens. What has arrived has no key: like a broker's queue it takes whatever comes.
func serve(ctx context.Context, r *receiver) error {
	err := r.db.Run(ctx,
		`CREATE TABLE arrived (command_id varchar(255) NOT NULL, delivery integer NOT NULL, payload varchar(400) NOT NULL)`,
		`CREATE TABLE budgets (owner varchar(40) NOT NULL PRIMARY KEY, locked integer NOT NULL, total integer NOT NULL)`,
		`INSERT INTO budgets (owner, locked, total) VALUES ('trips', 0, 5000)`)
	if err != nil {
		return err
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s/commands\n", listener.Addr())
	server := &http.Server{Handler: r, ReadTimeout: 10 * time.Second}
	return server.Serve(listener)
}

type receiver struct {
	db database.DB

	mu     sync.Mutex
	silent bool // the next command gets no answer
}

// ServeHTTP stores a command and says so. Its ids are plain enough to come as they are (docs/sinks/webhook.md).
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxBody))
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	id, delivery := q.Header.Get("Webhook-Id"), q.Header.Get("Connectd-Delivery")
	_, err = r.db.ExecContext(q.Context(), r.db.SQL(`INSERT INTO arrived (command_id, delivery, payload) VALUES (?, ?, ?)`), id, delivery, string(body))
	if err != nil {
		http.Error(w, "try again", http.StatusInternalServerError)
		return
	}
	mark := ""
	if q.Header.Get("Connectd-Possible-Duplicate") == "true" {
		mark = ", a possible duplicate"
	}
	fmt.Printf("%s arrived: delivery %s%s\n", id, delivery, mark)
	if r.silence() {
		<-q.Context().Done() // until the sender is gone
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func (r *receiver) silence() (silent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	silent, r.silent = r.silent, false
	return silent
}

type delivery struct {
	id      string
	number  int
	payload string
}

// work carries out what has come, of one command or of all, and forgets each delivery afterwards, never before.
func work(ctx context.Context, db database.DB, only string) error {
	billing, err := inbox.New(inbox.Dialect(db.Kind), "budget", inbox.Options{})
	if err != nil {
		return err
	}
	list, err := arrived(ctx, db, only)
	if err != nil {
		return fmt.Errorf("read what has come: %w", err)
	}
	for _, d := range list {
		receipt, err := billing.Do(ctx, db.DB, d.id, func(ctx context.Context, tx *sql.Tx) (string, error) { return lock(ctx, db, tx, d.payload) })
		if err != nil {
			return err // it has stayed; the next work tries it again
		}
		what := "done"
		if receipt.Repeat {
			what = "done before, the receipt is the first one's"
		}
		fmt.Printf("%s, delivery %d: %s (%s)\n", d.id, d.number, what, receipt.Result)
		if _, err := db.ExecContext(ctx, db.SQL(`DELETE FROM arrived WHERE command_id = ? AND delivery = ?`), d.id, d.number); err != nil {
			return fmt.Errorf("forget %s: %w", d.id, err)
		}
	}
	return nil
}

func arrived(ctx context.Context, db database.DB, only string) (list []delivery, err error) {
	rows, err := db.QueryContext(ctx, `SELECT command_id, delivery, payload FROM arrived ORDER BY command_id, delivery`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var d delivery
		if err := rows.Scan(&d.id, &d.number, &d.payload); err != nil {
			return nil, err
		}
		if only == "" || only == d.id {
			list = append(list, d)
		}
	}
	return list, rows.Err()
}

// lock is the effect. It works in the transaction of the receipt.
func lock(ctx context.Context, db database.DB, tx *sql.Tx, payload string) (result string, err error) {
	var command struct{ Amount int }
	if err := json.Unmarshal([]byte(payload), &command); err != nil {
		return "", &inbox.Failure{Reason: "the payload cannot be read"}
	}
	locked, err := tx.ExecContext(ctx, db.SQL(`UPDATE budgets SET locked = locked + ? WHERE owner = 'trips' AND locked + ? <= total`), command.Amount, command.Amount)
	if err != nil {
		return "", err
	}
	if n, err := locked.RowsAffected(); err != nil || n == 0 {
		return "", errors.Join(err, &inbox.Failure{Reason: "the budget does not suffice"})
	}
	return fmt.Sprintf("%d locked", command.Amount), nil
}

func show(ctx context.Context, db database.DB) error {
	var locked, total, receipts int
	err := db.QueryRowContext(ctx, `SELECT locked, total, (SELECT count(*) FROM connectd_receipt WHERE consumer = 'budget' AND status = 'done')
		FROM budgets WHERE owner = 'trips'`).Scan(&locked, &total, &receipts)
	if err != nil {
		return err
	}
	fmt.Printf("locked: %d of %d, by %d receipts\n", locked, total, receipts)
	return nil
}
