package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/sourcetest"
	"github.com/connectd/connectd/sources/sqlite"
)

func vandal(db *sql.DB, cfg sqlite.Config) *sourcetest.Vandal {
	tbl := `"` + strings.ReplaceAll(cfg.Table, `"`, `""`) + `"`
	id, state, key := name(cfg, "id", "id"), name(cfg, "state", "state"), "aggregateid"
	if mapped := cfg.Columns["key"]; mapped != nil {
		key = *mapped
	}
	do := func(t *testing.T, text string, args ...any) {
		t.Helper()
		if _, err := db.Exec(text, args...); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return &sourcetest.Vandal{
		Name: "the events", Key: key,
		Events: func(t *testing.T, ids ...string) {
			do(t, `CREATE TABLE "the events" (id TEXT PRIMARY KEY)`)
			for _, id := range ids {
				do(t, `INSERT INTO "the events" VALUES (?)`, id)
			}
		},
		Delete: func(t *testing.T, row string) { do(t, `DELETE FROM `+tbl+` WHERE CAST(`+id+` AS TEXT) = ?`, row) },
		// The same bytes, as a blob, are another value to the constraint and the same id to a consumer.
		Double: func(t *testing.T, row string) {
			do(t, `INSERT INTO `+tbl+` (`+id+`, payload) VALUES (CAST(? AS BLOB), '')`, row)
		},
		Damage: func(t *testing.T, row string) {
			conn, err := db.Conn(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for _, text := range []string{`PRAGMA ignore_check_constraints = 1`, `UPDATE ` + tbl + ` SET ` + state + ` = 'lost' WHERE ` + id + ` = '` + row + `'`, `PRAGMA ignore_check_constraints = 0`} {
				if _, err := conn.ExecContext(context.Background(), text); err != nil {
					t.Fatal(err)
				}
			}
		},
		Mend: func(t *testing.T, row string) {
			do(t, `UPDATE `+tbl+` SET `+state+` = 'pending' WHERE `+id+` = ?`, row)
		},
		Adopt: func(t *testing.T, row string) {
			do(t, `UPDATE `+tbl+` SET `+state+` = 'published', `+name(cfg, "published_at", "published_at")+` = CAST((julianday('now') - 2440588.5) * 86400000 AS INTEGER) WHERE `+id+` = ?`, row)
		},
		Orphan: func(t *testing.T, d int) {
			do(t, `UPDATE connectd_lease SET epoch = epoch + ? WHERE tbl = ?`, d, cfg.Table)
		},
		Ledger: func(t *testing.T, d int) {
			do(t, `UPDATE connectd_ledger SET count = count + ? WHERE tbl = ?`, d, cfg.Table)
		},
		Run: func(t *testing.T, seq int64, statements []string) {
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			names := sourcetest.Documented(seq, tbl, name(cfg, "order", "seq"), cfg.Table, "")
			for _, s := range statements {
				if _, err := conn.ExecContext(t.Context(), names.Replace(s)); err != nil {
					t.Fatalf("%s: %v", names.Replace(s), err)
				}
			}
		},
		Silent: func(t *testing.T) { do(t, `DELETE FROM connectd_worker WHERE tbl = ?`, cfg.Table) },
	}
}

// The rule's SQL is the operator's own and has the file, but for writing.
func TestAnAuditWritesNothing(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	initialise(t, cfg)
	execute(t, cfg.Path, `CREATE TABLE events (id TEXT)`, `INSERT INTO events VALUES ('a')`)
	src := open(t, cfg)
	another := filepath.Join(t.TempDir(), "another.db")
	execute(t, another, `CREATE TABLE events (id TEXT)`, `INSERT INTO events VALUES ('a')`)
	fresh := filepath.Join(t.TempDir(), "fresh.db")
	for _, do := range []string{
		"COMMIT; DELETE FROM events", "COMMIT; PRAGMA query_only = 0; DELETE FROM events", "PRAGMA query_only = 0", "ROLLBACK",
		"PRAGMA query_only = 0; ROLLBACK; ATTACH '" + another + "' AS w; DELETE FROM w.events", "ATTACH '" + fresh + "' AS w", "COMMIT; VACUUM INTO '" + fresh + "'",
		"CREATE TEMP TABLE x (y)",
	} {
		req := core.AuditRequest{ReceiptWithin: core.Forever, Lease: time.Second, Timeout: time.Minute,
			Events: &core.Events{Table: "events", Key: "id", Command: "id", Where: "true)) x; " + do + "; SELECT 0 FROM (SELECT 1 WHERE (true"}}
		if _, err := src.Audit(t.Context(), req); err == nil || !strings.Contains(err.Error(), "not authorized") {
			t.Errorf("%s: the error is %v", do, err)
		}
	}
	if _, err := os.Stat(fresh); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was made: %v", err)
	}
	var events int
	if err := application(t, another).QueryRow(`SELECT count(*) FROM events`).Scan(&events); err != nil || events != 1 {
		t.Errorf("the other file has %d events: %v", events, err)
	}
	if a := audit(t, src); a.Findings() != 2 {
		t.Errorf("the event is gone: %+v", a)
	}
}

// audit runs an audit whose rule is that each event gives a command with its id.
func audit(t *testing.T, src *sqlite.Source) core.Audit {
	t.Helper()
	a, err := src.Audit(t.Context(), core.AuditRequest{ReceiptWithin: core.Forever, Lease: time.Second, Timeout: time.Minute,
		Events: &core.Events{Table: "events", Key: "id", Command: "id"}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A column may take ids for one that differ in their letters, or have none: a consumer sees other ids.
func TestAnAuditComparesBytes(t *testing.T) {
	for _, table := range []string{"outbox", "o{id}b'"} {
		cfg := sqlite.Config{Path: file(t), Table: table}
		name := `"` + table + `"`
		execute(t, cfg.Path, `CREATE TABLE `+name+` (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE COLLATE NOCASE, aggregateid, aggregatetype, type, payload, headers)`)
		initialise(t, cfg)
		execute(t, cfg.Path, `CREATE TABLE events (id TEXT COLLATE NOCASE)`, `INSERT INTO events VALUES ('a'), ('b')`, `INSERT INTO `+name+` (id) VALUES ('A'), (NULL), ('b')`,
			`INSERT INTO connectd_ledger SELECT tbl, '2026-01-01', 'dead', 7 FROM connectd_outbox`)
		a := audit(t, open(t, cfg))
		if got := a.Laws[1].Breaches; len(got) != 1 || strings.Join(got[0].IDs, ",") != "(no id) row 2,A" {
			t.Errorf("%s: rows without an event are %+v", table, got)
		}
		if got := a.Laws[0].Figures[2]; got.Name != "cleaned" || got.Count != 7 {
			t.Errorf("%s: %+v", table, got)
		}
	}
}
