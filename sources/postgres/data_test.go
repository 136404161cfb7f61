package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
	"github.com/connectd/connectd/core/memory"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
	"github.com/connectd/connectd/sources/sourcetest"
)

// Random operations give the same answers as the source in memory does.
func TestPostgresAndMemoryAgree(t *testing.T) {
	inMemory := sourcetest.Harness{New: func(_ *testing.T, o sourcetest.Options) sourcetest.Table {
		s := memory.NewSource(1, time.Now)
		s.KeepPublished = !o.DeletePublished
		return sourcetest.Table{
			Open: func(*testing.T) core.Source { return s },
			Insert: func(_ *testing.T, rows ...sourcetest.Row) {
				tx := s.Begin()
				for _, r := range rows {
					tx.Insert(memory.Row(r))
				}
				tx.Commit()
			},
		}
	}}
	for seed := range uint64(3) {
		sourcetest.Compare(t, inMemory, sourcetest.Harness{New: func(t *testing.T, o sourcetest.Options) sourcetest.Table {
			schema := schemaOf(t)
			cfg := postgres.Config{DSN: services.Postgres(t), Table: schema + ".outbox", DeletePublished: o.DeletePublished}
			in(t, cfg, `CREATE TABLE outbox (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text UNIQUE, aggregateid text, aggregatetype text, type text, payload bytea, headers text)`)
			return table(t, cfg, 1)
		}}, seed, 150)
	}
}

// Payloads come byte for byte as the database gives their text: jsonb has an order and a spacing of its own, json and
// text keep theirs. https://github.com/hookdeck/outpost/pull/718
func TestPayloadsOfEveryType(t *testing.T) {
	const written = `{"b": 1,  "a":1.50, "a": "é\u00e9😀"}`
	for kind, want := range map[string]string{
		"text": written, "varchar": written, "json": written, "jsonb": `{"a": "éé😀", "b": 1}`, "bytea": written, "xml": `<a b="1">é</a>`,
	} {
		for mode, dsn := range modes {
			t.Run(kind+" "+mode, func(t *testing.T) {
				cfg := postgres.Config{DSN: dsn(t), Table: schemaOf(t) + ".outbox"}
				value := written
				if kind == "xml" {
					value = want
				}
				literal := "'" + value + "'"
				if kind == "bytea" {
					literal = "convert_to(" + literal + ", 'UTF8')"
				}
				in(t, cfg, `CREATE TABLE outbox (id text PRIMARY KEY, aggregateid text, payload `+kind+`)`, `INSERT INTO outbox VALUES ('a', 'k', `+literal+`), ('null', 'k', NULL)`)
				initialise(t, cfg, postgres.InitOptions{Existing: "pending", Partitions: 1})
				src := open(t, cfg)
				page, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 10, MaxBytes: 1 << 20})
				if err != nil || len(page.Rows) != 2 || page.More {
					t.Fatalf("%+v, %v", page, err)
				}
				if got := string(page.Rows[0].Record.Payload); got != want {
					t.Errorf("fetched %s, want %s", got, want)
				}
				if got := page.Rows[1]; len(got.Record.Payload) != 0 || got.Invalid != "" {
					t.Errorf("a payload that is NULL: %+v", got)
				}
				info, _, err := src.Show(t.Context(), "a")
				if err != nil || string(info.Payload) != want || info.Size != int64(len(want)) {
					t.Errorf("shown: %s, %d bytes, %v", info.Payload, info.Size, err)
				}
			})
		}
	}
}

// A page ends where the bytes are reached, whatever the payload's type, and says whether there are more.
func TestPagesEndByBytesForEveryType(t *testing.T) {
	for kind, value := range map[string]string{
		"text": `repeat('x', 10000)`, "bytea": `convert_to(repeat('x', 10000), 'UTF8')`, "json": `('"' || repeat('x', 9998) || '"')::json`,
		"jsonb": `(SELECT jsonb_agg(1) FROM generate_series(1, 3334))`,
	} {
		t.Run(kind, func(t *testing.T) {
			cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
			in(t, cfg, `CREATE TABLE outbox (id text PRIMARY KEY, aggregateid text, payload `+kind+`)`, `ALTER TABLE outbox ALTER COLUMN payload SET STORAGE EXTERNAL`,
				`INSERT INTO outbox SELECT 'id' || i, 'k', `+value+` FROM generate_series(1, 20) i`)
			initialise(t, cfg, postgres.InitOptions{Existing: "pending", Partitions: 1})
			src := open(t, cfg)
			for bytes, want := range map[int64]int{1: 1, 9_999: 1, 10_500: 2, 95_000: 10, 500_000: 20} {
				page, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 20, MaxBytes: bytes})
				if err != nil || len(page.Rows) != want || page.More != (want < 20) {
					t.Errorf("with %d bytes: %d rows, more %v, %v; want %d", bytes, len(page.Rows), page.More, err, want)
				}
			}
		})
	}
}

