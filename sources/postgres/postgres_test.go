package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
	"github.com/connectd/connectd/sources/sourcetest"
)

func TestMain(m *testing.M) {
	sourcetest.Abroad()
	goleak.VerifyTestMain(tests{m})
}

// modes are the ways to the server: pgx's query modes, and a pooler that gives each transaction another session.
var modes = map[string]func(t *testing.T) string{
	"prepared": func(t *testing.T) string { return services.Postgres(t) },
	"exec":     func(t *testing.T) string { return with(t, services.Postgres(t), "default_query_exec_mode", "exec") },
	"simple": func(t *testing.T) string {
		return with(t, services.Postgres(t), "default_query_exec_mode", "simple_protocol")
	},
	"pooler": func(t *testing.T) string { return services.PgBouncer(t) },
	"pooler with simple": func(t *testing.T) string {
		return with(t, services.PgBouncer(t), "default_query_exec_mode", "simple_protocol")
	},
}

// The other modes are those of TestConformanceInAHostileDatabase and TestConformanceOfAnAdoptedTable.
func TestConformance(t *testing.T) {
	for _, mode := range []string{"prepared", "simple"} {
		t.Run(mode, func(t *testing.T) {
			cfg := postgres.Config{DSN: modes[mode](t)}
			h := sourcetest.Harness{Overlap: true, New: func(t *testing.T, o sourcetest.Options) sourcetest.Table {
				cfg := cfg
				cfg.Table = schemaOf(t) + ".outbox"
				cfg.DeletePublished = o.DeletePublished
				return table(t, cfg, 0)
			}}
			sourcetest.Run(t, h)
			sourcetest.RunAudit(t, h)
		})
	}
}

// An adopted table has its order from a sequence of ours and its partitions from an expression. It is the same source
// to everybody, here in the simple protocol behind a pooler.
func TestConformanceOfAnAdoptedTable(t *testing.T) {
	route := "route"
	h := sourcetest.Harness{Overlap: true, AnyHeaders: true, New: func(t *testing.T, o sourcetest.Options) sourcetest.Table {
		schema := schemaOf(t)
		cfg := postgres.Config{DSN: modes["pooler with simple"](t), Table: schema + `."My ""Outbox"" \ of.1"`, DeletePublished: o.DeletePublished, Columns: columns(
			"id", "command_id", "key", "select", "type", "k i n d", "headers", `h"h`, "created", "At")}
		cfg.Columns["route"] = &route
		execute(t, `CREATE TABLE `+schema+`."My ""Outbox"" \ of.1" (command_id varchar(200) PRIMARY KEY, "select" varchar(200), "k i n d" varchar, payload bytea, "h""h" text,
			route varchar, "At" timestamp NOT NULL DEFAULT (clock_timestamp() AT TIME ZONE 'UTC'))`)
		return table(t, cfg, 5)
	}}
	sourcetest.Run(t, h)
	sourcetest.RunAudit(t, h)
}

// with adds a parameter to a URL.
func with(t *testing.T, dsn, name, value string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// schemaOf makes a schema for one test.
func schemaOf(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("t%x", rand.Uint64())
	execute(t, "CREATE SCHEMA "+name)
	t.Cleanup(func() { execute(t, "SET client_min_messages = warning; DROP SCHEMA "+name+" CASCADE") })
	return name
}

// columns maps pairs of names.
func columns(pairs ...string) map[string]*string {
	m := map[string]*string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &pairs[i+1]
	}
	return m
}

