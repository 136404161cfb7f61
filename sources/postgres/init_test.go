package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
)

// articleConfig is for the outbox table many services already have.
func articleConfig(t *testing.T) postgres.Config {
	return postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".commands", Columns: columns("id", "command_id", "key", "run_id", "type", "kind")}
}

// in runs statements with the schema of cfg's table first in the search path.
func in(t *testing.T, cfg postgres.Config, statements ...string) {
	t.Helper()
	schema, _, _ := strings.Cut(cfg.Table, ".")
	execute(t, append([]string{"SET search_path = " + schema + ", public"}, statements...)...)
}

// pending reads all pending rows, in the order of their numbers.
func pending(t *testing.T, src *postgres.Source) []core.Row {
	t.Helper()
	n, err := src.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var rows []core.Row
	for part := range n {
		page, err := src.Fetch(t.Context(), core.FetchRequest{Part: part, Limit: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, page.Rows...)
	}
	slices.SortFunc(rows, func(a, b core.Row) int { return int(a.Record.Seq - b.Record.Seq) })
	return rows
}

func ids(rows []core.Row) string {
	var list []string
	for _, r := range rows {
		list = append(list, r.Record.ID)
	}
	return strings.Join(list, " ")
}

func TestOpenNamesWhatIsMissing(t *testing.T) {
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
	missing := func(what string) {
		t.Helper()
		src, err := postgres.Open(t.Context(), cfg)
		if err == nil {
			src.Close()
		}
		if !errors.Is(err, core.ErrNotInitialised) || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "connectd init") {
			t.Errorf("want an error about %s, got %v", what, err)
		}
	}
	missing("table t")
	if _, err := postgres.Plan(t.Context(), cfg, postgres.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	missing("table t") // a plan changes nothing
	initialise(t, cfg, postgres.InitOptions{})
	in(t, cfg, `DROP INDEX connectd_outbox_pending`)
	missing("index connectd_outbox_pending")
	initialise(t, cfg, postgres.InitOptions{})
	in(t, cfg, `ALTER TABLE outbox RENAME COLUMN failing_since TO failing`, `DROP TABLE connectd_ledger`)
	missing("column failing_since, no table connectd_ledger")
	initialise(t, cfg, postgres.InitOptions{})
	in(t, cfg, `DELETE FROM connectd_lease WHERE part = 3`)
	missing("connectd_outbox")
	initialise(t, cfg, postgres.InitOptions{})
	open(t, cfg)
}

func TestInitIsSafeTwice(t *testing.T) {
	cfg := articleConfig(t)
	cfg.Notify = postgres.NotifyTrigger
	for _, create := range []bool{false, true} {
		if create {
			cfg.Table = strings.Replace(cfg.Table, ".commands", ".adopted", 1)
			in(t, cfg, `CREATE TABLE adopted (command_id text PRIMARY KEY, run_id text, kind text, payload text)`)
		}
		first, err := postgres.Plan(t.Context(), cfg, postgres.InitOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range first.Steps {
			if step.Why == "" || step.SQL == "" || strings.Contains(strings.ToUpper(step.SQL), "DROP TABLE") || strings.Contains(strings.ToUpper(step.SQL), "DROP COLUMN") {
				t.Errorf("step %+v", step)
			}
		}
		for range 2 { // the same plan, applied twice
			if err := postgres.Apply(t.Context(), cfg, postgres.InitOptions{}, first); err != nil {
				t.Fatal(err)
			}
		}
		again, err := postgres.Plan(t.Context(), cfg, postgres.InitOptions{})
		if err != nil || len(again.Steps) > 0 {
			t.Errorf("a second plan: %+v, %v", again, err)
		}
		open(t, cfg)
	}
}

// Two machines init at once, while the application goes on inserting.
func TestInitFromTwoMachinesAtOnce(t *testing.T) {
	cfg := articleConfig(t)
	in(t, cfg, `CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text)`,
		`INSERT INTO commands SELECT 'old' || i, 'run', 'kind', 'x' FROM generate_series(1, 500) i`)
	opt := postgres.InitOptions{Existing: "pending"}
	ctx, stop := context.WithCancel(t.Context())
	pool := application(t, cfg.DSN)
	inserted := 0
	var app, wg sync.WaitGroup
	app.Go(func() {
		for ctx.Err() == nil {
			if _, err := pool.Exec(context.Background(), `INSERT INTO `+cfg.Table+` VALUES ('new' || $1::text, 'run', 'kind', 'x')`, fmt.Sprint(inserted)); err != nil {
				t.Error(err)
				return
			}
			inserted++
		}
	})
	plan, err := postgres.Plan(t.Context(), cfg, opt)
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 3)
	for i := range errs {
		wg.Go(func() { errs[i] = postgres.Apply(t.Context(), cfg, opt, plan) })
	}
	wg.Wait()
	stop()
	app.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("init %d: %v", i, err)
		}
	}
	rows := pending(t, open(t, cfg))
	if len(rows) != 500+inserted {
		t.Errorf("%d rows are pending, want %d and %d", len(rows), 500, inserted)
	}
	last := 0
	for _, r := range rows {
		if n := 0; strings.HasPrefix(r.Record.ID, "new") {
			fmt.Sscanf(r.Record.ID, "new%d", &n)
			if n < last {
				t.Fatalf("row new%d comes after new%d", n, last)
			}
			last = n
		} else if last > 0 {
			t.Fatalf("row %s comes after new%d", r.Record.ID, last)
		}
	}
}