func TestHeadersFromColumns(t *testing.T) {
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox", HeaderColumns: []layout.HeaderColumn{
		{Header: "tenant", Column: "tenant_id"}, {Header: "at", Column: "at"}, {Header: "trace", Column: "trace"}, {Header: "id", Column: "id"}}}
	in(t, cfg, `CREATE TABLE outbox (id text PRIMARY KEY, aggregateid text, payload text, headers jsonb, tenant_id integer, at timestamptz, trace text)`,
		`INSERT INTO outbox VALUES ('a', 'k', 'x', '{"own": "1"}', 7, '2026-03-29 01:30:00+01', NULL)`)
	initialise(t, cfg, postgres.InitOptions{Existing: "pending"})
	rows := pending(t, open(t, cfg))
	want := []core.Header{{Name: "own", Value: "1"}, {Name: "tenant", Value: "7"}, {Name: "at", Value: "2026-03-29 00:30:00+00"}, {Name: "id", Value: "a"}}
	if len(rows) != 1 || !slices.Equal(rows[0].Record.Headers, want) {
		t.Errorf("got %+v, want %v", rows, want)
	}
	cfg.HeaderColumns = append(cfg.HeaderColumns, layout.HeaderColumn{Header: "no", Column: "nothing"})
	if _, err := postgres.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "no column nothing for the header no") {
		t.Errorf("a column that is not there: %v", err)
	}
	fresh := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox", HeaderColumns: []layout.HeaderColumn{
		{Header: "tenant", Column: "tenant"}, {Header: "again", Column: "tenant"}, {Header: "id", Column: "id"}, {Header: "key", Column: "aggregateid"}}}
	initialise(t, fresh, postgres.InitOptions{})
	execute(t, `INSERT INTO `+fresh.Table+` (id, payload, tenant) VALUES ('a', 'x', 't')`)
	want = []core.Header{{Name: "tenant", Value: "t"}, {Name: "again", Value: "t"}, {Name: "id", Value: "a"}}
	if rows := pending(t, open(t, fresh)); len(rows) != 1 || !slices.Equal(rows[0].Record.Headers, want) {
		t.Errorf("in a new table: %+v", rows)
	}
}

// A database without an encoding takes any bytes. Such a row is invalid, and no other.
func TestTextThatIsNoUTF8(t *testing.T) {
	name := schemaOf(t) + "_db"
	execute(t, "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
	t.Cleanup(func() { execute(t, "DROP DATABASE "+name+" WITH (FORCE)") })
	for mode, dsn := range modes {
		t.Run(mode, func(t *testing.T) {
			schema := "s" + strings.ReplaceAll(mode, " ", "_")
			direct := inDatabase(t, services.Postgres(t), name)
			executeAt(t, direct, "CREATE SCHEMA "+schema)
			cfg := postgres.Config{DSN: inDatabase(t, dsn(t), name), Table: schema + ".outbox", HeaderColumns: []layout.HeaderColumn{{Header: "h", Column: "h"}}}
			initialise(t, cfg, postgres.InitOptions{Partitions: 1})
			executeAt(t, direct, `INSERT INTO `+cfg.Table+` (id, aggregateid, payload, aggregatetype, type, h) VALUES ('good', 'k', 'x', 'r', 't', 'h'), (E'id\xff', 'k', 'x', 'r', 't', 'h'),
				('key', E'\xc3(', 'x', 'r', 't', 'h'), ('route', 'k', 'x', E'\xff', 't', 'h'), ('type', 'k', 'x', 'r', E'\xff', 'h'), ('header', 'k', 'x', 'r', 't', E'\xff')`)
			src := open(t, cfg)
			rows := pending(t, src)
			if len(rows) != 6 {
				t.Fatalf("%d rows", len(rows))
			}
			for i, r := range rows {
				if (r.Invalid == "") != (i == 0) {
					t.Errorf("row %q is invalid: %q", r.Record.ID, r.Invalid)
				}
			}
			if _, _, err := src.Show(t.Context(), "id\xff"); err != nil {
				t.Errorf("show: %v", err)
			}
			page, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 10, Exclude: []string{"\xc3("}})
			if err != nil || len(page.Rows) != 5 {
				t.Errorf("with the odd key excluded: %d rows, %v", len(page.Rows), err)
			}
		})
	}
}

