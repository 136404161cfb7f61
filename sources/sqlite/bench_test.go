package sqlite_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/sourcetest"
	"github.com/connectd/connectd/sources/sqlite"
)

// BenchmarkDrain reads, announces and settles a backlog in batches of 500, beside a plain SELECT of all its rows in the
// same run. The ratio is the ceiling of what the engine can reach with a sink that costs nothing.
func BenchmarkDrain(b *testing.B) {
	for _, deletes := range []bool{false, true} {
		b.Run(fmt.Sprint("delete=", deletes), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				cfg := sqlite.Config{Path: filepath.Join(b.TempDir(), "db"), Table: "outbox", DeletePublished: deletes}
				db := backlog(b, cfg, benchRows)
				begun := time.Now()
				selectAll(b, db)
				selected := time.Since(begun)
				src, err := sqlite.Open(b.Context(), cfg)
				if err != nil {
					b.Fatal(err)
				}
				begun = time.Now()
				b.StartTimer()
				drainAll(b, src, benchRows)
				b.StopTimer()
				drained := time.Since(begun)
				b.ReportMetric(benchRows/drained.Seconds(), "rows/s")
				b.ReportMetric(benchRows/selected.Seconds(), "selected/s")
				b.ReportMetric(selected.Seconds()/drained.Seconds(), "ratio")
				src.Close()
				db.Close()
				b.StartTimer()
			}
		})
	}
}

// BenchmarkFetch reads one page again and again: what a row costs in memory.
func BenchmarkFetch(b *testing.B) {
	cfg := sqlite.Config{Path: filepath.Join(b.TempDir(), "db"), Table: "outbox"}
	db := backlog(b, cfg, 500)
	defer db.Close()
	if _, err := db.Exec(`UPDATE outbox SET headers = '{"tenant": "t-1", "trace": "0123456789abcdef0123456789abcdef"}'`); err != nil {
		b.Fatal(err)
	}
	src, err := sqlite.Open(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer src.Close()
	b.ReportAllocs()
	for b.Loop() {
		if page, err := sourcetest.Page(b.Context(), src, core.FetchRequest{Limit: 500}); err != nil || len(page.Rows) != 500 {
			b.Fatal(len(page.Rows), err)
		}
	}
}

const benchRows = 50_000

func backlog(b *testing.B, cfg sqlite.Config, rows int) *sql.DB {
	b.Helper()
	plan, err := sqlite.Plan(b.Context(), cfg, sqlite.InitOptions{})
	if err != nil {
		b.Fatal(err)
	}
	if err := sqlite.Apply(b.Context(), cfg, plan); err != nil {
		b.Fatal(err)
	}
	db, err := sql.Open("sqlite", cfg.Path)
	if err != nil {
		b.Fatal(err)
	}
	_, err = db.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO outbox (id, aggregateid, aggregatetype, type, payload) SELECT 'id-' || i, 'key-' || (i % 10000), 'orders', 'created', randomblob(500) FROM n`, rows)
	if err != nil {
		b.Fatal(err)
	}
	return db
}

func selectAll(b *testing.B, db *sql.DB) {
	b.Helper()
	rows, err := db.Query(`SELECT seq, id, aggregateid, aggregatetype, type, payload, headers, created_at FROM outbox ORDER BY seq`)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var seq, at int64
		var id, key, route, kind, headers sql.NullString
		var payload []byte
		if err := rows.Scan(&seq, &id, &key, &route, &kind, &payload, &headers, &at); err != nil {
			b.Fatal(err)
		}
	}
	if rows.Err() != nil {
		b.Fatal(rows.Err())
	}
}

func drainAll(b *testing.B, src *sqlite.Source, total int) {
	b.Helper()
	taken, err := src.Acquire(b.Context(), "me", 1, time.Minute, false)
	if err != nil || len(taken) != 1 {
		b.Fatal(taken, err)
	}
	change := core.Change{Lease: taken[0].Lease}
	var after, batch int64
	for done := 0; ; {
		page, err := sourcetest.Page(b.Context(), src, core.FetchRequest{After: after, Limit: 500})
		if err != nil {
			b.Fatal(err)
		}
		done += len(change.Settle)
		var next core.Change
		next.Lease = change.Lease
		if len(page.Rows) > 0 {
			batch++
			a := core.Announcement{Batch: batch}
			for _, r := range page.Rows {
				a.Seqs = append(a.Seqs, r.Record.Seq)
				next.Settle = append(next.Settle, core.Settlement{Seq: r.Record.Seq, Deliveries: r.Deliveries, State: core.Published})
			}
			change.Announce = []core.Announcement{a}
			next.Finished = []core.Finished{{Batch: batch}}
			after = a.Seqs[len(a.Seqs)-1]
		}
		if err := src.Step(b.Context(), "me", []core.Change{change}); err != nil {
			b.Fatal(err)
		}
		change = next
		if len(page.Rows) == 0 {
			if done != total {
				b.Fatalf("drained %d rows of %d", done, total)
			}
			return
		}
	}
}
