//go:build linux

package bench

import (
	"database/sql"
	"fmt"
	"io"
	"path/filepath"
	"testing"

	"github.com/connectd/connectd/sources/mysql"
	"github.com/connectd/connectd/sources/postgres"
	"github.com/connectd/connectd/sources/sqlite"
)

func benchmarkSQLiteAudit(b *testing.B, p programs, r *report) {
	r.benchmarkAudit(b, func(b *testing.B) audited {
		path := filepath.Join(b.TempDir(), "audit.db")
		sqliteTable(b, p, path, *bookRows, *bookRows/2)
		db := openDatabase(b, path)
		db.SetMaxOpenConns(1)
		for _, text := range []string{
			`CREATE TABLE events (id TEXT PRIMARY KEY)`, `INSERT INTO events SELECT id FROM outbox`,
			`INSERT INTO connectd_receipt (command_id) SELECT id FROM outbox WHERE state = 'published'`,
			`CREATE TRIGGER note AFTER INSERT ON outbox BEGIN INSERT INTO events VALUES (NEW.id); END`, `PRAGMA wal_checkpoint(TRUNCATE)`,
		} {
			if _, err := db.Exec(text); err != nil {
				b.Fatalf("%s: %v", text, err)
			}
		}
		src, err := sqlite.Open(b.Context(), sqlite.Config{Path: path, Table: "outbox"})
		closeLater(b, src, err)
		return audited{"SQLite", src, db, `INSERT INTO outbox (id, aggregateid, aggregatetype, type, payload) VALUES (?, ?, 'orders', 'OrderPlaced', ?)`, 1}
	})
}

func benchmarkPostgresAudit(b *testing.B, p programs, s *server, r *report) {
	r.benchmarkAudit(b, func(b *testing.B) audited {
		from := pgTemplate(b, p, s, *bookRows, rowsKept, false)
		d := s.newDatabase(b, from.name)
		from.drop(b)
		d.run(b, fmt.Sprintf(`UPDATE outbox SET state = 'published', deliveries = 1, published_at = now() - interval '2 days' WHERE seq <= %d`, *bookRows/2),
			`CREATE TABLE events AS SELECT id FROM outbox`, `ALTER TABLE events ADD PRIMARY KEY (id)`,
			`INSERT INTO connectd_receipt (command_id, consumer) SELECT id, 'bench' FROM outbox WHERE state = 'published'`,
			`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO events VALUES (NEW.id); RETURN NULL; END $$`,
			`CREATE TRIGGER note AFTER INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION note()`,
			`VACUUM (ANALYZE)`, `CHECKPOINT`)
		src, err := postgres.Open(b.Context(), postgres.Config{DSN: d.dsn, Table: "outbox"})
		closeLater(b, src, err)
		return audited{s.name, src, d.db, insertRow, serverConnections}
	})
}

// benchmarkMySQLAudit is for MySQL and for MariaDB.
func benchmarkMySQLAudit(b *testing.B, p programs, s *server, r *report) {
	r.benchmarkAudit(b, func(b *testing.B) audited {
		d := mysqlTemplate(b, p, s, *bookRows, rowsKept, *bookRows/2)
		d.run(b, `CREATE TABLE events (id varchar(255) PRIMARY KEY)`, `INSERT INTO events SELECT id FROM outbox`,
			`INSERT INTO connectd_receipt (command_id) SELECT id FROM outbox WHERE state = 'published'`,
			`CREATE TRIGGER note AFTER INSERT ON outbox FOR EACH ROW INSERT INTO events VALUES (NEW.id)`, `ANALYZE TABLE outbox, events, connectd_receipt`)
		src, err := mysql.Open(b.Context(), mysql.Config{DSN: d.dsn, Table: "outbox"})
		closeLater(b, src, err)
		return audited{s.name, src, d.db, `INSERT INTO outbox (id, aggregateid, aggregatetype, type, payload) VALUES (?, ?, 'orders', 'OrderPlaced', ?)`, serverConnections}
	})
}

// serverConnections is how many producers a server has.
const serverConnections = 4

// closeLater closes what was opened when the benchmark ends, before its database goes.
func closeLater(b *testing.B, c io.Closer, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
}

// sqliteTable makes a file with an outbox of so many rows, of which the first old ones are published since long.
func sqliteTable(b *testing.B, p programs, path string, rows, old int) {
	s := newSetupOn(b, p, fmt.Sprintf("{plugin: sqlite, path: %s, table: outbox}", path), nullSinkYAML, rowsKept)
	s.init(b)
	db := openDatabase(b, path)
	defer db.Close()
	sqliteFill(b, db, 1, rows, old)
	if _, err := db.Exec(`PRAGMA wal_checkpoint(TRUNCATE)`); err != nil {
		b.Fatal(err)
	}
}

// sqliteFill inserts rows with the numbers from first to last, and publishes those up to old.
func sqliteFill(b *testing.B, db *sql.DB, first, last, old int) {
	_, err := db.Exec(fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT %d UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO outbox (id, aggregateid, aggregatetype, type, payload, state, deliveries, published_at)
		SELECT printf('0198f0c2-5b1e-7000-8000-%%012d', i), printf('customer-%%05d', abs(random() %% 10000)), 'orders', 'OrderPlaced', zeroblob(%d),
			iif(i <= %[4]d, 'published', 'pending'), i <= %[4]d, iif(i <= %[4]d, 1, NULL) FROM n`, first, last, payloadBytes, old))
	if err != nil {
		b.Fatal(err)
	}
}
