package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
	"github.com/connectd/connectd/sources/sourcetest"
)

// worker is one process on a new table of its own, with rows of one key and their lease.
type worker struct {
	cfg   postgres.Config
	src   *postgres.Source
	lease core.Lease
	rows  []core.Row
}

func start(t *testing.T, cfg postgres.Config, rows int) *worker {
	t.Helper()
	if cfg.Table == "" {
		cfg.Table = schemaOf(t) + ".outbox"
	}
	initialise(t, cfg, postgres.InitOptions{Partitions: 1})
	executeAt(t, cfg.DSN, fmt.Sprintf(`INSERT INTO %s (id, aggregateid, payload) SELECT 'row' || i, 'key', 'x' FROM generate_series(1, %d) i`, cfg.Table, rows))
	w := &worker{cfg: cfg, src: open(t, cfg)}
	taken, err := w.src.Acquire(t.Context(), "one", 1, time.Minute, false)
	if err != nil || len(taken) != 1 {
		t.Fatal(taken, err)
	}
	w.lease = taken[0].Lease
	w.rows = pending(t, w.src)
	return w
}

// publish settles rows, by their place.
func (w *worker) publish(ctx context.Context, rows ...int) error {
	c := core.Change{Lease: w.lease}
	for _, i := range rows {
		c.Settle = append(c.Settle, core.Settlement{Seq: w.rows[i].Record.Seq, Deliveries: w.rows[i].Deliveries, State: core.Published})
	}
	return w.src.Step(ctx, "one", []core.Change{c})
}

