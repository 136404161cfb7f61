package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
)

// run starts n workers on a table, which all send to one sink, and returns how to stop them in good order.
func run(t *testing.T, cfg postgres.Config, n int, sink core.Sink, more func(*engine.Policy)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range n {
		policy := engine.DefaultPolicy()
		policy.Lease, policy.MaxRecords = 3*time.Second, 50
		if more != nil {
			more(&policy)
		}
		c := &engine.Connector{
			Name: "c", Source: open(t, cfg), Sink: sink, Policy: policy, Owner: fmt.Sprint("worker", i), Gate: engine.NewGate(), Log: slog.New(slog.DiscardHandler),
		}
		wg.Go(func() {
			if err := c.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// producers insert rows of a few keys each, one after the other of a key, until ctx is done; whatever fails is tried
// again. They return how many rows of each key were committed, at least: an insert of unknown outcome is taken for
// none.
func producers(ctx context.Context, t *testing.T, pool *pgxpool.Pool, cfg postgres.Config, n int) map[string]int {
	var mu sync.Mutex
	counts := map[string]int{}
	var wg sync.WaitGroup
	for p := range n {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key := fmt.Sprintf("key-%d-%d", p, i%5)
				mu.Lock()
				next := counts[key]
				mu.Unlock()
				// The id says the place in its key; one that is there already was committed after all.
				_, err := pool.Exec(context.Background(), `INSERT INTO `+cfg.Table+` (id, aggregateid, payload) VALUES ($1, $2, 'x') ON CONFLICT (id) DO NOTHING`, fmt.Sprintf("%s-%06d", key, next), key)
				if err != nil {
					time.Sleep(20 * time.Millisecond)
					continue
				}
				mu.Lock()
				counts[key]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return counts
}

// audit wants every committed row to have arrived, each key's first arrivals in order, and repeats marked.
func audit(t *testing.T, sink *memory.Sink, counts map[string]int) (repeats int) {
	t.Helper()
	next, seen := map[string]int{}, map[string]bool{}
	for _, a := range sink.Arrivals() {
		r := a.Record
		if a.Outcome.Kind != core.Delivered {
			continue
		}
		if seen[r.ID] {
			repeats++
			if !r.PossibleDuplicate() {
				t.Errorf("%s came again without the mark", r.ID)
			}
			continue
		}
		seen[r.ID] = true
		if want := fmt.Sprintf("%s-%06d", r.Key, next[r.Key]); r.ID != want {
			t.Fatalf("%s came before %s", r.ID, want)
		}
		next[r.Key]++
	}
	for key, n := range counts {
		if next[key] != n {
			t.Errorf("of %s %d rows were committed and %d arrived", key, n, next[key])
		}
	}
	return repeats
}

// The server crashes and comes back, again and again, under producers and three workers. No loop ends, nothing is lost,
// and each key keeps its order.
func TestTheServerCrashesAndComesBack(t *testing.T) {
	own := services.Own(t, "postgres")
	cfg := postgres.Config{DSN: own.Postgres(), Table: "public.outbox", Notify: postgres.NotifyTrigger}
	initialise(t, cfg, postgres.InitOptions{Partitions: 6})
	sink := memory.NewSink()
	stop := run(t, cfg, 3, sink, nil)
	pool := application(t, own.Postgres())
	ctx, end := context.WithCancel(t.Context())
	var counts map[string]int
	var wg sync.WaitGroup
	wg.Go(func() { counts = producers(ctx, t, pool, cfg, 3) })
	for _, crash := range []func(string){own.Kill, own.Stop, own.Kill} {
		before := len(sink.Delivered())
		until(t, "records to arrive", func() bool { return len(sink.Delivered()) > before+50 })
		crash("postgres")
		own.Start("postgres")
	}
	before := len(sink.Delivered())
	until(t, "records to arrive again", func() bool { return len(sink.Delivered()) > before+50 })
	end()
	wg.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	until(t, "all to be published", func() bool {
		return askAt[int](t, own.Postgres(), `SELECT count(*)::int FROM outbox WHERE state = 'published'`) == total
	})
	stop()
	t.Logf("%d records, %d repeats", total, audit(t, sink, counts))
}

// Workers come and go, behind a pooler and not, while rows are inserted and deleted when published.
func TestWorkersComeAndGo(t *testing.T) {
	for mode, dsn := range map[string]string{"direct": services.Postgres(t), "pooler": services.PgBouncer(t)} {
		t.Run(mode, func(t *testing.T) {
			cfg := postgres.Config{DSN: dsn, Table: schemaOf(t) + ".outbox", DeletePublished: true}
			initialise(t, cfg, postgres.InitOptions{Partitions: 8})
			sink := memory.NewSink()
			pool := application(t, services.Postgres(t))
			ctx, end := context.WithCancel(t.Context())
			var counts map[string]int
			var wg sync.WaitGroup
			wg.Go(func() { counts = producers(ctx, t, pool, cfg, 3) })
			stopFirst := run(t, cfg, 1, sink, nil)
			reach := func(n int) {
				t.Helper()
				before := len(sink.Delivered())
				until(t, "records to arrive", func() bool { return len(sink.Delivered()) > before+n })
			}
			reach(200)
			stop := run(t, cfg, 2, sink, nil)
			reach(200)
			stopFirst()
			reach(200)
			end()
			wg.Wait()
			until(t, "the table to be empty", func() bool { return ask[int](t, `SELECT count(*)::int FROM `+cfg.Table) == 0 })
			stop()
			if n := audit(t, sink, counts); n > 0 {
				t.Errorf("%d repeats although nothing failed", n)
			}
			total := 0
			for _, n := range counts {
				total += n
			}
			schema, _, _ := strings.Cut(cfg.Table, ".")
			if n := ask[int](t, `SELECT coalesce(sum(count), 0)::int FROM `+schema+`.connectd_ledger`); n != total {
				t.Errorf("the ledger has %d rows of %d", n, total)
			}
		})
	}
}

// Transactions overlap and commit out of order, some long after they took their numbers; a snapshot is held all the
// time. Every row arrives, and soon.
// Reading past the last number seen loses the row of a lower one: https://github.com/ThreeDotsLabs/watermill/issues/311
func TestRowsThatCommitLateAreFound(t *testing.T) {
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
	initialise(t, cfg, postgres.InitOptions{Partitions: 4})
	begin(t, cfg.DSN, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`, `SELECT 1`)
	sink := memory.NewSink()
	stop := run(t, cfg, 2, sink, nil)
	pool := application(t, cfg.DSN)
	var wg sync.WaitGroup
	const each = 60
	for p := range 4 {
		wg.Go(func() {
			for i := range each {
				tx, err := pool.Begin(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				_, err = tx.Exec(context.Background(), `INSERT INTO `+cfg.Table+` (id, payload) VALUES ($1, 'x')`, fmt.Sprint(p, "-", i))
				if err == nil && i%7 == p {
					time.Sleep(150 * time.Millisecond)
				}
				if err == nil {
					err = tx.Commit(context.Background())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	until(t, "all to arrive", func() bool { return len(sink.Delivered()) == 4*each })
	stop()
}
