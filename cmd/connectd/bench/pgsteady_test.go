//go:build linux

package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// insertSomeOf inserts rows numbered from the first to the last, with keys as in the backlogs and payloads of that size.
func insertSomeOf(bytes int) string {
	return fmt.Sprintf(`INSERT INTO outbox (id, aggregateid, aggregatetype, type, payload)
	SELECT '0198f0c2-5b1e-7000-8000-' || lpad(i::text, 12, '0'), 'customer-' || lpad(floor(random() * 10000)::text, 5, '0'), 'orders', 'OrderPlaced',
		convert_to('{"order":' || 100000000 + i || ',"text":"' || repeat('0', %d) || '"}', 'UTF8') FROM generate_series($1::bigint, $2::bigint) i`, bytes-29)
}

// insertRow inserts one row.
const insertRow = `INSERT INTO outbox (id, aggregateid, aggregatetype, type, payload) VALUES ($1, $2, 'orders', 'OrderPlaced', $3)`

// benchmarkPostgresWAL sets the log that the relay writes against that of the transactions that inserted the rows. There is
// no checkpoint in it and all pages are new, so there are next to no images of whole pages; and no vacuum.
func benchmarkPostgresWAL(b *testing.B, p programs, s *server, r *report) {
	const rows, each = 50_000, 100
	for b.Loop() {
		d := s.newDatabase(b, "")
		d.run(b, `CHECKPOINT`)
		setup := d.setup(b, p, "", nullSinkYAML, rowsDeleted)
		setup.init(b)
		d.run(b, `ALTER TABLE outbox SET (autovacuum_enabled = off)`)
		begin, images := d.written(b)
		for first := 1; first <= rows; first += each {
			if _, err := d.db.ExecContext(b.Context(), insertSomeOf(payloadBytes), first, first+each-1); err != nil {
				b.Fatal(err)
			}
		}
		inserted, _ := d.written(b)
		run := setup.run(b)
		untilWithin(b, long(rows), "all rows are published", 100*time.Millisecond, func() bool {
			run.await(connectorRuns, 0)
			return setup.metric(b, publishedMetric) >= rows
		})
		run.stop()
		relayed, imagesAfter := d.written(b)
		d.check(b, rows, 0, true)
		r.add("PostgreSQL relay's WAL / the inserters', rows deleted", "", "", atMost(0.12), (relayed-inserted)/(inserted-begin))
		r.add("  the relay's", "WAL", "B/row", goal{}, (relayed-inserted)/rows)
		r.add("  the inserters'", "WAL", "B/row", goal{}, (inserted-begin)/rows)
		r.add("  images of whole pages in both", "WAL", "", goal{}, imagesAfter-images)
		d.drop(b)
	}
}

// written is how many bytes the server's log has had, and how many images of pages.
func (d *database) written(b *testing.B) (bytes, images float64) {
	d.query(b, `SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn`, &bytes)
	if d.has(b, 14) {
		d.query(b, `SELECT wal_fpi FROM pg_stat_wal`, &images)
	}
	return bytes, images
}

const (
	publishedMetric = `connectd_settled_rows_total{connector="bench",state="published"}`
	readBuckets     = `connectd_read_duration_seconds_bucket{connector="bench",le=`
)

// benchmarkPostgresSnapshot holds a snapshot, so that nothing that is deleted can be vacuumed, while rows come for forty
// seconds, and compares the reads at the end with those at the beginning. It does so in the first round only.
func benchmarkPostgresSnapshot(b *testing.B, p programs, s *server, r *report) {
	const rows, rate, each, inserters, parts = 240_000, 6_000, 20, 2, 5
	once(b, func() {
		d := s.newDatabase(b, "")
		setup := d.setup(b, p, "", fileSinkYAML, rowsDeleted)
		setup.init(b)
		defer holdSnapshot(b, d)()
		run := setup.run(b)
		run.await(connectorRuns, 0)
		began := time.Now()
		committed, inserted := d.insertPaced(b, rows, rate, each, inserters)
		reads := []map[string]float64{setup.metrics(b, readBuckets)}
		for n := range parts {
			untilWithin(b, long(rows)+rows/rate*time.Second, "rows come", 10*time.Millisecond, func() bool { return committed.Load() >= int64(rows*(n+1)/parts) })
			reads = append(reads, setup.metrics(b, readBuckets))
		}
		out, took := setup.metric(b, publishedMetric), time.Since(began)
		if err := <-inserted; err != nil {
			b.Fatal(err)
		}
		first, last := quantile(b, reads[0], reads[1]), quantile(b, reads[parts-1], reads[parts])
		const name = "PostgreSQL, 240k rows beside a held snapshot: fetch p50, last fifth / first"
		r.add(name, "", "", atMost(2), last/first)
		r.add("  in the first fifth", name, "ms", goal{}, first*1000)
		r.add("  in the last fifth", name, "ms", goal{}, last*1000)
		r.add("  rows in", name, "rows/s", goal{}, rows/took.Seconds())
		r.add("PostgreSQL, 240k rows beside a held snapshot: rows out / in", "", "", atLeast(0.99), out/rows)
		untilWithin(b, long(rows), "all rows are published", 100*time.Millisecond, func() bool { return setup.metric(b, publishedMetric) >= rows })
		run.stop()
		d.check(b, rows, 0, true)
	})
}

