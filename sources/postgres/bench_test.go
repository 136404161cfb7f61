package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
	"github.com/connectd/connectd/sources/sourcetest"
)

const (
	benchRows    = 100_000
	benchWorkers = 4
	benchBatch   = 500
)

// BenchmarkDrain reads, announces and settles a backlog in batches of 500, four partitions at a time, beside three
// things the server does in the same run with as many rows: a plain SELECT of all through the same client, an UPDATE of
// a column that no index has, and a DELETE. The ratios are the ceiling of what the engine can reach with a sink that
// costs nothing.
func BenchmarkDrain(b *testing.B) {
	for _, deletes := range []bool{true, false} {
		b.Run(fmt.Sprint("delete=", deletes), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				cfg := postgres.Config{DSN: services.Postgres(b), Table: schemaOf(b) + ".outbox", DeletePublished: deletes}
				pool := backlog(b, cfg, benchRows)
				selected := timed(b, func() { selectAll(b, pool, cfg) })
				updated := timed(b, func() { executeAll(b, pool, `UPDATE `+quoted(cfg)+` SET last_error = 'x'`) })
				executeAll(b, pool, `TRUNCATE `+quoted(cfg))
				fill(b, pool, cfg, benchRows)
				src := open(b, cfg)
				b.StartTimer()
				drained := timed(b, func() { drainAll(b, src) })
				b.StopTimer()
				b.ReportMetric(benchRows/drained.Seconds(), "rows/s")
				b.ReportMetric(selected.Seconds()/drained.Seconds(), "of-select")
				b.ReportMetric(updated.Seconds()/drained.Seconds(), "of-update")
				src.Close()
				b.StartTimer()
			}
		})
	}
}

// BenchmarkFetch reads one page again and again: what a row costs the client in memory.
func BenchmarkFetch(b *testing.B) {
	cfg := postgres.Config{DSN: services.Postgres(b), Table: schemaOf(b) + ".outbox"}
	initialise(b, cfg, postgres.InitOptions{Partitions: 1})
	pool := application(b, cfg.DSN)
	fill(b, pool, cfg, benchBatch)
	executeAll(b, pool, `UPDATE `+quoted(cfg)+` SET headers = '{"tenant": "t-1", "trace": "0123456789abcdef0123456789abcdef"}'`)
	src := open(b, cfg)
	b.ReportAllocs()
	for b.Loop() {
		if page, err := sourcetest.Page(b.Context(), src, core.FetchRequest{Limit: benchBatch}); err != nil || len(page.Rows) != benchBatch {
			b.Fatal(len(page.Rows), err)
		}
	}
}

// BenchmarkCommitOrder fetches one row again and again: in commit order, with no look at the writers spared by a fresh
// one, beside as many locks held as in the name. The row is new each time, or there would be nothing to look for.
func BenchmarkCommitOrder(b *testing.B) {
	for _, way := range []string{"direct", "pooler"} {
		for _, ordered := range []bool{false, true} {
			for _, locks := range []int{0, 1000} {
				b.Run(fmt.Sprintf("%s/ordered=%t/locks=%d", way, ordered, locks), func(b *testing.B) {
					cfg := postgres.Config{DSN: services.Postgres(b), Table: schemaOf(b) + ".outbox", CommitOrder: ordered, DeletePublished: true}
					initialise(b, cfg, postgres.InitOptions{Partitions: 1})
					pool := application(b, cfg.DSN)
					if locks > 0 {
						tx, err := pool.Begin(b.Context())
						if err != nil {
							b.Fatal(err)
						}
						defer func() { _ = tx.Rollback(context.Background()) }()
						if _, err := tx.Exec(b.Context(), fmt.Sprintf(`DO 'BEGIN FOR i IN 1..%d LOOP PERFORM pg_advisory_xact_lock(%d, i); END LOOP; END'`, locks, time.Now().UnixNano()%1e9)); err != nil {
							b.Fatal(err)
						}
					}
					if way == "pooler" {
						cfg.DSN = services.PgBouncer(b)
					}
					src := open(b, cfg)
					var took []time.Duration
					for b.Loop() {
						b.StopTimer()
						executeAll(b, pool, `INSERT INTO `+cfg.Table+` (id, payload) VALUES (gen_random_uuid(), 'x')`)
						time.Sleep(6 * time.Millisecond) // what was asked before is no longer fresh
						b.StartTimer()
						took = append(took, timed(b, func() {
							if _, err := sourcetest.Page(b.Context(), src, core.FetchRequest{Limit: 1}); err != nil {
								b.Fatal(err)
							}
						}))
					}
					slices.Sort(took)
					b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
					b.ReportMetric(float64(took[len(took)/10].Microseconds()), "p10-us")
				})
			}
		}
	}
}

