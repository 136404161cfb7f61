package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/memory"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
)

func ordered(t *testing.T) (postgres.Config, *postgres.Source, func(tx pgx.Tx, id string)) {
	t.Helper()
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox", CommitOrder: true}
	initialise(t, cfg, postgres.InitOptions{Partitions: 1})
	return cfg, open(t, cfg), func(tx pgx.Tx, id string) {
		t.Helper()
		if _, err := tx.Exec(t.Context(), `INSERT INTO `+cfg.Table+` (id, aggregateid, payload) VALUES ($1, 'key', 'x')`, id); err != nil {
			t.Fatal(err)
		}
	}
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Overlapping writers of one key have no order but this one, which must be asked for:
// https://github.com/namastack/namastack-outbox/issues/195
func TestCommitOrderWaitsForOlderWriters(t *testing.T) {
	cfg, src, insert := ordered(t)
	arrive := func(want string) {
		t.Helper()
		until(t, want+" to be there", func() bool { return ids(pending(t, src)) == want })
	}
	execute(t, `INSERT INTO `+cfg.Table+` (id, payload) VALUES ('before', 'x')`)
	arrive("before")
	slow, quick := begin(t, cfg.DSN), begin(t, cfg.DSN)
	insert(slow, "slow")
	insert(quick, "quick")
	commit(t, quick)
	held, err := src.HeldBack(t.Context())
	if err != nil || held == nil || held.Rows != 1 || !strings.Contains(held.Holder, "process ") || !strings.Contains(held.Holder, ", idle in transaction, since 20") || held.For <= 0 {
		t.Errorf("held back: %+v, %v", held, err)
	}
	for begun := time.Now(); time.Since(begun) < 200*time.Millisecond; {
		if got := ids(pending(t, src)); got != "before" {
			t.Fatalf("rows are there while an older transaction runs: %s", got)
		}
	}
	commit(t, slow)
	arrive("before slow quick")
	if held, err := src.HeldBack(t.Context()); err != nil || held != nil {
		t.Errorf("held back: %+v, %v", held, err)
	}
}

// The transaction that commits first has the lower number, since it wrote something else before, and the higher row. A
// snapshot then shows no running transaction at all: its xmax is not above the one that runs.
func TestCommitOrderSeesWritersThatASnapshotDoesNot(t *testing.T) {
	for range 3 {
		cfg, src, insert := ordered(t)
		execute(t, `CREATE TABLE `+cfg.Table+`_other (x int)`)
		pending(t, src) // takes a mark, and so soon no other
		first, second := begin(t, cfg.DSN, `INSERT INTO `+cfg.Table+`_other VALUES (1)`), begin(t, cfg.DSN)
		insert(second, "low")
		insert(first, "high")
		commit(t, first)
		for begun := time.Now(); time.Since(begun) < 200*time.Millisecond; {
			if got := ids(pending(t, src)); got != "" {
				t.Fatalf("%s is there before low", got)
			}
		}
		commit(t, second)
		until(t, "both to be there", func() bool { return ids(pending(t, src)) == "low high" })
	}
}

// A page's horizon is passed when all that ran at its snapshot has ended, also what began after the last mark.
func TestTheHorizonOfATransactionYoungerThanTheMark(t *testing.T) {
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
	initialise(t, cfg, postgres.InitOptions{Partitions: 1})
	src := open(t, cfg)
	horizon := func() core.Horizon {
		t.Helper()
		page, err := src.Fetch(t.Context(), core.FetchRequest{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		return *page.Horizon
	}
	horizon() // takes a mark
	tx := begin(t, cfg.DSN, `INSERT INTO `+cfg.Table+` (id, payload) VALUES ('a', 'x')`)
	execute(t, `INSERT INTO `+cfg.Table+` (id, payload) VALUES ('b', 'x')`)
	seen := horizon()
	for begun := time.Now(); time.Since(begun) < 1500*time.Millisecond; {
		if now := horizon(); now.Oldest >= seen.Next {
			t.Fatalf("%+v has passed %+v while the transaction runs", now, seen)
		}
	}
	commit(t, tx)
	until(t, "the horizon to be passed", func() bool { return horizon().Oldest >= seen.Next })
}

// A number is drawn before anything shows that its transaction writes: here a trigger takes its time before the row is
// there, and the transaction has no number of its own yet.
func TestCommitOrderWithASlowTrigger(t *testing.T) {
	cfg, src, _ := ordered(t)
	insert := func(values string) { execute(t, `INSERT INTO `+cfg.Table+` (id, payload) VALUES `+values) }
	in(t, cfg, `CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF new.id = ''slow'' THEN PERFORM pg_sleep(1); END IF; RETURN new; END'`,
		`CREATE TRIGGER slow BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION f()`)
	insert(`('first', 'x')`) // with it the sequence logs 32 numbers, for which the transaction needs one of its own
	pool := application(t, cfg.DSN)
	done := make(chan error, 1)
	go func() {
		_, err := pool.Exec(context.Background(), `INSERT INTO `+cfg.Table+` (id, payload) VALUES ('slow', 'x')`)
		done <- err
	}()
	until(t, "the slow row to have its number", func() bool {
		return ask[bool](t, `SELECT last_value > 1 FROM `+strings.Replace(cfg.Table, "outbox", "outbox_seq_seq", 1))
	})
	insert(`('quick', 'x')`)
	until(t, "both to be there", func() bool {
		got := ids(pending(t, src))
		if strings.HasPrefix(got, "first quick") {
			t.Fatalf("there is %s", got)
		}
		return got == "first slow quick"
	})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// What other transactions do elsewhere, and what does not insert, holds nothing back.
func TestCommitOrderIsNotHeldByWhatDoesNotInsert(t *testing.T) {
	cfg, src, insert := ordered(t)
	execute(t, `CREATE TABLE `+cfg.Table+`_other (x int)`)
	begin(t, cfg.DSN, `INSERT INTO `+cfg.Table+`_other VALUES (1)`)
	begin(t, cfg.DSN, `SELECT pg_current_xact_id()`, `LOCK TABLE `+cfg.Table+` IN SHARE UPDATE EXCLUSIVE MODE`) // as VACUUM does
	tx := begin(t, cfg.DSN)
	insert(tx, "a")
	commit(t, tx)
	if got := ids(pending(t, src)); got != "a" {
		t.Fatalf("there is %q", got)
	}
	if held, err := src.HeldBack(t.Context()); err != nil || held != nil {
		t.Errorf("held back: %+v, %v", held, err)
	}
}

// A stronger lock that an inserting transaction has as well hides nothing.
func TestCommitOrderOfAWriterWithAStrongerLock(t *testing.T) {
	cfg, src, insert := ordered(t)
	low := begin(t, cfg.DSN)
	insert(low, "low")
	if _, err := low.Exec(t.Context(), `LOCK TABLE `+cfg.Table+` IN SHARE UPDATE EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	execute(t, `INSERT INTO `+cfg.Table+` (id, payload) VALUES ('high', 'x')`)
	for begun := time.Now(); time.Since(begun) < 100*time.Millisecond; {
		if got := ids(pending(t, src)); got != "" {
			t.Fatalf("%s is there before low", got)
		}
	}
	commit(t, low)
	until(t, "both to be there", func() bool { return ids(pending(t, src)) == "low high" })
}

// A call whose context ends does not wait for another call that is stuck at the server.
func TestCommitOrderWaitsNoLongerThanItsContext(t *testing.T) {
	cfg, src, _ := ordered(t)
	tx := begin(t, cfg.DSN, `ALTER SEQUENCE `+cfg.Table+`_seq_seq RENAME TO other`) // nobody can read it
	stuck := make(chan error, 1)
	go func() { _, err := src.Fetch(t.Context(), core.FetchRequest{Limit: 1}); stuck <- err }()
	until(t, "a fetch to wait for the sequence", func() bool {
		return ask[bool](t, `SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND relation = to_regclass($1)::oid)`, cfg.Table+`_seq_seq`)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if _, err := src.Fetch(ctx, core.FetchRequest{Limit: 1}); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > 5*time.Second {
		t.Errorf("after %v: %v", time.Since(begun), err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-stuck; err != nil {
		t.Error(err)
	}
}

// A transaction that is prepared for a two-phase commit goes on holding rows back, without a session, and also when the
// server was started again meanwhile.
func TestCommitOrderOfPreparedTransactions(t *testing.T) {
	own := services.Own(t, "postgres")
	executeAt(t, own.Postgres(), `ALTER SYSTEM SET max_prepared_transactions = 5`)
	own.Stop("postgres")
	own.Start("postgres")
	cfg := postgres.Config{DSN: own.Postgres(), Table: "public.outbox", CommitOrder: true}
	initialise(t, cfg, postgres.InitOptions{Partitions: 1})
	src := open(t, cfg)
	tx := begin(t, cfg.DSN, `INSERT INTO outbox (id, payload) VALUES ('low', 'x')`)
	executeAt(t, cfg.DSN, `INSERT INTO outbox (id, payload) VALUES ('high', 'x')`)
	held := func() {
		t.Helper()
		for begun := time.Now(); time.Since(begun) < 100*time.Millisecond; {
			if got := ids(pending(t, src)); got != "" {
				t.Fatalf("%s is there before low", got)
			}
		}
	}
	held()
	if _, err := tx.Exec(t.Context(), `PREPARE TRANSACTION 'two'`); err != nil {
		t.Fatal(err)
	}
	held()
	if h, err := src.HeldBack(t.Context()); err != nil || h == nil || h.Rows != 1 || !strings.Contains(h.Holder, "prepared transaction 'two', user ") || !strings.Contains(h.Holder, "since 20") {
		t.Errorf("held back: %+v, %v", h, err)
	}
	own.Kill("postgres")
	own.Start("postgres")
	until(t, "the server to answer", func() bool { _, err := src.Fetch(t.Context(), core.FetchRequest{Limit: 1}); return err == nil })
	held()
	executeAt(t, cfg.DSN, `COMMIT PREPARED 'two'`)
	until(t, "both to be there", func() bool { return ids(pending(t, src)) == "low high" })
}

// A transaction that only reads holds nothing back, and one that is rolled back no longer.
func TestCommitOrderIsHeldByWritersOnly(t *testing.T) {
	cfg, src, insert := ordered(t)
	begin(t, cfg.DSN, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`, `SELECT 1`)
	tx := begin(t, cfg.DSN)
	insert(tx, "gone")
	execute(t, `INSERT INTO `+cfg.Table+` (id, payload) VALUES ('a', 'x')`)
	if got := ids(pending(t, src)); got != "" {
		t.Fatalf("%s is there", got)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "the row to be there", func() bool { return ids(pending(t, src)) == "a" })
}

// Many transactions that overlap, a key of them all: the order of arrival is that of the numbers.
func TestCommitOrderWithManyWriters(t *testing.T) {
	cfg, _, _ := ordered(t)
	sink := memory.NewSink()
	stop := run(t, cfg, 2, sink, nil)
	pool := application(t, cfg.DSN)
	errs := make(chan error, 4)
	const each = 150
	for p := range 4 {
		go func() {
			for i := range each {
				_, err := pool.Exec(context.Background(), `WITH w AS (SELECT pg_current_xact_id(), pg_sleep(random() * 0.003)) INSERT INTO `+cfg.Table+
					` (id, aggregateid, payload) SELECT $1, 'key', 'x' FROM w`, fmt.Sprint(p, "-", i))
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all to arrive", func() bool { return len(sink.Delivered()) >= 4*each })
	stop()
	last := int64(0)
	for _, r := range sink.Delivered() {
		if r.Seq <= last {
			t.Fatalf("row %d came after %d", r.Seq, last)
		}
		last = r.Seq
	}
}

func TestCommitOrderNeedsASequenceThatCountsOneByOne(t *testing.T) {
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox", CommitOrder: true}
	initialise(t, cfg, postgres.InitOptions{})
	in(t, cfg, `ALTER SEQUENCE outbox_seq_seq CACHE 10`)
	if _, err := postgres.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "CACHE 1") {
		t.Errorf("open: %v", err)
	}
}
