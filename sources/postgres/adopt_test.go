package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
	"github.com/connectd/connectd/sources/sourcetest"
)

func TestTheArticlesTableIsAdopted(t *testing.T) {
	for kind, flags := range map[string][3]string{"integer": {"1", "0", "NULL"}, "boolean": {"true", "false", "NULL"}} {
		cfg := articleConfig(t)
		in(t, cfg, `CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text, published `+kind+`)`,
			fmt.Sprintf(`INSERT INTO commands VALUES ('c', 'r', 'k', 'p', %s), ('a', 'r', 'k', 'p', %s), ('b', NULL, NULL, 'p', %s)`, flags[0], flags[1], flags[2]))
		initialise(t, cfg, postgres.InitOptions{})
		in(t, cfg, `INSERT INTO commands (command_id, run_id, kind, payload) VALUES ('0', 'r', 'k', '{"x": 1}')`)
		src := open(t, cfg)
		rows := pending(t, src)
		if got := ids(rows); got != "a b 0" {
			t.Fatalf("%s: pending: %s", kind, got)
		}
		if r := rows[2].Record; r.Key != "r" || r.Type != "k" || r.Route != "" || string(r.Payload) != `{"x": 1}` || time.Since(r.CreatedAt) > time.Minute {
			t.Errorf("%s: the new row: %+v", kind, r)
		}
		if old := rows[0].Record; !old.CreatedAt.IsZero() {
			t.Errorf("%s: a row from before has the time %v", kind, old.CreatedAt)
		}
		info, _, err := src.Show(t.Context(), "c")
		if err != nil || info.State != core.Published || info.PublishedAt.IsZero() {
			t.Errorf("%s: the published row: %+v, %v", kind, info, err)
		}
	}
}

// A Debezium outbox with live rows: uuid ids, jsonb payloads, and no column that the relay could use for itself.
// https://debezium.io/documentation/reference/stable/transformations/outbox-event-router.html
func TestADebeziumTableIsAdopted(t *testing.T) {
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outboxevent", HeaderColumns: []layout.HeaderColumn{{Header: "trace", Column: "tracingspancontext"}}}
	in(t, cfg, `CREATE TABLE outboxevent (id uuid NOT NULL PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL,
			payload jsonb, tracingspancontext varchar(256))`,
		`INSERT INTO outboxevent SELECT gen_random_uuid(), 'order', 'o-' || i % 7, 'created', jsonb_build_object('n', i), 'trace ' || i FROM generate_series(1, 3000) i`)
	file := func() uint32 { return ask[uint32](t, `SELECT pg_relation_filenode($1::regclass)`, cfg.Table) }
	before := file()
	initialise(t, cfg, postgres.InitOptions{Existing: "pending"})
	if after := file(); after != before {
		t.Errorf("the table was rewritten")
	}
	in(t, cfg, `INSERT INTO outboxevent VALUES ('00000000-0000-4000-8000-000000000001', 'order', 'o-1', 'created', '{"n": 3001}', NULL)`)
	src := open(t, cfg)
	rows := pending(t, src)
	if len(rows) != 3001 {
		t.Fatalf("%d rows are pending", len(rows))
	}
	for i, r := range rows {
		if want := fmt.Sprintf(`{"n": %d}`, i+1); string(r.Record.Payload) != want {
			t.Fatalf("row %d has the payload %s", i, r.Record.Payload)
		}
	}
	first, last := rows[0].Record, rows[3000].Record
	if trace, _ := first.Header("trace"); first.Route != "order" || first.Key != "o-1" || first.Type != "created" || trace != "trace 1" || len(first.ID) != 36 {
		t.Errorf("the first row: %+v", first)
	}
	if last.ID != "00000000-0000-4000-8000-000000000001" || len(last.Headers) != 0 || last.Seq <= rows[2999].Record.Seq {
		t.Errorf("the last row: %+v", last)
	}
	info, _, err := src.Show(t.Context(), last.ID)
	if err != nil || info.ID != last.ID {
		t.Errorf("show: %+v, %v", info, err)
	}
	for _, id := range []string{"no uuid", "00000000-0000-4000-8000-000000000009", "nul\x00", "\xff"} {
		if _, _, err := src.Show(t.Context(), id); !errors.Is(err, core.ErrNoRow) {
			t.Errorf("show %q: %v", id, err)
		}
	}
}

