package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connectd/connectd/core/inbox"
	"github.com/connectd/connectd/scripts/services/prepared"
)

// executor runs a statement in the effect's transaction.
type executor func(statement string) error

// world is a database with a table of effects, which has no constraint that would hide a second one, and a way to get at it.
type world struct {
	prepared.Database
	do func(ctx context.Context, in *inbox.Inbox, id string, effect func(context.Context, executor) (string, error)) (inbox.Receipt, error)
}

func eachWorld(t *testing.T, run func(t *testing.T, w world)) {
	t.Helper()
	prepared.Each(t, func(t *testing.T, db prepared.Database) {
		w := newWorld(t, db)
		w.do = func(ctx context.Context, in *inbox.Inbox, id string, effect func(context.Context, executor) (string, error)) (inbox.Receipt, error) {
			return in.Do(ctx, db.DB, id, func(ctx context.Context, tx *sql.Tx) (string, error) {
				return effect(ctx, func(statement string) error { _, err := tx.ExecContext(ctx, statement); return err })
			})
		}
		run(t, w)
	})
	t.Run("pgx", func(t *testing.T) { run(t, pgxWorld(t, "cache_statement")) })
}

// pgxWorld is one with pgx, in one of its query modes.
func pgxWorld(t *testing.T, mode string) world {
	t.Helper()
	w := newWorld(t, prepared.Postgres(t))
	pool, err := pgxpool.New(t.Context(), w.DSN+"&default_query_exec_mode="+mode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	w.do = func(ctx context.Context, in *inbox.Inbox, id string, effect func(context.Context, executor) (string, error)) (inbox.Receipt, error) {
		return inbox.DoPgx(ctx, in, pool, id, func(ctx context.Context, tx pgx.Tx) (string, error) {
			return effect(ctx, func(statement string) error { _, err := tx.Exec(ctx, statement); return err })
		})
	}
	return w
}

func newWorld(t *testing.T, db prepared.Database) world {
	t.Helper()
	db.Exec(t, "CREATE TABLE effects (command varchar(255) NOT NULL)")
	return world{Database: db}
}

func (w world) in(t *testing.T, consumer string) *inbox.Inbox {
	t.Helper()
	return newInbox(t, w.Dialect, consumer)
}

// want compares how often the effect of a command is there.
func (w world) want(t *testing.T, id, effects string) {
	t.Helper()
	if n := w.Ask(t, "SELECT count(*) FROM effects WHERE command = '"+id+"'"); n != effects {
		t.Errorf("%s: %s effects, want %s", id, n, effects)
	}
}

// stored is the receipt's status and result, "" without one.
func (w world) stored(t *testing.T, id string) string {
	t.Helper()
	if w.Ask(t, "SELECT count(*) FROM connectd_receipt WHERE command_id = '"+id+"'") != "1" {
		return ""
	}
	return w.Ask(t, "SELECT status FROM connectd_receipt WHERE command_id = '"+id+"'") + " " + w.Ask(t, "SELECT result_ref FROM connectd_receipt WHERE command_id = '"+id+"'")
}

func leave(id string) string { return "INSERT INTO effects VALUES ('" + id + "')" }

// leaving is an effect that returns what it is told.
func leaving(id, result string, err error) func(context.Context, executor) (string, error) {
	return func(_ context.Context, exec executor) (string, error) {
		return result, errors.Join(exec(leave(id)), err)
	}
}

func never(t *testing.T) func(context.Context, executor) (string, error) {
	return func(context.Context, executor) (string, error) { t.Error("the effect ran again"); return "", nil }
}

// pgx sends other types in other modes.
func TestQueryModes(t *testing.T) {
	for _, mode := range []string{"cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			w := pgxWorld(t, mode)
			once(t, w)
			if _, err := w.do(t.Context(), w.in(t, "billing"), "b", leaving("b", "", &inbox.Failure{Reason: "mine"})); err == nil || w.stored(t, "b") != "failed mine" {
				t.Error(err, w.stored(t, "b"))
			}
		})
	}
}

