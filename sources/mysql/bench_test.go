package mysql_test

import (
	"database/sql"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/mysql"
	"github.com/connectd/connectd/sources/sourcetest"
)

const (
	benchRows       = 100_000
	benchPartitions = 16
	benchWorkers    = 4
)

// BenchmarkDrain reads, announces and settles a backlog in batches of 500, each worker a partition at a time, beside an
// UPDATE of all its rows in one statement in the same run. The ratio is the ceiling of what the engine can reach with a
// sink that costs nothing.
func BenchmarkDrain(b *testing.B) {
	for name, variable := range map[string]string{"MySQL": "CONNECTD_TEST_MYSQL_DSN", "MariaDB": "CONNECTD_TEST_MARIADB_DSN"} {
		dsn := os.Getenv(variable)
		if dsn == "" {
			b.Logf("%s is not set: there is no %s to measure", variable, name)
			continue
		}
		for _, deletes := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/delete=%v", name, deletes), func(b *testing.B) {
				for b.Loop() {
					drainOnce(b, dsn, deletes)
				}
			})
		}
	}
}

// BenchmarkFetch reads one page again and again: what a row costs the client in memory.
func BenchmarkFetch(b *testing.B) {
	cfg, db, remove := backlog(b, os.Getenv("CONNECTD_TEST_MYSQL_DSN"), 1, 1)
	defer remove()
	if _, err := db.Exec(`UPDATE outbox SET headers = '{"tenant": "t-1", "trace": "0123456789abcdef0123456789abcdef"}'`); err != nil {
		b.Fatal(err)
	}
	src, err := mysql.Open(b.Context(), cfg)
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

// backlog is a database of its own with an outbox table of so many thousand rows, and what removes it.
func backlog(b *testing.B, dsn string, partitions, thousands int) (cfg mysql.Config, db *sql.DB, remove func()) {
	b.Helper()
	c, err := driver.ParseDSN(dsn)
	if err != nil {
		b.Fatal(err)
	}
	c.DBName = fmt.Sprintf("connectd_bench_%d_%d", os.Getpid(), databases.Add(1))
	admin, err := sql.Open("mysql", dsn)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := admin.Exec(`CREATE DATABASE ` + c.DBName); err != nil {
		b.Fatal(err)
	}
	cfg = mysql.Config{DSN: c.FormatDSN(), Table: "outbox"}
	if db, err = sql.Open("mysql", cfg.DSN); err != nil {
		b.Fatal(err)
	}
	if err := initWith(b.Context(), cfg, mysql.InitOptions{Partitions: partitions}); err != nil {
		b.Fatal(err)
	}
	fill := `INSERT INTO ` + cfg.Table + ` (id, aggregateid, aggregatetype, type, payload)
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
		SELECT uuid(), concat('key', floor(rand() * 10000)), 'orders', 'created', repeat('x', 500) FROM n a, (SELECT 1 FROM n LIMIT ?) b`
	if _, err := db.Exec(fill, thousands); err != nil {
		b.Fatal(err)
	}
	return cfg, db, func() {
		db.Close()
		admin.Exec(`DROP DATABASE ` + c.DBName)
		admin.Close()
	}
}

func drainOnce(b *testing.B, dsn string, deletes bool) {
	b.StopTimer()
	cfg, db, remove := backlog(b, dsn, benchPartitions, benchRows/1000)
	defer remove()
	cfg.DeletePublished = deletes
	begun := time.Now()
	if _, err := db.Exec(`UPDATE ` + cfg.Table + ` SET failing_since = utc_timestamp(6)`); err != nil {
		b.Fatal(err)
	}
	updated := time.Since(begun)
	src, err := mysql.Open(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer src.Close()
	begun = time.Now()
	b.StartTimer()
	drainAll(b, src)
	b.StopTimer()
	drained := time.Since(begun)
	b.ReportMetric(benchRows/drained.Seconds(), "rows/s")
	b.ReportMetric(benchRows/updated.Seconds(), "updated/s")
	b.ReportMetric(updated.Seconds()/drained.Seconds(), "ratio")
	b.StartTimer()
}

func drainAll(b *testing.B, src *mysql.Source) {
	taken, err := src.Acquire(b.Context(), "me", benchPartitions, time.Minute, false)
	if err != nil || len(taken) != benchPartitions {
		b.Fatal(taken, err)
	}
	parts := make(chan core.Lease, len(taken))
	for _, a := range taken {
		parts <- a.Lease
	}
	close(parts)
	var wg sync.WaitGroup
	for range benchWorkers {
		wg.Go(func() {
			for l := range parts {
				if err := drainPart(b, src, l); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if lag, err := src.Lag(b.Context()); err != nil || lag.Pending != 0 {
		b.Fatal(lag, err)
	}
}

func drainPart(b *testing.B, src *mysql.Source, l core.Lease) error {
	change := core.Change{Lease: l}
	for after, batch := int64(0), int64(1); ; batch++ {
		page, err := sourcetest.Page(b.Context(), src, core.FetchRequest{Part: l.Part, After: after, Limit: 500})
		if err != nil {
			return err
		}
		next := core.Change{Lease: l}
		if len(page.Rows) > 0 {
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
			return err
		}
		if change = next; len(page.Rows) == 0 {
			return nil
		}
	}
}