func timed(b *testing.B, f func()) time.Duration {
	b.Helper()
	begun := time.Now()
	f()
	return time.Since(begun)
}

func backlog(b *testing.B, cfg postgres.Config, rows int) *pgxpool.Pool {
	b.Helper()
	initialise(b, cfg, postgres.InitOptions{})
	pool := application(b, cfg.DSN)
	executeAll(b, pool, `ANALYZE `+quoted(cfg)) // while it is empty
	fill(b, pool, cfg, rows)
	return pool
}

func fill(b *testing.B, pool *pgxpool.Pool, cfg postgres.Config, rows int) {
	b.Helper()
	executeAll(b, pool, fmt.Sprintf(`INSERT INTO %s (id, aggregateid, aggregatetype, type, payload) SELECT gen_random_uuid(), 'key-' || (i %% 10000), 'orders', 'created',
		decode(repeat(md5(i::text), 31), 'hex') FROM generate_series(1, %d) i`, quoted(cfg), rows))
}

func executeAll(b *testing.B, pool *pgxpool.Pool, statement string) {
	b.Helper()
	if _, err := pool.Exec(b.Context(), statement); err != nil {
		b.Fatalf("%s: %v", statement, err)
	}
}

func selectAll(b *testing.B, pool *pgxpool.Pool, cfg postgres.Config) {
	b.Helper()
	rows, err := pool.Query(b.Context(), `SELECT seq, id, aggregateid, aggregatetype, type, payload, headers, created_at FROM `+quoted(cfg))
	if err != nil {
		b.Fatal(err)
	}
	var seq int64
	var id, key, route, kind, headers *string
	var payload []byte
	var at time.Time
	if _, err := pgx.ForEachRow(rows, []any{&seq, &id, &key, &route, &kind, &payload, &headers, &at}, func() error { return nil }); err != nil {
		b.Fatal(err)
	}
}

func drainAll(b *testing.B, src *postgres.Source) {
	b.Helper()
	taken, err := src.Acquire(b.Context(), "me", postgres.DefaultPartitions, time.Minute, false)
	if err != nil {
		b.Fatal(err)
	}
	todo := make(chan core.Lease, len(taken))
	for _, a := range taken {
		todo <- a.Lease
	}
	close(todo)
	var wg sync.WaitGroup
	counts := make([]int, benchWorkers)
	for i := range benchWorkers {
		wg.Go(func() {
			for l := range todo {
				n, err := drainPart(b, src, l)
				if err != nil {
					b.Error(err)
					return
				}
				counts[i] += n
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	if total != benchRows {
		b.Fatalf("drained %d rows of %d", total, benchRows)
	}
}

// drainPart moves one partition's rows as the engine does: each step settles one batch and announces the next.
func drainPart(b *testing.B, src *postgres.Source, l core.Lease) (int, error) {
	change := core.Change{Lease: l}
	var after, batch int64
	for done := 0; ; {
		page, err := sourcetest.Page(b.Context(), src, core.FetchRequest{Part: l.Part, After: after, Limit: benchBatch, MaxBytes: 1 << 20})
		if err != nil {
			return done, err
		}
		done += len(change.Settle)
		next := core.Change{Lease: l}
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
			return done, err
		}
		if change = next; len(page.Rows) == 0 {
			return done, nil
		}
	}
}