func TestOnce(t *testing.T) { eachWorld(t, once) }

func once(t *testing.T, w world) {
	t.Helper()
	in := w.in(t, "billing")
	before := time.Now().Add(-2 * time.Second)
	first, err := w.do(t.Context(), in, "a", leaving("a", "invoice ü😀", nil))
	if err != nil {
		t.Fatal(err)
	}
	if first.CommandID != "a" || first.Consumer != "billing" || first.Status != inbox.Done || first.Result != "invoice ü😀" || first.Repeat ||
		first.At.Before(before) || first.At.After(time.Now().Add(2*time.Second)) || first.At.Location() != time.UTC {
		t.Errorf("%+v", first)
	}
	if got := w.stored(t, "a"); got != "done invoice ü😀" {
		t.Error(got)
	}
	again, err := w.do(t.Context(), in, "a", never(t))
	first.Repeat = true
	if err != nil || again != first {
		t.Errorf("%v, %+v", err, again)
	}
	w.want(t, "a", "1")
	if other, err := w.do(t.Context(), w.in(t, ""), "a", leaving("a", "", nil)); err != nil || other.Repeat || other.Consumer != "" || other.Result != "" {
		t.Errorf("another consumer: %v, %+v", err, other)
	}
	w.want(t, "a", "2")
	if w.Ask(t, "SELECT result_ref FROM connectd_receipt WHERE consumer = ''") != "NULL" {
		t.Error("no result is not NULL")
	}
}

func TestErrorsKeepNothing(t *testing.T) {
	eachWorld(t, func(t *testing.T, w world) {
		in := w.in(t, "billing")
		mine := errors.New("mine")
		for _, c := range []struct {
			result string
			err    error
			want   string
		}{
			{"", mine, "mine"},
			{strings.Repeat("é", 1025), nil, "the result has 1025 characters, at most 1024 are allowed"},
			{"\x00", nil, "the result is not UTF-8 without NUL"},
		} {
			r, err := w.do(t.Context(), in, "a", leaving("a", c.result, c.err))
			if err == nil || !strings.Contains(err.Error(), c.want) || r != (inbox.Receipt{}) || c.err != nil && !errors.Is(err, mine) {
				t.Errorf("%v, %+v; want %s", err, r, c.want)
			}
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is gone")
				}
			}()
			w.do(t.Context(), in, "a", func(_ context.Context, exec executor) (string, error) { exec(leave("a")); panic("mine") })
		}()
		ctx, cancel := context.WithCancel(t.Context())
		if r, err := w.do(ctx, in, "a", func(_ context.Context, exec executor) (string, error) { defer cancel(); return "", exec(leave("a")) }); err == nil || r != (inbox.Receipt{}) {
			t.Errorf("cancelled: %v, %+v", err, r)
		}
		w.want(t, "a", "0")
		if got := w.stored(t, "a"); got != "" {
			t.Error(got)
		}
		if r, err := w.do(t.Context(), in, "a", leaving("a", strings.Repeat("é", 1024), nil)); err != nil || r.Repeat {
			t.Errorf("%v, %+v", err, r)
		}
		w.want(t, "a", "1")
	})
}

