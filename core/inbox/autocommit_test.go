package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/connectd/connectd/core/inbox"
	"github.com/connectd/connectd/scripts/services/prepared"
)

// An effect that takes an error which has ended its transaction for a small mishap writes once more. Nothing of that is kept:
// the next try would do it again. SQLite alone commits it at once, so there the effect must end with its first error.
func TestEffectThatGoesOnOutsideItsTransaction(t *testing.T) {
	eachWorld(t, func(t *testing.T, w world) {
		in := w.in(t, "billing")
		for try := range 3 {
			_, err := w.do(t.Context(), in, "a", func(_ context.Context, exec executor) (string, error) {
				var first error
				if w.Dialect == "sqlite" {
					all := exec
					exec = func(statement string) error {
						if first == nil {
							first = all(statement)
						}
						return first
					}
				}
				exec(leave("before"))
				if try == 0 {
					w.breakTransaction(t, exec)
				}
				exec(leave("a"))
				return "r", first
			})
			if (err == nil) != (try > 0) {
				t.Errorf("try %d: %v", try, err)
			}
			if try == 0 {
				w.want(t, "before", "0")
				w.want(t, "a", "0")
			}
		}
		w.want(t, "before", "1")
		w.want(t, "a", "1")
		if got := w.stored(t, "a"); got != "done r" {
			t.Error(got)
		}
	})
}

func eachMySQL(t *testing.T, run func(t *testing.T, w world)) {
	t.Helper()
	prepared.Each(t, func(t *testing.T, db prepared.Database) {
		if db.Dialect == "mysql" {
			run(t, newWorld(t, db))
		}
	})
}

// pool is the same database with a pool of its own.
func (w world) pool(t *testing.T, option string) *sql.DB {
	t.Helper()
	join := "?"
	if strings.Contains(w.DSN, "?") {
		join = "&"
	}
	db, err := sql.Open(w.Driver, w.DSN+join+option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// Whatever becomes of a call, whoever has the connection next finds it as it was, and finishes nobody's transaction.
func TestTheConnectionIsAsItWas(t *testing.T) {
	eachMySQL(t, func(t *testing.T, w world) {
		in := w.in(t, "billing")
		w.Exec(t, "INSERT INTO connectd_receipt (command_id, consumer, status) VALUES ('strange', 'billing', 'started')")
		for autocommit := range 2 {
			db := w.pool(t, fmt.Sprintf("autocommit=%d", autocommit))
			db.SetMaxOpenConns(1)
			do := func(ctx context.Context, id string, effect func(exec executor) error) {
				t.Helper()
				func() {
					defer func() { recover() }()
					in.Do(ctx, db, id, func(ctx context.Context, tx *sql.Tx) (string, error) {
						return "", effect(func(statement string) error { _, err := tx.ExecContext(ctx, statement); return err })
					})
				}()
				var is int
				if err := db.QueryRowContext(t.Context(), "SELECT @@autocommit").Scan(&is); err != nil || is != autocommit {
					t.Errorf("%s: autocommit is %d, it was %d (%v)", id, is, autocommit, err)
				}
			}
			name := func(text string) string { return fmt.Sprint(text, autocommit) }
			do(t.Context(), name("done"), func(exec executor) error { return exec(leave(name("done"))) })
			do(t.Context(), name("done"), func(executor) error { panic("it ran again") })
			do(t.Context(), "strange", func(executor) error { panic("it ran") })
			do(t.Context(), name("error"), func(exec executor) error { return errors.Join(exec(leave(name("error"))), errors.New("mine")) })
			do(t.Context(), name("failed"), func(exec executor) error {
				return errors.Join(exec(leave(name("failed"))), &inbox.Failure{Reason: "mine"})
			})
			do(t.Context(), name("panic"), func(exec executor) error { exec(leave(name("panic"))); panic("mine") })
			do(t.Context(), name("deadlock"), func(exec executor) error {
				w.breakTransaction(t, exec)
				exec(leave(name("deadlock")))
				return nil
			})
			for range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				do(ctx, name("cancelled"), func(exec executor) error { err := exec(leave(name("cancelled"))); cancel(); return err })
			}
			w.want(t, name("done"), "1")
			for _, id := range []string{"error", "failed", "panic", "deadlock", "cancelled"} {
				w.want(t, name(id), "0")
			}
		}
	})
}

// A server that was restarted, or has closed what was idle for long, is no error: the pool connects anew.
func TestClosedConnections(t *testing.T) {
	eachMySQL(t, func(t *testing.T, w world) {
		db := w.pool(t, "timeout=30s")
		db.SetMaxIdleConns(5)
		var conns []*sql.Conn
		for range 5 {
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var id int64
			if err := conn.QueryRowContext(t.Context(), "SELECT connection_id()").Scan(&id); err != nil {
				t.Fatal(err)
			}
			w.Exec(t, fmt.Sprintf("KILL %d", id))
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			conn.Close()
		}
		if _, err := w.in(t, "billing").Do(t.Context(), db, "a", func(ctx context.Context, tx *sql.Tx) (string, error) {
			_, err := tx.ExecContext(ctx, leave("a"))
			return "", err
		}); err != nil {
			t.Error(err)
		}
		w.want(t, "a", "1")
	})
}
