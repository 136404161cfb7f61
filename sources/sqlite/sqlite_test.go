package sqlite_test

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/sourcetest"
	"github.com/connectd/connectd/sources/sqlite"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	sourcetest.Abroad()
	goleak.VerifyTestMain(m)
}

// patient is a busy timeout for tests of many writers. SQLite has no queue for its write lock, and on a machine with more to
// do than it can a transaction takes its time: who waits five seconds may wait in vain.
const patient = 20 * time.Second

func TestConformance(t *testing.T) {
	h := sourcetest.Harness{
		AnyText: true, AnyHeaders: true,
		New: func(t *testing.T, o sourcetest.Options) sourcetest.Table {
			return table(t, sqlite.Config{Path: file(t), Table: "outbox", DeletePublished: o.DeletePublished, BusyTimeout: patient})
		},
	}
	sourcetest.Run(t, h)
	sourcetest.RunAudit(t, h)
}

// An adopted table gets its order column from a trigger. It is the same source to everybody.
func TestConformanceOfAnAdoptedTable(t *testing.T) {
	route := "route"
	h := sourcetest.Harness{
		AnyText: true, AnyHeaders: true,
		New: func(t *testing.T, o sourcetest.Options) sourcetest.Table {
			cfg := sqlite.Config{Path: file(t), Table: `My "Outbox"`, DeletePublished: o.DeletePublished, BusyTimeout: patient, Columns: columns(
				"id", "command_id", "key", "select", "type", "k i n d", "headers", `h"h`, "created", "at")}
			cfg.Columns["route"] = &route
			execute(t, cfg.Path, `CREATE TABLE "My ""Outbox""" (command_id TEXT PRIMARY KEY, "select" TEXT, "k i n d" TEXT, payload, "h""h" TEXT,
				route TEXT, at DATETIME NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')))`)
			return table(t, cfg)
		},
	}
	sourcetest.Run(t, h)
	sourcetest.RunAudit(t, h)
}

// file is the path of a database that is not there yet, with everything in it that a URI would mistake.
func file(t *testing.T) string { return filepath.Join(t.TempDir(), "a b?c#d%20.db") }

// columns maps pairs of names.
func columns(pairs ...string) map[string]*string {
	m := map[string]*string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &pairs[i+1]
	}
	return m
}

