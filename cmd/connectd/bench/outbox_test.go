//go:build linux

package bench

import (
	"database/sql"
	"fmt"
	"os"
	"testing"
	"time"

	_ "modernc.org/sqlite"
)

// backlogRows and payloadBytes are the table that is drained. Its rows have one of 10,000 keys each, at random, and a
// payload of JSON.
const (
	backlogRows  = 100_000
	payloadBytes = 500
)

// openDatabase opens a file as an application would.
func openDatabase(b *testing.B, path string) *sql.DB {
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=synchronous(NORMAL)")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	return db
}

// fill makes the backlog in one transaction and moves it from the write-ahead log into the file.
func fill(b *testing.B, path string) {
	db := openDatabase(b, path)
	defer db.Close()
	_, err := db.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
		INSERT INTO outbox (id, aggregateid, aggregatetype, type, payload)
		SELECT printf('0198f0c2-5b1e-7000-8000-%012d', i), printf('customer-%05d', abs(random() % 10000)), 'orders', 'OrderPlaced',
			CAST(printf('{"order":%09d,"text":"%s"}', 100000000 + i, substr(hex(zeroblob(?2)), 1, ?2 - 29)) AS BLOB) FROM n`, backlogRows, payloadBytes)
	if err != nil {
		b.Fatal(err)
	}
	var rows, size int
	if err := db.QueryRow(`SELECT count(*), max(length(payload)) FROM outbox`).Scan(&rows, &size); err != nil {
		b.Fatal(err)
	}
	if rows != backlogRows || size != payloadBytes {
		b.Fatalf("the backlog is %d rows of %d bytes", rows, size)
	}
	if _, err := db.Exec(`PRAGMA wal_checkpoint(TRUNCATE)`); err != nil {
		b.Fatal(err)
	}
}

// selectAll scans every column of every row into a variable of its type, as a program with nothing else to do would.
func selectAll(b *testing.B, path string) cost {
	db := openDatabase(b, path)
	defer db.Close()
	if err := db.Ping(); err != nil {
		b.Fatal(err)
	}
	begun, before := time.Now(), cpuTime(b, os.Getpid())
	rows, err := db.Query(`SELECT seq, id, aggregatetype, aggregateid, type, payload, headers, created_at,
		state, available_at, attempts, deliveries, crashes, last_error, failing_since, published_at FROM outbox`)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	n, bytes := 0, 0
	for rows.Next() {
		var id, state string
		var route, key, kind, headers, lastError sql.NullString
		var payload []byte
		var seq, created, available, attempts, deliveries, crashes int64
		var failing, published sql.NullInt64
		err := rows.Scan(&seq, &id, &route, &key, &kind, &payload, &headers, &created,
			&state, &available, &attempts, &deliveries, &crashes, &lastError, &failing, &published)
		if err != nil {
			b.Fatal(err)
		}
		n, bytes = n+1, bytes+len(payload)
	}
	took := cost{time.Since(begun), cpuTime(b, os.Getpid()) - before}
	if err := rows.Err(); err != nil {
		b.Fatal(err)
	}
	if n != backlogRows || bytes != backlogRows*payloadBytes {
		b.Fatalf("selected %d rows with %d bytes", n, bytes)
	}
	return took
}

// producer commits single rows, each in a transaction of its own.
type producer struct {
	b         *testing.B
	db        *sql.DB
	statement string // its arguments are id, key and payload
}

func newProducer(b *testing.B, path string) *producer {
	return newProducerOn(b, openDatabase(b, path), `INSERT INTO outbox (id, aggregateid, aggregatetype, type, payload) VALUES (?, ?, 'orders', 'OrderPlaced', ?)`)
}

func newProducerOn(b *testing.B, db *sql.DB, statement string) *producer {
	p := &producer{b, db, statement}
	p.db.SetMaxOpenConns(1)
	return p
}

// insert commits row n of a key of its own and returns the time of the commit's return, which is when the application
// may say that it is done.
func (p *producer) insert(n int) time.Time {
	p.b.Helper()
	_, err := p.db.ExecContext(p.b.Context(), p.statement, rowID(n), fmt.Sprintf("customer-%d", n), []byte(`{"order":1}`))
	if err != nil {
		p.b.Errorf("insert row %d: %v", n, err) // not Fatal: any goroutine may call this
	}
	return time.Now()
}

func rowID(n int) string { return fmt.Sprintf("row-%06d", n) }

// remove deletes files that may not be there.
func remove(b *testing.B, paths ...string) {
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			b.Fatal(err)
		}
	}
}