func TestAPlanThatNoLongerFitsChangesNothing(t *testing.T) {
	cfg := articleConfig(t)
	plan, err := postgres.Plan(t.Context(), cfg, postgres.InitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	in(t, cfg, `CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text)`)
	if err := postgres.Apply(t.Context(), cfg, postgres.InitOptions{}, plan); err == nil || !strings.Contains(err.Error(), "plan again") {
		t.Errorf("applied to a table that came since: %v", err)
	}
	if _, err := postgres.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "table connectd_lease") {
		t.Errorf("something was changed: %v", err)
	}
}

// What is begun is finished by the next init, wherever it was interrupted.
func TestAnInterruptedInitGoesOn(t *testing.T) {
	for failing := range 20 {
		cfg := articleConfig(t)
		in(t, cfg, `CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text, published boolean)`,
			`INSERT INTO commands SELECT 'c' || i, 'r', 'k', 'p', i % 3 = 0 FROM generate_series(1, 30) i`)
		plan, err := postgres.Plan(t.Context(), cfg, postgres.InitOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if failing >= len(plan.Steps) {
			return
		}
		for _, step := range plan.Steps[:failing] {
			execute(t, step.SQL)
		}
		in(t, cfg, `INSERT INTO commands (command_id, run_id, kind, payload) VALUES ('new', 'r', 'k', 'p')`)
		if failing > 0 {
			if _, err := postgres.Open(t.Context(), cfg); !errors.Is(err, core.ErrNotInitialised) {
				t.Errorf("after %d steps: open: %v", failing, err)
			}
		}
		initialise(t, cfg, postgres.InitOptions{})
		rows := pending(t, open(t, cfg))
		if len(rows) != 21 || rows[0].Record.ID != "c1" || rows[19].Record.ID != "c29" || rows[20].Record.ID != "new" {
			t.Errorf("after %d steps: %s", failing, ids(rows))
		}
	}
	t.Error("there are more steps than were tried")
}

// An init that is killed leaves the server numbering rows. The next one must not number them at the same time: rows would
// get numbers that others have, and the index on them could never be made.
func TestRowsAreNumberedByOneInitThoughTheFirstIsGone(t *testing.T) {
	cfg := articleConfig(t)
	opt := postgres.InitOptions{Existing: "pending"}
	in(t, cfg, `CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text, created_at timestamptz)`,
		`INSERT INTO commands SELECT 'c' || i, 'r', 'k', 'p', now() + i * interval '1 s' FROM generate_series(1, 3000) i`)
	plan, err := postgres.Plan(t.Context(), cfg, opt)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(plan.Steps, func(s core.PlanStep) bool { return strings.HasPrefix(s.SQL, "DO ") })
	for _, step := range plan.Steps[:at] {
		execute(t, step.SQL)
	}
	pool := application(t, cfg.DSN)
	row, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer row.Rollback(context.WithoutCancel(t.Context()))
	if _, err := row.Exec(t.Context(), `SELECT FROM `+cfg.Table+` WHERE command_id = 'c1001' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := pool.Exec(context.WithoutCancel(t.Context()), plan.Steps[at].SQL)
		first <- err
	}()
	until(t, "a thousand rows to be numbered", func() bool {
		return ask[int](t, `SELECT count(seq) FROM `+cfg.Table) == 1000
	})
	in(t, cfg, `UPDATE commands SET created_at = '2000-01-01' WHERE command_id = 'c2000'`) // to the second it is the next
	go func() { second <- initWith(t, cfg, opt) }()
	until(t, "the second init to be refused, or to number rows", func() bool {
		return ask[bool](t, `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE application_name = 'connectd' AND (wait_event_type = 'Lock' OR query = 'ROLLBACK'))`)
	})
	if err := row.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, done := range []chan error{first, second} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := ask[int](t, `SELECT count(DISTINCT seq) FROM `+cfg.Table); n != 3000 {
		t.Errorf("3000 rows have %d numbers", n)
	}
	open(t, cfg)
}

// An index that was not finished is there and does not serve.
func TestAnIndexThatIsNotValidIsMadeAgain(t *testing.T) {
	cfg := articleConfig(t)
	in(t, cfg, `CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text)`)
	initialise(t, cfg, postgres.InitOptions{})
	in(t, cfg, `UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'connectd_commands_pending'::regclass`)
	if _, err := postgres.Open(t.Context(), cfg); !errors.Is(err, core.ErrNotInitialised) || !strings.Contains(err.Error(), "valid index connectd_commands_pending") {
		t.Errorf("open: %v", err)
	}
	initialise(t, cfg, postgres.InitOptions{})
	open(t, cfg)
}

// The table is needed for a moment. While somebody else has it, nobody is kept waiting for longer than that.
func TestInitWaitsForTheTableWithoutKeepingOthersFromIt(t *testing.T) {
	cfg := articleConfig(t)
	in(t, cfg, `CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text)`)
	pool := application(t, cfg.DSN)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `INSERT INTO `+cfg.Table+` VALUES ('a1', 'r', 'k', 'p'), ('a2', 'r', 'k', 'p'), ('a3', 'r', 'k', 'p')`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- initWith(t, cfg, postgres.InitOptions{}) }()
	waiting := func() bool {
		return ask[bool](t, `SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND relation = $1::regclass)`, cfg.Table)
	}
	until(t, "init to wait for the table", waiting)
	begun := time.Now()
	if _, err := pool.Exec(t.Context(), `INSERT INTO `+cfg.Table+` VALUES ('b', 'r', 'k', 'p')`); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("an insert waited %v", took)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	in(t, cfg, `INSERT INTO commands VALUES ('c', 'r', 'k', 'p')`)
	if got := ids(pending(t, open(t, cfg))); got != "a1 a2 a3 b c" {
		t.Errorf("pending: %s", got)
	}
}

// Counting the rows of a large table takes longer than a statement of the daemon's may.
func TestAPlanTakesTheTimeItTakes(t *testing.T) {
	cfg := articleConfig(t)
	cfg.DSN = with(t, cfg.DSN, "statement_timeout", "20ms")
	in(t, cfg, `CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text)`)
	tx, err := application(t, services.Postgres(t)).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if _, err := tx.Exec(t.Context(), `LOCK TABLE `+cfg.Table); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- initWith(t, cfg, postgres.InitOptions{}) }()
	until(t, "a statement to take longer", func() bool {
		return ask[bool](t, `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE application_name = 'connectd' AND wait_event_type = 'Lock' AND now() - query_start > interval '100 ms')`)
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A key that is mapped to another column would put rows of a key into other partitions than those of before.
func TestAnotherKeyOrNumberOfPartitionsIsRefused(t *testing.T) {
	cfg := articleConfig(t)
	in(t, cfg, `CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text)`)
	initialise(t, cfg, postgres.InitOptions{Partitions: 4})
	if err := initWith(t, cfg, postgres.InitOptions{Partitions: 8}); err == nil || !strings.Contains(err.Error(), "4 partitions") {
		t.Errorf("another number: %v", err)
	}
	cfg.Columns["key"], cfg.Columns["type"] = cfg.Columns["type"], cfg.Columns["key"]
	for what, err := range map[string]error{
		"open": func() error { _, err := postgres.Open(t.Context(), cfg); return err }(),
		"init": initWith(t, cfg, postgres.InitOptions{}),
	} {
		if err == nil || !strings.Contains(err.Error(), "run_id") {
			t.Errorf("%s with another key: %v", what, err)
		}
	}
}

func TestATableOfANewerVersion(t *testing.T) {
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
	initialise(t, cfg, postgres.InitOptions{})
	in(t, cfg, `UPDATE connectd_outbox SET version = 2`)
	src := open(t, cfg) // daemons of two neighbouring versions run side by side
	beat := func() error {
		if _, err := src.Heartbeat(t.Context(), "one", nil, time.Minute); err != nil {
			t.Fatal(err)
		}
		return src.Moved()
	}
	if err := beat(); err != nil {
		t.Error(err)
	}
	in(t, cfg, `UPDATE connectd_outbox SET version = 3`)
	if err := beat(); err == nil || !strings.Contains(err.Error(), "newer connectd") {
		t.Errorf("two versions ahead, as a heartbeat finds: %v", err)
	}
	if _, err := postgres.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "newer connectd") {
		t.Errorf("two versions ahead: %v", err)
	}
}

func TestAStateNobodyKnowsIsRefused(t *testing.T) {
	for _, adopted := range []bool{false, true} {
		cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
		if adopted {
			in(t, cfg, `CREATE TABLE outbox (id text PRIMARY KEY, aggregateid text, payload text)`)
		}
		initialise(t, cfg, postgres.InitOptions{})
		conn, err := pgx.Connect(t.Context(), cfg.DSN)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		for _, columns := range []string{"state) VALUES ('a', 'x', 'PENDING'", "seq) VALUES ('a', 'x', NULL"} {
			if _, err := conn.Exec(t.Context(), `INSERT INTO `+cfg.Table+` (id, payload, `+columns+`)`); err == nil {
				t.Errorf("adopted %v: a row was taken that nobody would ever send: %s", adopted, columns)
			}
		}
	}
}

// A row without id or key is there to be buried, not to be overlooked.
func TestARowWithoutAnIDIsFoundAndInvalid(t *testing.T) {
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
	in(t, cfg, `CREATE TABLE outbox (id text UNIQUE, aggregateid text, payload text)`, `INSERT INTO outbox VALUES (NULL, NULL, 'x'), ('good', NULL, 'x')`)
	initialise(t, cfg, postgres.InitOptions{Existing: "pending"})
	rows := pending(t, open(t, cfg))
	if len(rows) != 2 || rows[0].Invalid != "id is NULL" || rows[1].Invalid != "" {
		t.Errorf("rows: %+v", rows)
	}
}

func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("waited 20s for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Nobody sits before a silent init: it says what it waits for, and how far it is.
func TestInitTellsWhatItWaitsFor(t *testing.T) {
	dsn := with(t, services.Postgres(t), "application_name", "culprit")
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
	in(t, cfg, `CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregateid text, payload bytea)`, `INSERT INTO outbox DEFAULT VALUES`, `INSERT INTO outbox DEFAULT VALUES`,
		`CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(2.1); RETURN new; END'`, `CREATE TRIGGER slow BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION f()`)
	told := make(chan string, 100)
	opt := postgres.InitOptions{Existing: "pending", Tell: func(text string) { told <- text }}
	hear := func(words ...string) {
		t.Helper()
		limit := time.After(30 * time.Second)
		for {
			select {
			case text := <-told:
				if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
					return
				}
				t.Logf("told: %s", text)
			case <-limit:
				t.Fatalf("nobody was told of %q", words)
			}
		}
	}
	end := func(tx pgx.Tx) {
		t.Helper()
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	other, user := begin(t, dsn, fmt.Sprintf(`SELECT pg_advisory_xact_lock(%d)`, 0x636f6e6e65637464)), begin(t, dsn, `SELECT FROM `+cfg.Table)
	done := make(chan error, 1)
	go func() { done <- initWith(t, cfg, opt) }()
	hear("waits for another init", "process ", "application culprit", "since 20")
	end(other)
	hear("waits for a lock", "process ", "application culprit", "idle in transaction, since 20", "the relay's own columns")
	end(user)
	hear("numbers the rows that are there: 1 so far")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