// application opens the file as an application does.
func application(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sqlOpen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func sqlOpen(path string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=busy_timeout(20000)")
}

func execute(t *testing.T, path string, statements ...string) {
	t.Helper()
	db := application(t, path)
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func initialise(t *testing.T, cfg sqlite.Config) {
	t.Helper()
	plan, err := sqlite.Plan(t.Context(), cfg, sqlite.InitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := sqlite.Apply(t.Context(), cfg, plan); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, cfg sqlite.Config) *sqlite.Source {
	t.Helper()
	src, err := sqlite.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return src
}

// name is a column's name in the table, quoted.
func name(cfg sqlite.Config, column, byDefault string) string {
	if mapped := cfg.Columns[column]; mapped != nil {
		byDefault = *mapped
	}
	return `"` + strings.ReplaceAll(byDefault, `"`, `""`) + `"`
}

// table initialises cfg's table and gives it to the suite.
func table(t *testing.T, cfg sqlite.Config) sourcetest.Table {
	t.Helper()
	initialise(t, cfg)
	db := application(t, cfg.Path)
	tbl := `"` + strings.ReplaceAll(cfg.Table, `"`, `""`) + `"`
	insert := `INSERT INTO ` + tbl + ` (` + name(cfg, "id", "id") + `, ` + name(cfg, "key", "aggregateid") + `, ` + name(cfg, "route", "aggregatetype") +
		`, ` + name(cfg, "type", "type") + `, payload, ` + name(cfg, "headers", "headers") + `) VALUES (?, ?, ?, ?, ?, ?)`
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	begin := func(t *testing.T) sourcetest.Tx {
		t.Helper()
		tx, err := db.Begin()
		must(t, err)
		return transaction{tx, insert}
	}
	return withBooks(db, cfg, sourcetest.Table{
		Open: func(t *testing.T) core.Source {
			src, err := sqlite.Open(t.Context(), cfg)
			must(t, err)
			return src
		},
		Begin: begin,
		Insert: func(t *testing.T, rows ...sourcetest.Row) {
			t.Helper()
			x := begin(t)
			x.Insert(t, rows...)
			x.Commit(t)
		},
		NextSeq: func(t *testing.T, seq int64) {
			// AUTOINCREMENT's own counter for a table of ours, the trigger's for an adopted one.
			res, err := db.Exec(`UPDATE sqlite_sequence SET seq = ? WHERE name = ?`, seq-1, cfg.Table)
			if err == nil {
				if n, _ := res.RowsAffected(); n == 0 {
					_, err = db.Exec(`INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)`, cfg.Table, seq-1)
				}
			} else {
				_, err = db.Exec(`UPDATE connectd_outbox SET last_seq = ? WHERE tbl = ?`, seq-1, cfg.Table)
			}
			must(t, err)
		},
		Beside: func(t *testing.T) sourcetest.Table {
			cfg := cfg
			cfg.Table, cfg.Columns = `the "beside"`, columns("id", `command "id"`)
			return table(t, cfg)
		},
		Drop: func(t *testing.T) {
			_, err := db.Exec(`DROP TABLE ` + tbl)
			must(t, err)
		},
		Announce: func(t *testing.T, l core.Lease, a core.Announcement) func() {
			conn := immediate(t, db)
			seqs := make([]string, len(a.Seqs))
			for i, seq := range a.Seqs {
				seqs[i] = strconv.FormatInt(seq, 10)
			}
			_, err := conn.ExecContext(context.Background(), `INSERT INTO connectd_inflight (tbl, part, epoch, batch, seqs, sent_at) VALUES (?, ?, ?, ?, ?, 0)`,
				cfg.Table, l.Part, l.Epoch, a.Batch, "["+strings.Join(seqs, ",")+"]")
			must(t, err)
			return func() { end(t, conn) }
		},
		Receipt: func(t *testing.T, id string, r core.Receipt) {
			t.Helper()
			_, err := db.Exec(`INSERT INTO connectd_receipt (command_id, consumer, status, result_ref) VALUES (?, ?, ?, ?)`, id, r.Consumer, r.Status, r.ResultRef)
			must(t, err)
		},
		Ahead: func(t *testing.T, d time.Duration) {
			t.Helper()
			_, err := db.Exec(`UPDATE connectd_worker SET heartbeat = heartbeat + ?`, d.Milliseconds())
			must(t, err)
		},
		Lock: func(t *testing.T) func() {
			conn := immediate(t, db)
			return func() { end(t, conn) }
		},
	})
}

// transaction is an application's.
type transaction struct {
	tx     *sql.Tx
	insert string
}

func (x transaction) Insert(t *testing.T, rows ...sourcetest.Row) {
	t.Helper()
	for _, r := range rows {
		_, err := x.tx.Exec(x.insert, r.ID, sql.NullString{String: r.Key, Valid: r.Keyed}, null(r.Route), null(r.Type), r.Payload, null(r.Headers))
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (x transaction) Commit(t *testing.T) {
	t.Helper()
	if err := x.tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

func (x transaction) Rollback(t *testing.T) {
	t.Helper()
	if err := x.tx.Rollback(); err != nil {
		t.Fatal(err)
	}
}

// immediate takes the write lock.
func immediate(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(context.Background(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	return conn
}

func end(t *testing.T, conn *sql.Conn) {
	t.Helper()
	if _, err := conn.ExecContext(context.Background(), "COMMIT"); err != nil {
		t.Error(err)
	}
	conn.Close()
}

func null(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }
