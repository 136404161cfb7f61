package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/mysql"
	"github.com/connectd/connectd/sources/sourcetest"
)

// How many producers insert beside how many relay workers, for how long.
const (
	producers   = 16
	relays      = 3
	produceTime = 2 * time.Second
)

// Producers are never aborted, and hardly kept waiting, for the relay's sake: https://github.com/rails/solid_queue/pull/240,
// https://github.com/rails/solid_queue/issues/531. They run at the server's default isolation, which locks gaps, and give up
// after a second's wait. The relay meanwhile settles in all ways, loses leases, and people change rows.
func TestProducersAreNeverAborted(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		for name, c := range map[string]struct {
			ddl     string
			deletes bool
		}{
			"kept": {}, "deleted": {deletes: true},
			"adopted, deleted": {`CREATE TABLE outbox (id varchar(64) PRIMARY KEY, aggregateid varchar(64), payload blob) ENGINE=InnoDB`, true},
		} {
			t.Run(name, func(t *testing.T) {
				cfg := srv.config(t)
				srv.execute(t, cfg, `CREATE TABLE account (id int PRIMARY KEY, n int NOT NULL) ENGINE=InnoDB`)
				for i := range producers {
					srv.execute(t, cfg, fmt.Sprintf(`INSERT INTO account VALUES (%d, 0)`, i))
				}
				if c.ddl != "" {
					srv.execute(t, cfg, c.ddl)
				}
				cfg.DeletePublished = c.deletes
				initialise(t, cfg, mysql.InitOptions{Partitions: 4})
				ctx, stop := context.WithTimeout(t.Context(), produceTime)
				defer stop()
				inserted := produce(ctx, t, cfg)
				sent := &counter{times: map[string]int{}}
				done, end := context.WithCancel(context.WithoutCancel(t.Context()))
				var wg sync.WaitGroup
				for n := range relays {
					src := source(t, cfg)
					wg.Go(func() { relay(done, t, src, fmt.Sprint("worker", n), sent) })
				}
				operator := source(t, cfg)
				wg.Go(func() { operate(done, t, operator) })
				total := inserted()
				until(t, "every row to be sent", func() bool { return sent.rows() >= total })
				end()
				wg.Wait()
				if n := sent.rows(); n != total {
					t.Errorf("%d rows were sent of %d", n, total)
				}
				t.Logf("%d rows by %d producers, none aborted; %d transactions of the relay repeated", total, producers, sent.repeated.Load())
			})
		}
	})
}

// produce inserts until ctx ends. What it returns waits for that and says how many rows there are.
func produce(ctx context.Context, t *testing.T, cfg mysql.Config) func() int {
	var wg sync.WaitGroup
	var rows atomic.Int64
	for n := range producers {
		db := open(t, withOptions(cfg.DSN, "innodb_lock_wait_timeout=1"))
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				some := 1 + rand.IntN(3)
				if err := business(db, n, i, some); err != nil {
					t.Errorf("producer %d: %v", n, err)
					return
				}
				rows.Add(int64(some))
			}
		})
	}
	return func() int {
		wg.Wait()
		return int(rows.Load())
	}
}

// business is a transaction of an application's: a fact, and rows that go with it.
func business(db *sql.DB, n, i, rows int) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.Exec(`UPDATE account SET n = n + 1 WHERE id = ?`, n); err != nil {
		return err
	}
	for r := range rows {
		_, err := tx.Exec(`INSERT INTO outbox (id, aggregateid, payload) VALUES (?, ?, 'x')`, fmt.Sprintf("%08x-%d-%d-%d", rand.Uint32(), n, i, r), fmt.Sprint("key", rand.IntN(40)))
		if err != nil {
			return err
		}
	}
	return tx.Commit()
}

type counter struct {
	mu       sync.Mutex
	times    map[string]int
	repeated atomic.Int64
}

func (c *counter) send(rows []core.Row) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range rows {
		c.times[r.Record.ID]++
	}
}

func (c *counter) rows() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.times)
}

// relay takes leases, sends and settles, and lets some leases run out with a batch announced.
func relay(ctx context.Context, t *testing.T, src *mysql.Source, owner string, sent *counter) {
	var batch int64
	for ctx.Err() == nil {
		_, err := src.Heartbeat(ctx, owner, []byte("{}"), time.Minute)
		taken, acquireErr := src.Acquire(ctx, owner, 1+rand.IntN(3), time.Second, false)
		if err = errors.Join(err, acquireErr); err != nil && ctx.Err() == nil {
			t.Errorf("%s: %v", owner, err)
			return
		}
		for _, a := range taken {
			batch++
			if err := relayPage(ctx, src, owner, a.Lease, batch, sent); err != nil && !errors.Is(err, core.ErrLeaseNotOwned) && ctx.Err() == nil {
				t.Errorf("%s: %v", owner, err)
				return
			}
		}
	}
	sent.repeated.Add(src.Repeated())
}

func relayPage(ctx context.Context, src *mysql.Source, owner string, l core.Lease, batch int64, sent *counter) error {
	page, err := sourcetest.Page(ctx, src, core.FetchRequest{Part: l.Part, Limit: 300})
	if err != nil || len(page.Rows) == 0 {
		return errors.Join(err, src.Release(ctx, owner, l))
	}
	announced := core.Announcement{Batch: batch}
	settled := core.Change{Lease: l, Finished: []core.Finished{{Batch: batch}}}
	for _, r := range page.Rows {
		announced.Seqs = append(announced.Seqs, r.Record.Seq)
		s := core.Settlement{Seq: r.Record.Seq, Deliveries: r.Deliveries, State: core.Published}
		if rand.IntN(20) == 0 {
			s.State, s.Attempts, s.Failure = core.Pending, r.Attempts+1, &core.Failure{Code: "http_500", Message: "it broke"}
		}
		if rand.IntN(100) == 0 {
			s.State, s.Failure = core.Dead, &core.Failure{Code: "http_400"}
		}
		settled.Settle = append(settled.Settle, s)
	}
	if err := src.Step(ctx, owner, []core.Change{{Lease: l, Announce: []core.Announcement{announced}}}); err != nil {
		return err
	}
	sent.send(page.Rows)
	if rand.IntN(10) == 0 {
		return nil // as if it had died
	}
	if err := src.Step(ctx, owner, []core.Change{settled}); err != nil {
		return err
	}
	_, err = src.Renew(ctx, owner, []core.Lease{l}, time.Second)
	return errors.Join(err, src.Release(ctx, owner, l))
}

// operate looks at rows and retries dead ones.
func operate(ctx context.Context, t *testing.T, src *mysql.Source) {
	for ctx.Err() == nil {
		_, err := src.Lag(ctx)
		dead, listErr := src.List(ctx, core.Filter{State: core.Dead, Limit: 5})
		err = errors.Join(err, listErr)
		for _, r := range dead {
			var state *core.StateError
			if retryErr := src.Retry(ctx, core.Act{ID: r.ID, By: "ops"}); !errors.As(retryErr, &state) && !errors.Is(retryErr, core.ErrNoRow) {
				err = errors.Join(err, retryErr)
			}
		}
		if err != nil && ctx.Err() == nil {
			t.Errorf("operator: %v", err)
			return
		}
	}
}