// holdSnapshot begins a transaction that sees the table as it is now, until it is released.
func holdSnapshot(b *testing.B, d *database) (release func()) {
	tx, err := d.db.BeginTx(b.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		b.Fatal(err)
	}
	var n int
	if err := tx.QueryRow(`SELECT count(*) FROM outbox`).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return func() { _ = tx.Rollback() }
}

// insertPaced commits rows at a rate, some in each transaction, from several connections. It counts those committed, and
// tells when all are.
func (d *database) insertPaced(b *testing.B, rows, rate, each, connections int) (*atomic.Int64, <-chan error) {
	insert := insertSomeOf(payloadBytes)
	var committed, next atomic.Int64
	failed := make(chan error, connections)
	began := time.Now()
	for range connections {
		go func() {
			for {
				last := next.Add(int64(each))
				if last > int64(rows) {
					failed <- nil
					return
				}
				time.Sleep(time.Until(began.Add(time.Duration(last) * time.Second / time.Duration(rate))))
				if _, err := d.db.ExecContext(b.Context(), insert, last-int64(each)+1, last); err != nil {
					failed <- err
					return
				}
				committed.Add(int64(each))
			}
		}()
	}
	all := make(chan error, 1)
	go func() {
		var errs []error
		for range connections {
			errs = append(errs, <-failed)
		}
		all <- errors.Join(errs...)
	}()
	return &committed, all
}

// quantile is the median of what a histogram of Prometheus got between two looks at its buckets, in its unit; within a
// bucket it is taken to be spread evenly.
func quantile(b *testing.B, before, after map[string]float64) float64 {
	counts := map[float64]float64{}
	for name, n := range after {
		_, text, _ := strings.Cut(name, `le="`)
		bound, err := strconv.ParseFloat(strings.TrimSuffix(text, `"}`), 64)
		if err != nil {
			b.Fatal(err)
		}
		counts[bound] = n - before[name]
	}
	bounds := slices.Sorted(maps.Keys(counts))
	half := counts[bounds[len(bounds)-1]] / 2
	lower, below := 0.0, 0.0
	for _, bound := range bounds {
		if n := counts[bound]; n >= half && n > below {
			return lower + (bound-lower)*(half-below)/(n-below)
		}
		lower, below = bound, counts[bound]
	}
	b.Fatal("the histogram got nothing")
	return 0
}

// benchmarkPostgresProducers lets producers commit single rows as fast as they can, and then half as fast beside the relay.
func benchmarkPostgresProducers(b *testing.B, p programs, s *server, r *report) {
	const connections, period = 4, 5 * time.Second
	for b.Loop() {
		d := s.newDatabase(b, "")
		setup := d.setup(b, p, "", fileSinkYAML, rowsDeleted)
		setup.init(b)
		most := produce(b, d.db, insertRow, connections, period, 0).rate
		d.run(b, `TRUNCATE outbox`) // before any daemon has seen it
		alone := produce(b, d.db, insertRow, connections, period, most/2)
		d.run(b, `TRUNCATE outbox`)
		run := setup.run(b)
		run.await(connectorRuns, 0)
		beside := produce(b, d.db, insertRow, connections, period, most/2)
		out := setup.metric(b, publishedMetric)
		rows := beside.rows
		untilWithin(b, patience, "all rows are published", 50*time.Millisecond, func() bool { return setup.metric(b, publishedMetric) >= float64(rows) })
		run.stop()
		d.drop(b)
		const name = "PostgreSQL producers at half their own most, beside the relay / that half"
		r.add(name, "", "", atLeast(0.95), beside.rate/(most/2))
		r.add("  their own most, alone", name, "rows/s", goal{}, most)
		r.add("  half of it without the relay / that half", name, "", goal{}, alone.rate/(most/2))
		r.add("  an insert's p50 without the relay", name, "ms", goal{}, milliseconds(alone.p50))
		r.add("  an insert's p50 beside it", name, "ms", goal{}, milliseconds(beside.p50))
		r.add("  rows out when they end / in", name, "", goal{}, out/float64(rows))
	}
}

// produced is what producers did: rows a second, and how long an insert took.
type produced struct {
	rows int
	rate float64
	p50  time.Duration
}

// produce commits single rows, each in a transaction of its own, from several connections for so long; at a rate, in rows a
// second, or with 0 as fast as they go. A producer that is late does not wait until it is in time again.
func produce(b *testing.B, db *sql.DB, insert string, connections int, long time.Duration, rate float64) produced {
	var mu sync.Mutex
	var all []time.Duration
	var next atomic.Int64
	began := time.Now()
	ctx, cancel := context.WithTimeout(b.Context(), long)
	defer cancel()
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() {
			var mine []time.Duration
			conn, err := db.Conn(b.Context())
			if err != nil {
				b.Error(err)
				return
			}
			defer conn.Close()
			for ctx.Err() == nil {
				n := next.Add(1)
				if rate > 0 {
					time.Sleep(time.Until(began.Add(time.Duration(float64(n) / rate * float64(time.Second)))))
				}
				from := time.Now()
				if _, err := conn.ExecContext(b.Context(), insert, rowID(int(n)), fmt.Sprintf("customer-%05d", n%10_000), payload()); err != nil {
					b.Error(err)
					return
				}
				mine = append(mine, time.Since(from))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
		})
	}
	wg.Wait()
	took := time.Since(began)
	if len(all) == 0 {
		b.Fatal("nothing was inserted")
	}
	slices.Sort(all)
	return produced{len(all), float64(len(all)) / took.Seconds(), all[len(all)/2]}
}
