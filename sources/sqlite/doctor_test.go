package sqlite_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/sourcetest"
	"github.com/connectd/connectd/sources/sqlite"
)

func wantSound(t *testing.T, d core.Diagnosis) {
	t.Helper()
	sourcetest.WantSound(t, d)
	if len(d.Leases) != 1 {
		t.Errorf("the table was not looked at: %+v", d)
	}
}

// A sound table is found sound, and not a byte of the file is changed, also when a daemon has it open.
func TestDoctorOfASoundTable(t *testing.T) {
	for name, ddl := range map[string]string{"new": "", "adopted": `CREATE TABLE outbox (id TEXT PRIMARY KEY, aggregateid TEXT, payload)`} {
		t.Run(name, func(t *testing.T) {
			cfg := sqlite.Config{Path: file(t), Table: "outbox"}
			if ddl != "" {
				execute(t, cfg.Path, ddl)
			}
			initialise(t, cfg)
			execute(t, cfg.Path, `INSERT INTO outbox (id, payload) VALUES ('a', 'x')`)
			src := open(t, cfg)
			if _, err := src.Fetch(t.Context(), core.FetchRequest{Limit: 1}); err != nil {
				t.Fatal(err)
			}
			content := func() string {
				sum := ""
				for _, name := range []string{cfg.Path, cfg.Path + "-wal"} {
					data, err := os.ReadFile(name)
					if err != nil {
						t.Fatal(err)
					}
					sum += fmt.Sprintf("%x ", sha256.Sum256(data))
				}
				return sum
			}
			before := content()
			d := sqlite.Diagnose(t.Context(), cfg)
			wantSound(t, d)
			if content() != before {
				t.Error("the file has changed")
			}
			if d.Receipts {
				t.Error("there is no receipt")
			}
			execute(t, cfg.Path, `INSERT INTO connectd_receipt (command_id) VALUES ('a')`)
			if d := sqlite.Diagnose(t.Context(), cfg); !d.Receipts {
				t.Error("the receipt was not seen")
			}
		})
	}
}

// What is wrong is named, and what to do about it.
func TestDoctorOfTheTable(t *testing.T) {
	for name, c := range map[string]struct {
		breaks string
		level  core.Level
		what   string
		words  []string
	}{
		"no index":        {`DROP INDEX connectd_outbox_pending`, core.Problem, "index", []string{"no index connectd_outbox_pending", "connectd init"}},
		"another index":   {`DROP INDEX connectd_outbox_pending; CREATE INDEX connectd_outbox_pending ON outbox (available_at) WHERE state = 'pending'`, core.Problem, "plan", []string{"drop the index"}},
		"a useless index": {`DROP INDEX connectd_outbox_pending; CREATE INDEX connectd_outbox_pending ON outbox (payload) WHERE state = 'dead'`, core.Problem, "plan", []string{"drop the index"}},
		"no lease table":  {`DROP TABLE connectd_lease`, core.Problem, "initialised", []string{"connectd_lease", "connectd init"}},
		"no registration": {`DELETE FROM connectd_outbox`, core.Problem, "initialised", []string{"connectd init"}},
		"no payload":      {`ALTER TABLE outbox DROP COLUMN payload`, core.Problem, "table", []string{"no column payload", "columns.payload", "correct source.columns"}},
		"no table":        {`DROP TABLE outbox`, core.Problem, "table", []string{"there is no table", "connectd init"}},
		"a view":          {`DROP TABLE outbox; CREATE VIEW outbox AS SELECT 1 AS id`, core.Problem, "table", []string{"not an ordinary table"}},
		"no unique id":    {`DROP TABLE outbox; CREATE TABLE outbox (id TEXT, aggregateid TEXT, payload)`, core.Problem, "id", []string{"CREATE UNIQUE INDEX"}},
		"a reused id":     {`DROP TABLE outbox; CREATE TABLE outbox (id INTEGER PRIMARY KEY, aggregateid TEXT, payload)`, core.Problem, "id", []string{"make the table anew with AUTOINCREMENT"}},
		"no numbers":      {`DROP TABLE outbox; CREATE TABLE outbox (id TEXT PRIMARY KEY, aggregateid TEXT, payload, seq INTEGER)`, core.Problem, "order", []string{"map columns.order", "correct source.columns"}},
		"not initialised": {`DROP TABLE outbox; CREATE TABLE outbox (id TEXT PRIMARY KEY, aggregateid TEXT, payload)`, core.Problem, "initialised", []string{"column state"}},
		"the journal":     {`PRAGMA journal_mode = DELETE`, core.Warning, "journal", []string{"write-ahead log"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := sqlite.Config{Path: file(t), Table: "outbox"}
			initialise(t, cfg)
			execute(t, cfg.Path, c.breaks)
			sourcetest.WantFinding(t, sqlite.Diagnose(t.Context(), cfg), c.level, c.what, c.words...)
		})
	}
}

func TestDoctorOfTheFile(t *testing.T) {
	dir := t.TempDir()
	cfg := sqlite.Config{Path: filepath.Join(dir, "shop.db"), Table: "outbox"}
	sourcetest.WantFinding(t, sqlite.Diagnose(t.Context(), cfg), core.Problem, "file", "there is no file", "connectd init")
	if _, err := os.Stat(cfg.Path); err == nil {
		t.Error("doctor has made the file")
	}
	sourcetest.WantFinding(t, sqlite.Diagnose(t.Context(), sqlite.Config{Path: dir, Table: "outbox"}), core.Problem, "file", "not a regular file")
	if err := os.WriteFile(cfg.Path, []byte(strings.Repeat("no database at all ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	sourcetest.WantFinding(t, sqlite.Diagnose(t.Context(), cfg), core.Problem, "table", "SQLite database")
}

// A process that keeps the write lock keeps doctor for a bounded time.
func TestDoctorOfALockedFile(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	initialise(t, cfg)
	conn, err := application(t, cfg.Path).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	d := sqlite.Diagnose(t.Context(), cfg)
	sourcetest.WantFinding(t, d, core.Problem, "rights", "stays locked", "lsof")
	sourcetest.WantFinding(t, d, core.Fine, "plan")
	if _, err := conn.ExecContext(context.Background(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	wantSound(t, sqlite.Diagnose(t.Context(), cfg))
}