func (w *worker) state(t *testing.T, id string) core.State {
	t.Helper()
	info, _, err := w.src.Show(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return info.State
}

// begin opens an application's transaction that has done something already.
func begin(t *testing.T, dsn string, statements ...string) pgx.Tx {
	t.Helper()
	tx, err := application(t, dsn).Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	for _, s := range statements {
		if _, err := tx.Exec(context.Background(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	return tx
}

// waiting says whether the relay waits for a lock on a table.
func waiting(t *testing.T, cfg postgres.Config) func() bool {
	schema, _, _ := strings.Cut(cfg.Table, ".")
	return func() bool {
		return ask[bool](t, `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE application_name = 'connectd' AND wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%')`, schema)
	}
}

// A backend that is killed in mid-step leaves the step undone; it is repeated as it was.
func TestABackendIsKilledInMidSettle(t *testing.T) {
	w := start(t, postgres.Config{DSN: services.Postgres(t)}, 3)
	schema, _, _ := strings.Cut(w.cfg.Table, ".")
	lock := begin(t, w.cfg.DSN, `SELECT * FROM `+w.cfg.Table+` WHERE id = 'row2' FOR UPDATE`)
	done := make(chan error, 1)
	go func() { done <- w.publish(t.Context(), 0, 1, 2) }()
	until(t, "the step to wait for the row", waiting(t, w.cfg))
	ask[bool](t, `SELECT bool_and(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'connectd' AND wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'`, schema)
	if err := <-done; err == nil || errors.Is(err, core.ErrLeaseNotOwned) {
		t.Errorf("the step whose backend was killed: %v", err)
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.state(t, "row1"); got != core.Pending {
		t.Errorf("row1 is %s", got)
	}
	for range 2 {
		if err := w.publish(t.Context(), 0, 1, 2); err != nil {
			t.Fatal(err)
		}
	}
	info, _, err := w.src.Show(t.Context(), "row3")
	if err != nil || info.State != core.Published || info.Deliveries != 1 {
		t.Errorf("row3: %+v, %v", info, err)
	}
}

// A settlement that has no failure leaves no line of history.
func TestASettlementWithoutAFailure(t *testing.T) {
	w := start(t, postgres.Config{DSN: services.Postgres(t)}, 1)
	c := core.Change{Lease: w.lease, Settle: []core.Settlement{{Seq: w.rows[0].Record.Seq, State: core.Held}}}
	if err := w.src.Step(t.Context(), "one", []core.Change{c}); err != nil {
		t.Fatal(err)
	}
	info, history, err := w.src.Show(t.Context(), "row1")
	if err != nil || info.State != core.Held || info.LastError != "" || len(history) > 0 {
		t.Errorf("%+v, %+v, %v", info, history, err)
	}
}

// A takeover is under way and not committed: the former owner's step waits for it, and is refused.
func TestAStepWaitsForATakeoverUnderWay(t *testing.T) {
	for mode, dsn := range modes {
		t.Run(mode, func(t *testing.T) {
			w := start(t, postgres.Config{DSN: dsn(t)}, 3)
			schema, _, _ := strings.Cut(w.cfg.Table, ".")
			takeover := begin(t, services.Postgres(t), `UPDATE `+schema+`.connectd_lease SET owner = 'two', epoch = epoch + 1`)
			done := make(chan error, 1)
			go func() {
				done <- w.src.Step(t.Context(), "one", []core.Change{{
					Lease:    w.lease,
					Settle:   []core.Settlement{{Seq: w.rows[0].Record.Seq, State: core.Published}},
					Announce: []core.Announcement{{Batch: 1, Seqs: []int64{w.rows[1].Record.Seq}}},
				}})
			}()
			select {
			case err := <-done:
				t.Fatalf("the step did not wait: %v", err)
			case <-time.After(100 * time.Millisecond): // it waits
			}
			commit(t, takeover)
			if err := <-done; !errors.Is(err, core.ErrLeaseNotOwned) {
				t.Errorf("the step: %v", err)
			}
			if lag, err := w.src.Lag(t.Context()); err != nil || lag.Pending != 3 || lag.InFlight != 0 {
				t.Errorf("after it: %+v, %v", lag, err)
			}
		})
	}
}

// All idle connections are cut at once, as by a firewall or a restart.
func TestConnectionsThatWereCutAreReplaced(t *testing.T) {
	for mode, dsn := range modes {
		t.Run(mode, func(t *testing.T) {
			w := start(t, postgres.Config{DSN: dsn(t)}, 20)
			for i := range 5 {
				// The pooler's own connections are the other clients' too.
				ask[int](t, `SELECT count(pg_terminate_backend(pid))::int FROM pg_stat_activity WHERE application_name = 'connectd' AND query LIKE '%' || $1 || '%'`, strings.Split(w.cfg.Table, ".")[0])
				until(t, "a step to be done", func() bool { return w.publish(t.Context(), i) == nil })
				until(t, "a fetch to be done", func() bool {
					page, err := sourcetest.Page(t.Context(), w.src, core.FetchRequest{Limit: 100})
					return err == nil && len(page.Rows) == 19-i
				})
			}
		})
	}
}

// Two transactions wait for each other and the server ends ours: nothing was done, so it is done again, whole.
func TestADeadlockIsTriedAgain(t *testing.T) {
	w := start(t, postgres.Config{DSN: services.Postgres(t)}, 2)
	// The application has row2 and will want row1; it looks for a deadlock later than we do.
	app := begin(t, w.cfg.DSN, `SET LOCAL deadlock_timeout = '60s'`, `SELECT 1 FROM `+w.cfg.Table+` WHERE id = 'row2' FOR UPDATE`)
	done := make(chan error, 1)
	go func() { done <- w.publish(t.Context(), 0, 1) }()
	until(t, "the step to wait for row2", waiting(t, w.cfg))
	before := ask[int64](t, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`)
	if _, err := app.Exec(t.Context(), `UPDATE `+w.cfg.Table+` SET type = 'x' WHERE id = 'row1'`); err != nil {
		t.Fatalf("the application was the one to be ended: %v", err)
	}
	if err := app.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("the step: %v", err)
	}
	until(t, "the server to count the deadlock", func() bool {
		return ask[int64](t, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`) > before
	})
	for _, id := range []string{"row1", "row2"} {
		if got := w.state(t, id); got != core.Published {
			t.Errorf("%s is %s", id, got)
		}
	}
}

// Where sessions are serializable and not ours to set, a step that meets another transaction is done all the same.
// https://github.com/MassTransit/MassTransit/issues/5114
func TestSerializableSessions(t *testing.T) {
	db := database(t, `default_transaction_isolation = 'serializable'`)
	for mode, dsn := range map[string]string{"direct": services.Postgres(t), "pooler": services.PgBouncer(t)} {
		t.Run(mode, func(t *testing.T) {
			executeAt(t, inDatabase(t, services.Postgres(t), db), `DROP SCHEMA IF EXISTS o CASCADE`, `CREATE SCHEMA o`)
			w := start(t, postgres.Config{DSN: inDatabase(t, dsn, db), Table: "o.outbox"}, 2)
			renew := begin(t, inDatabase(t, services.Postgres(t), db), `UPDATE o.connectd_lease SET lease_until = lease_until + interval '1 second'`)
			done := make(chan error, 1)
			go func() { done <- w.publish(t.Context(), 0) }()
			until(t, "the step to wait for the lease", func() bool {
				return ask[bool](t, `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = $1 AND wait_event_type = 'Lock')`, db)
			})
			commit(t, renew)
			if err := <-done; err != nil {
				t.Errorf("the step: %v", err)
			}
			if got := w.state(t, "row1"); got != core.Published {
				t.Errorf("row1 is %s", got)
			}
		})
	}
}

// A table that changes under a running daemon: https://github.com/graphile/worker/issues/175
func TestColumnsChangeWhileItRuns(t *testing.T) {
	for mode, dsn := range modes {
		t.Run(mode, func(t *testing.T) {
			w := start(t, postgres.Config{DSN: dsn(t)}, 20)
			use := func(i int, want string) {
				t.Helper()
				page, err := sourcetest.Page(t.Context(), w.src, core.FetchRequest{Limit: 100})
				if err != nil || len(page.Rows) != 20-i || string(page.Rows[0].Record.Payload) != want {
					t.Fatalf("fetch: %d rows, %v", len(page.Rows), err)
				}
				if err := w.publish(t.Context(), i); err != nil {
					t.Fatal(err)
				}
				if _, err := w.src.List(t.Context(), core.Filter{}); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 7 { // the server keeps a plan from the sixth time on
				use(i, "x")
			}
			for i, change := range []string{`ADD COLUMN more text`, `DROP COLUMN more`, `ALTER COLUMN type TYPE varchar(50)`, `ALTER COLUMN created_at TYPE timestamp`,
				`ALTER COLUMN payload TYPE text USING convert_from(payload, 'UTF8')`} {
				execute(t, `ALTER TABLE `+w.cfg.Table+` `+change)
				use(7+i, "x")
			}
		})
	}
}

// A server that became read-only answers every read as before. No connection to it is kept.
// https://github.com/gpustack/gpustack/issues/6105
func TestAServerThatBecameReadOnly(t *testing.T) {
	own := services.Own(t, "postgres")
	w := start(t, postgres.Config{DSN: own.Postgres(), Table: "public.outbox"}, 5)
	pids := func() string {
		return askAt[string](t, own.Postgres(), `SELECT coalesce(string_agg(pid::text, ' ' ORDER BY pid), '') FROM pg_stat_activity WHERE application_name = 'connectd'`)
	}
	before := pids()
	executeAt(t, own.Postgres(), `ALTER SYSTEM SET default_transaction_read_only = on`, `SELECT pg_reload_conf()`)
	var err error
	until(t, "a step to be refused", func() bool { err = w.publish(t.Context(), 0); return err != nil })
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "25006" {
		t.Errorf("the step: %v", err)
	}
	until(t, "the connections to be given up", func() bool { return pids() == "" })
	if err := w.publish(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "read only") {
		t.Errorf("the next step: %v", err)
	}
	if _, err := postgres.Open(t.Context(), w.cfg); err == nil || !strings.Contains(err.Error(), "read only") {
		t.Errorf("open: %v", err)
	}
	executeAt(t, own.Postgres(), `ALTER SYSTEM RESET default_transaction_read_only`, `SELECT pg_reload_conf()`)
	until(t, "a step to be done again", func() bool { return w.publish(t.Context(), 0) == nil })
	if after := pids(); after == before || after == "" {
		t.Errorf("the connections are %q, and were %q", after, before)
	}
}

// What a role or a database sets for other work does not reach the relay, but what the DSN says does.
func TestTimeoutsOfOthers(t *testing.T) {
	db := database(t, `statement_timeout = '1ms'`, `lock_timeout = '1ms'`, `idle_in_transaction_session_timeout = '1ms'`)
	dsn := with(t, inDatabase(t, services.Postgres(t), db), "statement_timeout", "0")
	w := start(t, postgres.Config{DSN: dsn, Table: "public.outbox"}, 3)
	w.cfg.DSN = with(t, dsn, "statement_timeout", "300")
	w.src = open(t, w.cfg)
	lock := begin(t, with(t, dsn, "idle_in_transaction_session_timeout", "0"), `SELECT 1 FROM outbox FOR UPDATE`)
	var pg *pgconn.PgError
	if err := w.publish(t.Context(), 0); !errors.As(err, &pg) || pg.Code != "57014" {
		t.Errorf("a step that had to wait for longer than the DSN allows: %v", err)
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.publish(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// An announcement that a crash of the server takes back would be sent again without the mark. The constraint trigger is
// run at the commit.
func TestG6StepsOutliveACrashOfTheServer(t *testing.T) {
	db := database(t, `synchronous_commit = off`)
	for mode, dsn := range map[string]string{"direct": services.Postgres(t), "pooler": services.PgBouncer(t)} {
		t.Run(mode, func(t *testing.T) {
			dsn = inDatabase(t, dsn, db)
			executeAt(t, inDatabase(t, services.Postgres(t), db), `DROP SCHEMA IF EXISTS o CASCADE`, `CREATE SCHEMA o`, `CREATE TABLE o.said (level text, at text)`)
			w := start(t, postgres.Config{DSN: dsn, Table: "o.outbox"}, 3)
			executeAt(t, inDatabase(t, services.Postgres(t), db),
				`CREATE FUNCTION o.say() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO o.said VALUES (current_setting('synchronous_commit'), TG_TABLE_NAME); RETURN NULL; END $$`,
				`CREATE CONSTRAINT TRIGGER say AFTER INSERT ON o.connectd_inflight DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION o.say()`,
				`CREATE CONSTRAINT TRIGGER say AFTER UPDATE ON o.outbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION o.say()`)
			announce := core.Change{Lease: w.lease, Announce: []core.Announcement{{Batch: 1, Seqs: []int64{w.rows[0].Record.Seq}}}}
			if err := w.src.Step(t.Context(), "one", []core.Change{announce}); err != nil {
				t.Fatal(err)
			}
			if err := w.src.Release(t.Context(), "one", w.lease); err != nil {
				t.Fatal(err)
			}
			if _, err := w.src.Acquire(t.Context(), "two", 1, time.Minute, false); err != nil {
				t.Fatal(err)
			}
			if got := askAt[string](t, inDatabase(t, services.Postgres(t), db), `SELECT string_agg(at || ' ' || level, ', ' ORDER BY at) FROM o.said`); got != "connectd_inflight on, outbox on" {
				t.Errorf("committed with %s", got)
			}
		})
	}
}

// Nothing answers: no call is longer than its context.
func TestAServerThatDoesNotAnswer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err = postgres.Open(ctx, postgres.Config{DSN: "postgres://u:secret@" + silent.Addr().String() + "/db?sslmode=disable", Table: "outbox"})
	if err == nil || time.Since(begun) > 5*time.Second || strings.Contains(err.Error(), "secret") {
		t.Errorf("open took %v: %v", time.Since(begun), err)
	}
}

func TestErrorsHoldNoSecret(t *testing.T) {
	dsn := services.Postgres(t)
	at := dsn[strings.LastIndex(dsn, "@"):]
	for _, dsn := range []string{
		"postgres://u:s3cr/et" + at, "postgres://u:s3cr#et" + at, "postgres://u:s3cr%et" + at, "postgres://u:s3cr:et@:x:/d", "password=s3cr'et host=x",
		"host=x password='s3cr\\'et' port=et", "user=x password=s3cret sslmode=none", "postgres://u:s3cret" + strings.Replace(at, "sslmode=disable", "sslmode=s3cret", 1),
		"postgres://u?s3cret" + at, "postgres://u?s3cret=x" + at, "postgres://u:5432/s3cret" + at, "postgres://u:5432#s3cret" + at, "postgres://s3cret" + at,
		"postgres://connectd:x" + at + "&s3cret=on", "postgres://connectd:connectd" + at + "&s3cret=on", "postgres://connectd:connectd" + at + "&work_mem=s3cret", "postgres://u:x" + at + "&sslmode=verify-full&sslrootcert=/s3cret",
		"host=127.0.0.1 user=x password=a s3cret=b", "host=127.0.0.1 user=x password=a s3cret b=c",
		"postgres://nobody:s3cret" + at, "postgres://u:s3cret@127.0.0.1:1/d", "postgres://u:s3cret@no.such.host.invalid/d",
	} {
		cfg := postgres.Config{DSN: dsn, Table: "outbox"}
		for what, err := range map[string]error{
			"validate": cfg.Validate(),
			"open":     func() error { _, err := postgres.Open(t.Context(), cfg); return err }(),
			"doctor":   func() error { return errors.New(fmt.Sprint(postgres.Diagnose(t.Context(), cfg).Findings)) }(),
			"plan":     func() error { _, err := postgres.Plan(t.Context(), cfg, postgres.InitOptions{}); return err }(),
		} {
			if err == nil && what != "validate" {
				t.Errorf("%s with %s works", what, dsn)
			}
			if err != nil && (strings.Contains(err.Error(), "s3cr") || strings.Contains(err.Error(), "et@") || strings.Contains(err.Error(), "user=") || strings.Contains(err.Error(), "nobody") || strings.Contains(fmt.Sprintf("%+v %#v", err, err), "s3cret")) {
				t.Errorf("%s with %s: %v", what, dsn, err)
			}
		}
	}
}

// database makes a database with settings of its own.
func database(t *testing.T, settings ...string) string {
	t.Helper()
	name := schemaOf(t) + "_db"
	execute(t, "CREATE DATABASE "+name)
	t.Cleanup(func() { execute(t, "DROP DATABASE "+name+" WITH (FORCE)") })
	for _, s := range settings {
		execute(t, "ALTER DATABASE "+name+" SET "+s)
	}
	return name
}

// inDatabase is the same server's other database.
func inDatabase(t *testing.T, dsn, name string) string {
	t.Helper()
	before, params, _ := strings.Cut(dsn, "?")
	return before[:strings.LastIndex(before, "/")+1] + name + "?" + params
}

// A person who changes a row that another transaction has locked is told so after some seconds, and nothing is changed.
func TestAChangeOfALockedRow(t *testing.T) {
	for mode, dsn := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := start(t, postgres.Config{DSN: dsn(t)}, 1)
			execute(t, `UPDATE `+w.cfg.Table+` SET state = 'dead'`)
			app := begin(t, services.Postgres(t), `SELECT 1 FROM `+w.cfg.Table+` FOR UPDATE`)
			begun := time.Now()
			if err := w.src.Retry(t.Context(), core.Act{ID: "row1", By: "ops"}); !errors.Is(err, core.ErrLocked) || time.Since(begun) > 15*time.Second {
				t.Errorf("%v after %v", err, time.Since(begun))
			}
			commit(t, app)
			if info, history, err := w.src.Show(t.Context(), "row1"); err != nil || info.State != core.Dead || len(history) > 0 {
				t.Errorf("%+v, %+v, %v", info, history, err)
			}
			if err := w.src.Retry(t.Context(), core.Act{ID: "row1", By: "ops"}); err != nil {
				t.Error(err)
			}
		})
	}
}