// An effect may send messages of its own, through the outbox table of the same database. A repeat sends none of them again,
// neither while they wait nor when they are published or cleaned. (https://github.com/Particular/NServiceBus/issues/3070)
func TestARepeatSendsNothingAgain(t *testing.T) {
	eachWorld(t, func(t *testing.T, w world) {
		in := w.in(t, "billing")
		deliver := func() {
			t.Helper()
			_, err := w.do(t.Context(), in, "a", func(_ context.Context, exec executor) (string, error) {
				return "", exec("INSERT INTO outbox (id, payload) VALUES ('a-paid', '')")
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct{ then, rows string }{
			{"UPDATE outbox SET state = 'published', deliveries = 1", "pending 0"},
			{"DELETE FROM outbox", "published 1"},
			{"", ""},
		} {
			deliver()
			rows := ""
			if w.Ask(t, "SELECT count(*) FROM outbox") != "0" {
				rows = w.Ask(t, "SELECT state FROM outbox") + " " + w.Ask(t, "SELECT deliveries FROM outbox")
			}
			if rows != c.rows {
				t.Errorf("the outbox has %q, want %q", rows, c.rows)
			}
			if c.then != "" {
				w.Exec(t, c.then)
			}
		}
	})
}

// A failed receipt is no completion: it is replaced by that of the next attempt, and done is final.
func TestFailedReceipts(t *testing.T) {
	eachWorld(t, func(t *testing.T, w world) {
		in := w.in(t, "billing")
		for _, reason := range []string{"card declined", "again\n" + strings.Repeat("ü", 2000)} {
			r, err := w.do(t.Context(), in, "a", leaving("a", "lost", &inbox.Failure{Reason: reason}))
			var failure *inbox.Failure
			kept := strings.ReplaceAll(reason, "\n", " ")
			kept = kept[:min(len(kept), 1024)]
			if !errors.As(err, &failure) || failure.Reason != reason || r.Status != inbox.Failed || r.Result != kept || r.Repeat || r.At.IsZero() {
				t.Errorf("%v, %+v", err, r)
			}
			if got := w.stored(t, "a"); got != "failed "+kept {
				t.Error(got)
			}
			w.want(t, "a", "0")
		}
		if _, err := w.do(t.Context(), in, "a", leaving("a", "", errors.New("mine"))); err == nil || !strings.HasPrefix(w.stored(t, "a"), "failed again") {
			t.Error("an attempt without a receipt leaves the former one:", err, w.stored(t, "a"))
		}
		if r, err := w.do(t.Context(), in, "a", leaving("a", "paid", nil)); err != nil || r.Repeat || w.stored(t, "a") != "done paid" {
			t.Errorf("%v, %+v", err, r)
		}
		if r, err := w.do(t.Context(), in, "a", never(t)); err != nil || !r.Repeat || r.Status != inbox.Done {
			t.Errorf("%v, %+v", err, r)
		}
		w.want(t, "a", "1")
	})
}

// A second call waits for the first and then finds its receipt, or runs the effect when there is none that says done. A
// check and then an insert would let both run it: https://github.com/Particular/NServiceBus/issues/4086.
func TestTwoAtOnce(t *testing.T) {
	eachWorld(t, func(t *testing.T, w world) {
		in := w.in(t, "billing")
		for id, outcome := range map[string]error{"done": nil, "no receipt": errors.New("mine"), "failed": &inbox.Failure{Reason: "mine"}} {
			working, goOn, ended := make(chan bool), make(chan bool), make(chan error)
			go func() {
				_, err := w.do(context.Background(), in, id, func(_ context.Context, exec executor) (string, error) {
					close(working)
					<-goOn
					return "first", errors.Join(exec(leave(id)), outcome)
				})
				ended <- err
			}()
			<-working
			type answer struct {
				inbox.Receipt
				error
			}
			second := make(chan answer)
			go func() {
				r, err := w.do(context.Background(), in, id, leaving(id, "second", nil))
				second <- answer{r, err}
			}()
			w.awaitWaiting(t)
			select {
			case a := <-second:
				t.Fatalf("%s: the second did not wait: %+v", id, a)
			default:
			}
			close(goOn)
			// A failed one gives up its claim before it writes that: the second may have completed the command by then.
			if err := <-ended; (err == nil) != (outcome == nil) && id != "failed" {
				t.Errorf("%s: first: %v", id, err)
			}
			want := "second"
			if outcome == nil {
				want = "first"
			}
			if a := <-second; a.error != nil || a.Status != inbox.Done || a.Result != want || a.Repeat != (outcome == nil) {
				t.Errorf("%s: second: %+v", id, a)
			}
			w.want(t, id, "1")
		}
	})
}

// awaitWaiting waits until somebody waits for a lock. SQLite has none to look at, and InnoDB shows new ones only to those who
// have not looked for 0.1 s.
func (w world) awaitWaiting(t *testing.T) {
	t.Helper()
	query := map[string]string{
		"postgres": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
		"mysql":    "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
		"sqlite":   "SELECT 1",
	}[w.Dialect]
	for deadline := time.Now().Add(30 * time.Second); w.Ask(t, query) == "0"; time.Sleep(150 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody waits")
		}
	}
}

// An effect that ends its own transaction is found out, and not run again: nobody knows how much of it there is.
func TestEffectThatCommits(t *testing.T) {
	eachWorld(t, func(t *testing.T, w world) {
		in := w.in(t, "billing")
		commit := "COMMIT"
		if w.Dialect == "mysql" {
			commit = "CREATE TABLE committed_by_this (n int)"
		}
		for _, id := range []string{"new", "failed"} {
			if id == "failed" {
				w.Exec(t, "DROP TABLE IF EXISTS committed_by_this")
				if _, err := w.do(t.Context(), in, id, leaving(id, "", &inbox.Failure{Reason: "mine"})); err == nil {
					t.Fatal("no error")
				}
			}
			r, err := w.do(t.Context(), in, id, func(_ context.Context, exec executor) (string, error) {
				return "", errors.Join(exec(leave(id)), exec(commit))
			})
			if err == nil || !strings.Contains(err.Error(), "the effect has ended its transaction") || r != (inbox.Receipt{}) {
				t.Errorf("%s: %v, %+v", id, err, r)
			}
			if _, err := w.do(t.Context(), in, id, never(t)); err == nil || !strings.Contains(err.Error(), "an earlier effect was committed without its receipt") {
				t.Errorf("%s: %v", id, err)
			}
			w.want(t, id, "1")
		}
	})
}

// An effect that goes on after an error which has ended its transaction is not taken for done. With a failed receipt there is
// a row that a statement outside of any transaction would change.
func TestEffectInABrokenTransaction(t *testing.T) {
	eachWorld(t, func(t *testing.T, w world) {
		in := w.in(t, "billing")
		for _, id := range []string{"new", "failed"} {
			if id == "failed" {
				w.do(t.Context(), in, id, leaving(id, "", &inbox.Failure{Reason: "mine"}))
			}
			r, err := w.do(t.Context(), in, id, func(_ context.Context, exec executor) (string, error) {
				err := exec(leave(id))
				w.breakTransaction(t, exec)
				return "", err
			})
			if err == nil || r != (inbox.Receipt{}) {
				t.Errorf("%s: %v, %+v", id, err, r)
			}
			w.want(t, id, "0")
			if got := w.stored(t, id); got != map[string]string{"new": "", "failed": "failed mine"}[id] {
				t.Errorf("%s: %s", id, got)
			}
		}
	})
}

// breakTransaction makes an error in the transaction that the database answers by giving it up.
func (w world) breakTransaction(t *testing.T, exec executor) {
	t.Helper()
	switch w.Dialect {
	case "postgres":
		exec("SELECT no_such_column")
	case "sqlite":
		exec("CREATE TABLE IF NOT EXISTS ones (n INTEGER PRIMARY KEY)")
		exec("INSERT INTO ones VALUES (1)")
		exec("INSERT OR ROLLBACK INTO ones VALUES (1)")
	default: // a deadlock, with somebody who has more to lose
		w.Exec(t, "CREATE TABLE IF NOT EXISTS numbers (n int PRIMARY KEY, v int)",
			"INSERT IGNORE INTO numbers WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 300) SELECT n, 0 FROM r")
		other, err := w.DB.BeginTx(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Rollback()
		if _, err := other.Exec("UPDATE numbers SET v = v + 1 WHERE n > 1"); err != nil {
			t.Fatal(err)
		}
		if err := exec("UPDATE numbers SET v = v + 1 WHERE n = 1"); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { _, err := other.Exec("UPDATE numbers SET v = v + 1 WHERE n = 1"); ended <- err }()
		err = exec("UPDATE numbers SET v = v + 1 WHERE n = 2")
		if err == nil || !strings.Contains(err.Error(), "1213") {
			t.Error("the effect is not the deadlock's victim:", err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// unchecked writes what the table refuses that init makes now, and one that an older init made has.
func (w world) unchecked(t *testing.T, statement string) {
	t.Helper()
	const check = "a receipt is done, failed or started"
	switch w.Dialect {
	case "postgres":
		w.Exec(t, `ALTER TABLE connectd_receipt DROP CONSTRAINT "`+check+`"`, statement)
	case "mysql":
		w.Exec(t, "ALTER TABLE connectd_receipt DROP CONSTRAINT `"+check+"`", statement)
	default:
		w.DB.SetMaxOpenConns(1) // the setting is a connection's
		w.Exec(t, "PRAGMA ignore_check_constraints = ON", statement)
	}
}

func TestStrangeStatus(t *testing.T) {
	eachWorld(t, func(t *testing.T, w world) {
		w.unchecked(t, "INSERT INTO connectd_receipt (command_id, consumer, status) VALUES ('a', 'billing', 'DONE'), ('b', 'billing', 'done')")
		if _, err := w.do(t.Context(), w.in(t, "billing"), "a", never(t)); err == nil || !strings.Contains(err.Error(), `its receipt has status "DONE", which is neither done nor failed`) {
			t.Error(err)
		}
		if r, err := w.do(t.Context(), w.in(t, "billing"), "b", never(t)); err != nil || !r.Repeat || r.Result != "" {
			t.Errorf("a receipt of plain SQL: %v, %+v", err, r)
		}
	})
}

// In a transaction that is there, what was done before stays, whatever becomes of the command.
func TestWithinATransaction(t *testing.T) {
	prepared.Each(t, func(t *testing.T, db prepared.Database) {
		w := newWorld(t, db)
		schema := map[string]string{"postgres": "public", "sqlite": "main"}[db.Dialect]
		if db.Dialect == "mysql" {
			schema = db.Ask(t, "SELECT database()")
		}
		in, err := inbox.New(inbox.Dialect(db.Dialect), "billing", inbox.Options{Schema: schema})
		if err != nil {
			t.Fatal(err)
		}
		effect := func(id string, err error) func(context.Context, *sql.Tx) (string, error) {
			return func(ctx context.Context, tx *sql.Tx) (string, error) {
				_, failed := tx.ExecContext(ctx, leave(id))
				return "", errors.Join(failed, err)
			}
		}
		for _, commit := range []bool{false, true} {
			tx, err := db.DB.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), leave("outer")); err != nil {
				t.Fatal(err)
			}
			if r, err := in.DoTx(t.Context(), tx, "a", effect("a", nil)); err != nil || r.Repeat {
				t.Fatal(err)
			}
			if r, err := in.DoTx(t.Context(), tx, "b", effect("b", &inbox.Failure{Reason: "mine"})); err == nil || r.Status != inbox.Failed {
				t.Error(err)
			}
			if r, err := in.DoTx(t.Context(), tx, "c", effect("c", errors.New("mine"))); err == nil || r.Status != "" {
				t.Error(err)
			}
			if r, err := in.DoTx(t.Context(), tx, "a", effect("a", nil)); err != nil || !r.Repeat {
				t.Error(err)
			}
			if !commit {
				err = tx.Rollback()
			} else {
				err = tx.Commit()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		w.want(t, "outer", "1")
		w.want(t, "a", "1")
		w.want(t, "b", "0")
		w.want(t, "c", "0")
		if got := w.stored(t, "a") + ", " + w.stored(t, "b") + ", " + w.stored(t, "c"); got != "done NULL, failed mine, " {
			t.Error(got)
		}
	})
}
