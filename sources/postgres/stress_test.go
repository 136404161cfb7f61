package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
)

// Looking again and again without a pause, with small batches, under many writers of which some roll back, skips no row
// and doubles none: https://github.com/ThreeDotsLabs/watermill-sql/pull/23
func TestManyWritersAndNoPause(t *testing.T) {
	cfg := postgres.Config{
		DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox",
		Poll: postgres.Poll{Min: time.Millisecond, Max: time.Millisecond},
	}
	initialise(t, cfg, postgres.InitOptions{Partitions: 2})
	sink := memory.NewSink()
	stop := run(t, cfg, 2, sink, func(p *engine.Policy) {
		p.MaxRecords, p.PollMin, p.PollMax = 3, time.Millisecond, time.Millisecond
	})
	pool := application(t, cfg.DSN)
	const writers, each = 12, 60
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			for i := range each {
				if err := insertOnce(pool, cfg.Table, fmt.Sprint(n, "-", i), i%5 == 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	until(t, "all to arrive", func() bool { return len(sink.Delivered()) >= writers*each })
	stop()
	times := map[string]int{}
	for _, r := range sink.Delivered() {
		times[r.ID]++
	}
	for id, n := range times {
		if n > 1 {
			t.Errorf("%s was sent %d times", id, n)
		}
	}
	if len(times) != writers*each {
		t.Errorf("%d rows of %d arrived", len(times), writers*each)
	}
}

// insertOnce commits a row, after one of the same id that is rolled back if so told.
func insertOnce(pool *pgxpool.Pool, table, id string, undone bool) error {
	ctx, commits := context.Background(), []bool{true}
	if undone {
		commits = []bool{false, true}
	}
	for _, commit := range commits {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO `+table+` (id, payload) VALUES ($1, 'x')`, id); err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(ctx); err != nil {
			return err
		}
	}
	return nil
}
