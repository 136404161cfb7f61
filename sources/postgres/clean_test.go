package postgres_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
)

// published makes a table of n rows that are published, whose leases the owner "one" holds.
func published(t *testing.T, n int) (postgres.Config, *postgres.Source) {
	t.Helper()
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
	initialise(t, cfg, postgres.InitOptions{Partitions: 1})
	src := open(t, cfg)
	if _, err := src.Acquire(t.Context(), "one", 1, time.Hour, false); err != nil {
		t.Fatal(err)
	}
	execute(t, fmt.Sprintf(`INSERT INTO %s (id, aggregateid, payload, state, published_at, deliveries)
		SELECT 'id-' || g, 'k', 'x', 'published', clock_timestamp() - interval '1 day', 1 FROM generate_series(1, %d) g`, cfg.Table, n))
	return cfg, src
}

var anHour = core.Retention{Published: time.Hour, Dead: core.Forever, Skipped: core.Forever, Receipts: core.Forever}

// A transaction of an application that has a row, and one that looks at an old snapshot, keep nobody waiting.
func TestCleaningWaitsForNobody(t *testing.T) {
	cfg, src := published(t, 10)
	ctx := t.Context()
	tx, err := application(t, services.Postgres(t)).BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, `SELECT 1 FROM `+cfg.Table+` WHERE id = 'id-3' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	c, err := src.Clean(ctx, core.CleanRequest{Owner: "one", Retention: anHour, Limit: 100})
	if err != nil || c.Removed[core.Published] != 9 || c.Left != 1 || time.Since(begun) > 2*time.Second {
		t.Errorf("%+v, %v after %v", c, err, time.Since(begun))
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if c, err = src.Clean(ctx, core.CleanRequest{Owner: "one", Retention: anHour, Limit: 100}); err != nil || c.Removed[core.Published] != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}

// Whoever locks the whole table keeps the cleaner waiting for a second, and it removes nothing then.
func TestCleaningGivesUpOnALockedTable(t *testing.T) {
	cfg, src := published(t, 10)
	ctx := t.Context()
	tx, err := application(t, services.Postgres(t)).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, `LOCK TABLE `+cfg.Table+` IN SHARE MODE`); err != nil { // as CREATE INDEX does
		t.Fatal(err)
	}
	begun := time.Now()
	c, err := src.Clean(ctx, core.CleanRequest{Owner: "one", Retention: anHour, Limit: 100})
	if err == nil || time.Since(begun) > 4*time.Second || c.Looked != 10 {
		t.Errorf("%+v, %v after %v", c, err, time.Since(begun))
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if n := ask[int](t, `SELECT count(*) FROM `+cfg.Table); n != 10 {
		t.Errorf("%d rows are left", n)
	}
}

// A foreign key that holds a row fails the batch, whole: neither is a row gone nor one counted.
func TestCleaningFailsWhole(t *testing.T) {
	cfg, src := published(t, 10)
	execute(t, `CREATE TABLE `+cfg.Table+`_notes (id text REFERENCES `+cfg.Table+` (id))`, `INSERT INTO `+cfg.Table+`_notes VALUES ('id-5')`)
	c, err := src.Clean(t.Context(), core.CleanRequest{Owner: "one", Retention: anHour, Limit: 100})
	if err == nil || c.Looked != 10 || c.Last == 0 {
		t.Errorf("%+v, %v", c, err)
	}
	schema := strings.TrimSuffix(cfg.Table, ".outbox")
	if rows, counted := ask[int](t, `SELECT count(*) FROM `+cfg.Table), ask[int](t, `SELECT count(*) FROM `+schema+`.connectd_ledger`); rows != 10 || counted != 0 {
		t.Errorf("%d rows, %d lines in the ledger", rows, counted)
	}
}

// Receipts name ids as text; what is no value of the id's type is of no row, and no error.
func TestReceiptsOfTypedIDs(t *testing.T) {
	for kind, ids := range map[string][]string{
		"uuid":        {"0b9c1c1e-1111-4222-8333-444455556666", "0B9C1C1E-1111-4222-8333-444455556666", "nonsense", "0b9c1c1e"},
		"bigint":      {"17", "017", "+17", "9223372036854775808", "x"},
		"integer":     {"17", "3000000000", " 17", "seventeen"},
		"varchar(40)": {"order-17", "ORDER-17", "order-17 ", strings.Repeat("x", 200)},
		"char(40)":    {"order-17", "o", "ORDER-17", strings.Repeat("x", 200)},
	} {
		t.Run(kind, func(t *testing.T) {
			cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
			execute(t, `CREATE TABLE `+cfg.Table+` (id `+kind+` UNIQUE, aggregateid text, payload text)`)
			initialise(t, cfg, postgres.InitOptions{Partitions: 1})
			execute(t, `INSERT INTO `+cfg.Table+` (id) VALUES ('`+ids[0]+`')`)
			src := open(t, cfg)
			var list []core.Receipt
			for _, id := range ids {
				list = append(list, core.Receipt{Command: id, Status: core.ReceiptDone})
			}
			results, err := src.SaveReceipts(t.Context(), list)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range results {
				if want := map[bool]core.ReceiptAnswer{true: core.ReceiptStored, false: core.ReceiptUnknown}[i == 0]; r.Answer != want {
					t.Errorf("%q: %s, want %s", r.Receipt.Command, r.Answer, want)
				}
			}
			if list, err := src.Receipts(t.Context(), core.ReceiptFilter{}); err != nil || len(list) != len(ids) {
				t.Errorf("%v, %v", list, err)
			}
		})
	}
}

// Two tables of a schema share the receipts: none takes the other's for unknown, nor removes them.
func TestReceiptsOfTwoTables(t *testing.T) {
	schema := schemaOf(t)
	var src [2]*postgres.Source
	for i, name := range []string{"one", "two"} {
		cfg := postgres.Config{DSN: services.Postgres(t), Table: schema + "." + name}
		initialise(t, cfg, postgres.InitOptions{Partitions: 1})
		src[i] = open(t, cfg)
		if _, err := src[i].Acquire(t.Context(), "w", 1, time.Hour, false); err != nil {
			t.Fatal(err)
		}
		execute(t, `INSERT INTO `+cfg.Table+` (id, state, published_at) VALUES ('`+name+`', 'published', clock_timestamp())`)
		if _, err := src[i].SaveReceipts(t.Context(), []core.Receipt{{Command: name, Status: core.ReceiptDone}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := src[0].Clean(t.Context(), core.CleanRequest{Owner: "w", Limit: 10}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"map[cleaned:1]", "map[]"} { // its own receipt goes, since its row is gone; the other's stays
		c, err := src[i].CleanReceipts(t.Context(), core.ReceiptsRequest{Owner: "w", Limit: 10})
		if err != nil || fmt.Sprint(c.Removed) != want || len(c.Unknown) != 0 {
			t.Errorf("table %d: %+v, %v", i, c, err)
		}
	}
	if left := ask[string](t, `SELECT string_agg(command_id, ' ') FROM `+schema+`.connectd_receipt`); left != "two" {
		t.Errorf("the receipts of %s are left", left)
	}
}

// What a cleaner reads does not grow with what is kept, whatever the server believes of the tables.
func TestThePlanOfTheCleaner(t *testing.T) {
	for shape, make := range shapes {
		if shape == "empty" {
			continue
		}
		t.Run(shape, func(t *testing.T) {
			cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
			initialise(t, cfg, postgres.InitOptions{})
			make(t, cfg)
			in(t, cfg, `INSERT INTO connectd_receipt (command_id) SELECT gen_random_uuid() FROM generate_series(1, 5000)`)
			src := open(t, cfg)
			for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
				conn := planner(t, cfg.DSN, mode)
				survey, removal := src.CleanTexts()
				for text, args := range map[string][]string{
					survey:  {"'outbox'", "10", "1000", "100", "true"},
					removal: {"'outbox'", "'one'", "'{1,2,3}'", "'{published,published,dead}'", "'{1,1,1}'"},
				} {
					plan := prepared(t, conn, text, args)
					if text == survey && !regexp.MustCompile(`Index Cond: .* <= `).MatchString(plan) {
						t.Errorf("%s: rows behind the stretch are read:\n%s", mode, plan)
					}
					for line := range strings.Lines(plan) {
						if strings.Contains(line, "Seq Scan") {
							t.Errorf("%s: %s in\n%s", mode, line, plan)
						}
						if strings.Contains(line, "hashed SubPlan") {
							t.Errorf("%s: all receipts are read:\n%s", mode, plan)
						}
					}
				}
			}
		})
	}
}

// The ledger has a line for each day and state in the end, however many batches were cleaned.
func TestTheLedgerStaysSmall(t *testing.T) {
	schema := schemaOf(t)
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schema + ".outbox"}
	initialise(t, cfg, postgres.InitOptions{Partitions: 1})
	src := open(t, cfg)
	if _, err := src.Acquire(t.Context(), "one", 1, time.Hour, false); err != nil {
		t.Fatal(err)
	}
	execute(t, `INSERT INTO `+cfg.Table+` (id, state, published_at) SELECT n, 'published', clock_timestamp() - interval '1 day' FROM generate_series(1, 20) n`)
	for range 20 {
		c, err := src.Clean(t.Context(), core.CleanRequest{Owner: "one", Retention: anHour, Limit: 1})
		if err != nil || c.Removed[core.Published] != 1 {
			t.Fatalf("%+v, %v", c, err)
		}
	}
	if _, err := src.Heartbeat(t.Context(), "one", nil, time.Hour); err != nil {
		t.Fatal(err)
	}
	lines, sum := ask[int](t, `SELECT count(*) FROM `+schema+`.connectd_ledger`), ask[int](t, `SELECT sum(count)::int FROM `+schema+`.connectd_ledger`)
	if lines > 2 || sum != 20 { // 2 around midnight
		t.Errorf("the ledger has %d lines and counts %d rows", lines, sum)
	}
}
