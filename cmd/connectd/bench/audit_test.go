//go:build linux

package bench

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/mysql"
	"github.com/connectd/connectd/sources/sqlite"
)

// auditTime audits a table, whose books must balance, and says how long that took.
func auditTime(b *testing.B, src core.Auditor) time.Duration {
	a, err := src.Audit(b.Context(), core.AuditRequest{
		Events: &core.Events{Table: "events", Key: "id", Command: "id"}, ReceiptWithin: time.Hour, Lease: time.Minute, Timeout: 5 * time.Minute,
	})
	if err != nil || !a.OK() {
		b.Errorf("the audit: %v, %+v", err, a.Laws)
	}
	return a.Took
}

// benchmarkSQLiteAudit audits a file, in the first round only.
func benchmarkSQLiteAudit(b *testing.B, _ programs, r *report) {
	once(b, func() {
		path := filepath.Join(b.TempDir(), "audit.db")
		cfg := sqlite.Config{Path: path, Table: "outbox"}
		plan, err := sqlite.Plan(b.Context(), cfg, sqlite.InitOptions{})
		if err == nil {
			err = sqlite.Apply(b.Context(), cfg, plan)
		}
		if err != nil {
			b.Fatal(err)
		}
		db := openDatabase(b, path)
		for _, text := range []string{
			fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
				INSERT INTO outbox (id, aggregateid, payload, state, published_at)
				SELECT printf('0198f0c2-5b1e-7000-8000-%%012d', i), printf('customer-%%05d', i %% 10000), zeroblob(%d), iif(i %% 2 = 0, 'published', 'pending'), 1 FROM n`, auditedRows, payloadBytes),
			`CREATE TABLE events (id TEXT PRIMARY KEY)`, `INSERT INTO events SELECT id FROM outbox`,
			`INSERT INTO connectd_receipt (command_id) SELECT id FROM outbox WHERE state = 'published'`, `PRAGMA wal_checkpoint(TRUNCATE)`,
		} {
			if _, err := db.Exec(text); err != nil {
				b.Fatalf("%s: %v", text, err)
			}
		}
		src, err := sqlite.Open(b.Context(), cfg)
		if err != nil {
			b.Fatal(err)
		}
		defer src.Close()
		r.add("SQLite, audit of 1M rows, their events and receipts", "", "s", atMost(10), auditTime(b, src).Seconds())
	})
}

// benchmarkMySQLAudit audits a table on MySQL or MariaDB, in the first round only.
func benchmarkMySQLAudit(b *testing.B, p programs, s *server, r *report) {
	once(b, func() {
		d := s.newDatabase(b, "")
		defer d.drop(b)
		d.setup(b, p, "", nullSinkYAML, rowsKept).init(b)
		digits := `(SELECT 0 AS i` + strings.Repeat(` UNION ALL SELECT %d`, 9) + `)`
		digits = fmt.Sprintf(digits, 1, 2, 3, 4, 5, 6, 7, 8, 9)
		d.run(b, fmt.Sprintf(`INSERT INTO outbox (id, aggregateid, payload, state, published_at)
			SELECT CONCAT('0198f0c2-5b1e-7000-8000-', LPAD(i, 12, '0')), CONCAT('customer-', i %% 10000), REPEAT('0', %d), IF(i %% 2 = 0, 'published', 'pending'), '2020-01-01'
			FROM (SELECT a.i + 10 * b.i + 100 * c.i + 1000 * d.i + 10000 * e.i + 100000 * f.i AS i FROM %[2]s a, %[2]s b, %[2]s c, %[2]s d, %[2]s e, %[2]s f) n`, payloadBytes, digits),
			`CREATE TABLE events (id varchar(255) PRIMARY KEY)`, `INSERT INTO events SELECT id FROM outbox`,
			`INSERT INTO connectd_receipt (command_id) SELECT id FROM outbox WHERE state = 'published'`)
		src, err := mysql.Open(b.Context(), mysql.Config{DSN: d.dsn, Table: "outbox"})
		if err != nil {
			b.Fatal(err)
		}
		defer src.Close()
		r.add(s.name+", audit of 1M rows, their events and receipts", "", "s", atMost(10), auditTime(b, src).Seconds())
	})
}