// A database whose encoding lacks most characters: what it has comes right, and failures are recorded all the same.
func TestADatabaseInLatin1(t *testing.T) {
	name := schemaOf(t) + "_db"
	execute(t, "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
	t.Cleanup(func() { execute(t, "DROP DATABASE "+name+" WITH (FORCE)") })
	w := start(t, postgres.Config{DSN: inDatabase(t, services.Postgres(t), name), Table: "public.outbox"}, 2)
	executeAt(t, with(t, w.cfg.DSN, "client_encoding", "UTF8"), `INSERT INTO outbox (id, aggregateid, payload, type) VALUES ('é', 'ü', '\x80ff', 'ß')`)
	row := pending(t, w.src)[2]
	if r := row.Record; r.ID != "é" || r.Key != "ü" || r.Type != "ß" || string(r.Payload) != "\x80\xff" || row.Invalid != "" {
		t.Errorf("the row: %+v", row)
	}
	c := core.Change{Lease: w.lease, Settle: []core.Settlement{{Seq: row.Record.Seq, State: core.Dead, Failure: &core.Failure{Code: "código", Message: "漢字 é"}}}}
	if err := w.src.Step(t.Context(), "one", []core.Change{c}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.src.Heartbeat(t.Context(), "one", []byte(`"漢字"`), time.Minute); err != nil {
		t.Error(err)
	}
	info, history, err := w.src.Show(t.Context(), "é")
	if err != nil || info.State != core.Dead || len(history) != 1 {
		t.Errorf("%+v, %+v, %v", info, history, err)
	}
	if _, _, err := w.src.Show(t.Context(), "漢"); !errors.Is(err, core.ErrNoRow) {
		t.Errorf("show of an id that cannot be: %v", err)
	}
}

// Times that no clock shows do not hold up the others.
func TestOddTimes(t *testing.T) {
	for mode, dsn := range modes {
		t.Run(mode, func(t *testing.T) {
			cfg := postgres.Config{DSN: dsn(t), Table: schemaOf(t) + ".outbox"}
			initialise(t, cfg, postgres.InitOptions{Partitions: 1})
			times := []string{"infinity", "-infinity", "4000-01-01 BC", "200000-01-01", "2026-03-29 02:30:00 Europe/London", "1970-01-01 00:00:00+00"}
			for i, at := range times {
				execute(t, fmt.Sprintf(`INSERT INTO %s (id, payload, available_at, created_at) VALUES ('%d', 'x', '%s', '%[3]s')`, cfg.Table, i, at))
			}
			src := open(t, cfg)
			rows := pending(t, src)
			if len(rows) != len(times) {
				t.Fatalf("%d rows", len(rows))
			}
			for i, r := range rows {
				if later := i == 0 || i == 3; (r.Wait > 0) != later || r.Invalid != "" {
					t.Errorf("%s: waits %v, invalid %q", times[i], r.Wait, r.Invalid)
				}
			}
			if got := rows[4].Record.CreatedAt; !got.Equal(time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC)) {
				t.Errorf("created at %v", got)
			}
			if list, err := src.List(t.Context(), core.Filter{}); err != nil || len(list) != len(times) {
				t.Errorf("listed %d, %v", len(list), err)
			}
			if lag, err := src.Lag(t.Context()); err != nil || lag.Due != 4 {
				t.Errorf("lag %+v, %v", lag, err)
			}
		})
	}
}

// Sessions in a database whose every setting is another's.
func TestConformanceInAHostileDatabase(t *testing.T) {
	db := database(t, `timezone = 'America/St_Johns'`, `datestyle = 'German'`, `intervalstyle = 'sql_standard'`, `bytea_output = 'escape'`, `default_transaction_isolation = 'serializable'`,
		`synchronous_commit = 'off'`, `search_path = ''`, `extra_float_digits = -10`, `enable_indexscan = off`, `statement_timeout = '10s'`)
	for _, mode := range []string{"exec", "pooler"} {
		t.Run(mode, func(t *testing.T) {
			dsn := modes[mode](t)
			direct := inDatabase(t, services.Postgres(t), db)
			sourcetest.Run(t, sourcetest.Harness{Overlap: true, New: func(t *testing.T, o sourcetest.Options) sourcetest.Table {
				schema := schemaOf(t)
				executeAt(t, direct, "CREATE SCHEMA "+schema)
				t.Cleanup(func() { executeAt(t, direct, "SET client_min_messages = warning; DROP SCHEMA "+schema+" CASCADE") })
				return tableAt(t, direct, postgres.Config{DSN: inDatabase(t, dsn, db), Table: schema + ".outbox", DeletePublished: o.DeletePublished}, 0)
			}})
		})
	}
}