func TestExistingRowsNeedAnAnswer(t *testing.T) {
	for answer, want := range map[string]string{"pending": "b a", "published": ""} {
		cfg := articleConfig(t)
		in(t, cfg, `CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text)`, `INSERT INTO commands VALUES ('b', 'r', 'k', 'p'), ('a', 'r', 'k', 'p')`)
		var existing *layout.ExistingRowsError
		if err := initWith(t, cfg, postgres.InitOptions{}); !errors.As(err, &existing) {
			t.Errorf("without an answer: %v", err)
		}
		if err := initWith(t, cfg, postgres.InitOptions{Existing: "maybe"}); err == nil {
			t.Error("any answer will do")
		}
		initialise(t, cfg, postgres.InitOptions{Existing: answer})
		if got := ids(pending(t, open(t, cfg))); got != want {
			t.Errorf("with %s: %q is pending, want %q", answer, got, want)
		}
	}
	cfg := articleConfig(t)
	in(t, cfg, `CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text)`)
	if err := initWith(t, cfg, postgres.InitOptions{}); err != nil {
		t.Errorf("an empty table needs no answer: %v", err)
	}
}

// published = 2 is neither yes nor no: taken for no, all that was ever sent would be sent again.
func TestAPublishedColumnWithOtherValuesNeedsAnAnswer(t *testing.T) {
	for _, column := range []string{"integer", "text"} {
		cfg := articleConfig(t)
		in(t, cfg, `CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text, published `+column+`)`,
			`INSERT INTO commands VALUES ('a', 'r', 'k', 'p', '2'), ('b', 'r', 'k', 'p', '0')`)
		var existing *layout.ExistingRowsError
		if err := initWith(t, cfg, postgres.InitOptions{}); !errors.As(err, &existing) {
			t.Errorf("%s: got %v, want a question", column, err)
		}
	}
}