// application connects as an application does.
func application(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func initialise(t testing.TB, cfg postgres.Config, opt postgres.InitOptions) {
	t.Helper()
	if err := initWith(t, cfg, opt); err != nil {
		t.Fatal(err)
	}
}

func initWith(t testing.TB, cfg postgres.Config, opt postgres.InitOptions) error {
	t.Helper()
	plan, err := postgres.Plan(t.Context(), cfg, opt)
	if err != nil {
		return err
	}
	return postgres.Apply(t.Context(), cfg, opt, plan)
}

func open(t testing.TB, cfg postgres.Config) *postgres.Source {
	t.Helper()
	src, err := postgres.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return src
}

// name is a column's name in the table, quoted.
func name(cfg postgres.Config, column, byDefault string) string {
	if mapped := cfg.Columns[column]; mapped != nil {
		byDefault = *mapped
	}
	return pgx.Identifier{byDefault}.Sanitize()
}

// quoted is the table's name in SQL.
func quoted(cfg postgres.Config) string {
	schema, table, _ := strings.Cut(cfg.Table, ".")
	if strings.HasPrefix(table, `"`) {
		return schema + "." + table
	}
	return schema + `."` + table + `"`
}

// table initialises cfg's table and gives it to the suite.
func table(t *testing.T, cfg postgres.Config, partitions int) sourcetest.Table {
	t.Helper()
	return tableAt(t, services.Postgres(t), cfg, partitions)
}

// tableAt is table where applications use another address.
func tableAt(t *testing.T, direct string, cfg postgres.Config, partitions int) sourcetest.Table {
	t.Helper()
	initialise(t, cfg, postgres.InitOptions{Partitions: partitions})
	schema, bare, _ := strings.Cut(cfg.Table, ".")
	bare = strings.ReplaceAll(strings.Trim(bare, `"`), `""`, `"`)
	app := &appTable{cfg: cfg, pool: application(t, direct), schema: schema, name: bare}
	app.insert = `INSERT INTO ` + quoted(cfg) + ` (` + name(cfg, "id", "id") + `, ` + name(cfg, "key", "aggregateid") + `, ` + name(cfg, "route", "aggregatetype") +
		`, ` + name(cfg, "type", "type") + `, payload, ` + name(cfg, "headers", "headers") + `) VALUES ($1, $2, $3, $4, $5, $6)`
	return sourcetest.Table{
		Open:     app.open,
		Begin:    func(t *testing.T) sourcetest.Tx { return app.begin(t) },
		Insert:   app.commit,
		NextSeq:  app.nextSeq,
		Announce: app.announce,
		Lock:     app.lock,
		Ahead:    app.ahead,

		Beside: func(t *testing.T) sourcetest.Table {
			cfg := cfg
			cfg.Table, cfg.Columns = schema+`."the ""beside"`, columns("id", `command "id`)
			return tableAt(t, direct, cfg, partitions)
		},
		Drop: func(t *testing.T) {
			if _, err := app.pool.Exec(context.Background(), `DROP TABLE `+quoted(cfg)); err != nil {
				t.Fatal(err)
			}
		},

		Ledger:      app.ledger,
		Lines:       app.lines,
		Receipt:     app.receipt,
		AgeReceipts: app.ageReceipts,
		Vandal:      app.vandal(),
	}
}

// appTable is a table as an application sees it.
type appTable struct {
	cfg          postgres.Config
	pool         *pgxpool.Pool
	schema, name string
	insert       string
}

func (o *appTable) open(t *testing.T) core.Source {
	t.Helper()
	src, err := postgres.Open(t.Context(), o.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func (o *appTable) ahead(t *testing.T, d time.Duration) {
	t.Helper()
	_, err := o.pool.Exec(t.Context(), `UPDATE `+pgx.Identifier{o.schema, "connectd_worker"}.Sanitize()+` SET heartbeat = heartbeat + $1::bigint * interval '1 microsecond'`,
		d.Microseconds())
	if err != nil {
		t.Fatal(err)
	}
}

func (o *appTable) receipt(t *testing.T, id string, r core.Receipt) {
	t.Helper()
	_, err := o.pool.Exec(t.Context(), `INSERT INTO `+pgx.Identifier{o.schema, "connectd_receipt"}.Sanitize()+` (command_id, consumer, status, result_ref) VALUES ($1, $2, $3, $4)`,
		id, r.Consumer, r.Status, r.ResultRef)
	if err != nil {
		t.Fatal(err)
	}
}

func (o *appTable) begin(t *testing.T) transaction {
	t.Helper()
	tx, err := o.pool.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return transaction{tx, o.insert}
}

func (o *appTable) commit(t *testing.T, rows ...sourcetest.Row) {
	t.Helper()
	x := o.begin(t)
	x.Insert(t, rows...)
	x.Commit(t)
}

func (o *appTable) nextSeq(t *testing.T, seq int64) {
	t.Helper()
	_, err := o.pool.Exec(context.Background(), `SELECT setval(pg_get_serial_sequence($1, $2), $3, false)`, quoted(o.cfg), "seq", seq)
	if err != nil {
		t.Fatal(err)
	}
}

func (o *appTable) announce(t *testing.T, l core.Lease, a core.Announcement) (commit func()) {
	t.Helper()
	x := o.begin(t)
	ctx := context.Background()
	_, err := x.tx.Exec(ctx, `SELECT 1 FROM `+o.schema+`.connectd_lease WHERE tbl = $1 AND part = $2 FOR NO KEY UPDATE`, o.name, l.Part)
	if err == nil {
		_, err = x.tx.Exec(ctx, `INSERT INTO `+o.schema+`.connectd_inflight (tbl, part, epoch, batch, seqs) VALUES ($1, $2, $3, $4, $5)`, o.name, l.Part, l.Epoch, a.Batch, a.Seqs)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { x.Commit(t) }
}

func (o *appTable) lock(t *testing.T) (unlock func()) {
	t.Helper()
	x := o.begin(t)
	_, err := x.tx.Exec(context.Background(), fmt.Sprintf(`LOCK TABLE %s, %[2]s.connectd_outbox, %[2]s.connectd_lease, %[2]s.connectd_worker,
		%[2]s.connectd_inflight, %[2]s.connectd_attempt, %[2]s.connectd_ledger IN EXCLUSIVE MODE`, quoted(o.cfg), o.schema))
	if err != nil {
		t.Fatal(err)
	}
	return func() { x.Commit(t) }
}

// transaction is an application's.
type transaction struct {
	tx     pgx.Tx
	insert string
}

func (x transaction) Insert(t *testing.T, rows ...sourcetest.Row) {
	t.Helper()
	for _, r := range rows {
		var key *string
		if r.Keyed {
			key = &r.Key
		}
		if _, err := x.tx.Exec(context.Background(), x.insert, r.ID, key, null(r.Route), null(r.Type), r.Payload, null(r.Headers)); err != nil {
			t.Fatal(err)
		}
	}
}

func (x transaction) Commit(t *testing.T) {
	t.Helper()
	if err := x.tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func (x transaction) Rollback(t *testing.T) {
	t.Helper()
	if err := x.tx.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func null(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