func TestTablesThatWillNotDoAreRefused(t *testing.T) {
	for create, want := range map[string]string{
		`CREATE TABLE commands (command_id text, run_id text, kind text, payload text)`:                                                                  "unique",
		`CREATE TABLE commands (command_id text, run_id text, kind text, payload text, UNIQUE (command_id, run_id))`:                                     "unique",
		`CREATE TABLE commands (command_id text, run_id text, kind text, payload text); CREATE UNIQUE INDEX u ON commands (command_id) WHERE kind = 'x'`: "unique",
		`CREATE TABLE commands (command_id text, run_id text, kind text, payload text); CREATE UNIQUE INDEX u ON commands (lower(command_id))`:           "unique",
		`CREATE TABLE commands (command_id text PRIMARY KEY, kind text, payload text)`:                                                                   "run_id",
		`CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, payload text)`:                                                                 "kind",
		`CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text)`:                                                                    "payload",
		`CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text, state text)`:                                          "columns.state",
		`CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text, seq integer)`:                                         "columns.order",
		`CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text, attempts integer DEFAULT 0)`:                          "columns.attempts",
		`CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text, attempts integer NOT NULL DEFAULT 0)`:                 "columns.attempts",
		`CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text, published_at timestamptz)`:                            "columns.published_at",
		`CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text, seq bigserial)`:                                       "unique",
		`CREATE TABLE commands (command_id text PRIMARY KEY, run_id timestamptz, kind text, payload text)`:                                               "timestamp",
		`CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text, created_at text)`:                                     "columns.created",
		`CREATE TABLE x (y int); CREATE VIEW commands AS SELECT * FROM x`:                                                                                "relkind",
		`CREATE TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text); CREATE TABLE more () INHERITS (commands)`:            "inherit",
		`CREATE TABLE x (command_id text PRIMARY KEY, run_id text, kind text, payload text) PARTITION BY HASH (command_id);
			CREATE TABLE commands PARTITION OF x FOR VALUES WITH (MODULUS 1, REMAINDER 0)`: "a partition",
		`CREATE UNLOGGED TABLE commands (command_id text PRIMARY KEY, run_id text, kind text, payload text)`: "unlogged",
		`CREATE TABLE "Commands" (command_id text PRIMARY KEY, run_id text, kind text, payload text)`:        "Commands",
	} {
		cfg := articleConfig(t)
		in(t, cfg, create)
		if err := initWith(t, cfg, postgres.InitOptions{Existing: "pending"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error about %s, got %v", create, want, err)
		}
	}
}

func TestEveryUsableShapeOfTableIsAdopted(t *testing.T) {
	for _, create := range []string{
		`CREATE TABLE commands (command_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_id text, kind text, payload text)`,
		`CREATE TABLE commands (command_id serial PRIMARY KEY, run_id bigint, kind text, payload json)`,
		`CREATE TABLE commands (seq bigserial PRIMARY KEY, command_id bigint UNIQUE DEFAULT nextval('ids'), run_id char(8), kind text, payload text)`,
		`CREATE TABLE commands (command_id bigint PRIMARY KEY DEFAULT nextval('ids'), run_id varchar(10), kind varchar, payload bytea, created_at timestamp NOT NULL DEFAULT now())`,
		`CREATE TABLE commands (command_id text COLLATE "C" PRIMARY KEY DEFAULT nextval('ids')::text, run_id text COLLATE "POSIX", kind text, payload text)`,
		`CREATE TYPE kind AS ENUM ('k', 'l'); CREATE DOMAIN run AS text; CREATE TABLE commands (command_id uuid PRIMARY KEY DEFAULT ('00000000-0000-4000-8000-' || lpad(nextval('ids')::text, 12, '0'))::uuid, run_id run, kind kind, payload jsonb)`,
	} {
		cfg := articleConfig(t)
		cfg.DeletePublished = true
		in(t, cfg, `CREATE SEQUENCE ids`, create)
		insert := func() { in(t, cfg, `INSERT INTO commands (run_id, kind, payload) VALUES ('12', 'k', '123')`) }
		insert()
		insert()
		if err := initWith(t, cfg, postgres.InitOptions{Existing: "pending", Partitions: 3}); err != nil {
			t.Errorf("%s: %v", create, err)
			continue
		}
		src := open(t, cfg)
		insert()
		rows := pending(t, src)
		if len(rows) != 3 || string(rows[2].Record.Payload) != "123" || rows[0].Record.Key != "12" || rows[0].Record.Type != "k" {
			t.Errorf("%s: pending: %+v", create, rows)
			continue
		}
		// The last row is deleted: its seq must not come again.
		publishAll(t, src)
		insert()
		if after := pending(t, src); len(after) != 1 || after[0].Record.Seq <= rows[2].Record.Seq {
			t.Errorf("%s: after the last seq, %d: %+v", create, rows[2].Record.Seq, after)
		}
	}
}

// publishAll settles every pending row.
func publishAll(t testing.TB, src *postgres.Source) {
	t.Helper()
	taken, err := src.Acquire(t.Context(), "one", postgres.MaxPartitions, time.Minute, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range taken {
		page, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Part: a.Lease.Part, Limit: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		c := core.Change{Lease: a.Lease}
		for _, r := range page.Rows {
			c.Settle = append(c.Settle, core.Settlement{Seq: r.Record.Seq, Deliveries: r.Deliveries, State: core.Published})
		}
		if err := src.Step(t.Context(), "one", []core.Change{c}); err != nil {
			t.Fatal(err)
		}
		if err := src.Release(t.Context(), "one", a.Lease); err != nil {
			t.Fatal(err)
		}
	}
}

// The server cuts names at 63 bytes. Two tables whose names differ only behind that have indexes of their own.
func TestLongNames(t *testing.T) {
	schema := schemaOf(t)
	for _, end := range []string{"a", "b"} {
		cfg := postgres.Config{DSN: services.Postgres(t), Table: schema + "." + strings.Repeat("é", 31) + end, Notify: postgres.NotifyTrigger}
		execute(t, `CREATE TABLE `+quoted(cfg)+` (id text PRIMARY KEY, aggregateid text, payload text)`)
		initialise(t, cfg, postgres.InitOptions{})
		src := open(t, cfg)
		execute(t, `INSERT INTO `+quoted(cfg)+` VALUES ('`+end+`', 'k', 'x')`)
		if got := ids(pending(t, src)); got != end {
			t.Errorf("pending: %q", got)
		}
		if plan, err := postgres.Plan(t.Context(), cfg, postgres.InitOptions{}); err != nil || len(plan.Steps) > 0 {
			t.Errorf("a second plan: %+v, %v", plan, err)
		}
	}
	cfg := postgres.Config{DSN: services.Postgres(t), Table: strings.Repeat("é", 32)}
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "63 bytes") {
		t.Errorf("a longer name: %v", err)
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	dsn := "postgres://u@h/d"
	for want, cfg := range map[string]postgres.Config{
		"dsn is missing":          {Table: "outbox"},
		"a name is empty":         {DSN: dsn},
		"connectd_lease":          {DSN: dsn, Table: "x.connectd_lease"},
		"3 parts":                 {DSN: dsn, Table: "a.b.c"},
		"not closed":              {DSN: dsn, Table: `"a`},
		"behind the closing":      {DSN: dsn, Table: `"a"b`},
		"longer than 63 bytes":    {DSN: dsn, Table: "t", Columns: columns("key", strings.Repeat("é", 32))},
		"columns.key and columns": {DSN: dsn, Table: "t", Columns: columns("key", "x", "type", "x")},
		"notify is":               {DSN: dsn, Table: "t", Notify: "always"},
		"header h":                {DSN: dsn, Table: "t", HeaderColumns: []layout.HeaderColumn{{Header: "h"}}},
	} {
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error about %q, got %v", want, err)
		}
	}
	if err := (postgres.Config{DSN: dsn, Table: "t", Columns: columns("key", "x", "type", "X")}).Validate(); err != nil {
		t.Errorf("names that differ in case: %v", err)
	}
	for _, table := range []string{"outbox", "Shop.Outbox", "connectd_Lease", `"my.schema"."a ""table"""`, "tables; DROP TABLE x"} {
		if err := (postgres.Config{DSN: dsn, Table: table}).Validate(); err != nil {
			t.Errorf("%s: %v", table, err)
		}
	}
}
