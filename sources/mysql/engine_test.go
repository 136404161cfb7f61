package mysql_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
	"github.com/connectd/connectd/sources/mysql"
)

// Two workers of the real engine share a table whose applications' transactions overlap, and now and then lose their
// server: nothing is lost, each key's records come in order, and what comes twice is marked.
func TestTheEngineOnANetworkThatIsCut(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.config(t)
		initialise(t, cfg, mysql.InitOptions{Partitions: 4})
		sink := memory.NewSink()
		work, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		var workers sync.WaitGroup
		var proxies []*proxy
		for range 2 {
			through, p := behindProxy(t, cfg)
			proxies = append(proxies, p)
			c := connector(source(t, through), sink)
			workers.Go(func() {
				if err := c.Run(work); err != nil {
					t.Error(err)
				}
			})
		}
		inserting, enough := context.WithTimeout(t.Context(), 4*time.Second)
		defer enough()
		inserted := insertKeys(inserting, t, cfg)
		for inserting.Err() == nil {
			p := proxies[rand.IntN(2)]
			wait(inserting, 200*time.Millisecond)
			p.away()
			wait(inserting, time.Duration(rand.IntN(150))*time.Millisecond)
			p.back()
		}
		total := inserted()
		seen := map[string]int64{}
		until(t, "every row to arrive", func() bool {
			for _, r := range sink.Delivered() {
				seen[r.ID] = r.Seq
			}
			return len(seen) >= total
		})
		stop()
		workers.Wait()
		checkDeliveries(t, sink, total)
	})
}

func connector(src core.Source, sink core.Sink) *engine.Connector {
	policy := engine.DefaultPolicy()
	policy.Lease, policy.PollMin, policy.PollMax = 2*time.Second, 5*time.Millisecond, 20*time.Millisecond
	policy.MaxRecords, policy.Timeout, policy.Drain = 20, 5*time.Second, 5*time.Second
	return &engine.Connector{
		Name: "test", Source: src, Sink: sink, Policy: policy, Owner: engine.NewOwner(), Gate: engine.NewGate(), Log: slog.New(slog.DiscardHandler),
	}
}

// insertKeys runs applications, each with keys of its own, whose transactions are open for different times.
func insertKeys(ctx context.Context, t *testing.T, cfg mysql.Config) func() int {
	var wg sync.WaitGroup
	rows := make([]int, 6)
	for n := range rows {
		db := open(t, cfg.DSN)
		wg.Go(func() {
			for ctx.Err() == nil {
				tx, err := db.Begin()
				if err != nil {
					t.Error(err)
					return
				}
				some := 1 + rand.IntN(4)
				for r := range some {
					_, err := tx.Exec(`INSERT INTO outbox (id, aggregateid, payload) VALUES (?, ?, 'x')`, fmt.Sprintf("%d-%d", n, rows[n]+r), fmt.Sprintf("key%d-%d", n, rand.IntN(3)))
					if err != nil {
						t.Error(err)
					}
					wait(context.Background(), time.Duration(rand.IntN(10))*time.Millisecond)
				}
				if err := tx.Commit(); err != nil {
					t.Error(err)
				}
				rows[n] += some
			}
		})
	}
	return func() int {
		wg.Wait()
		total := 0
		for _, n := range rows {
			total += n
		}
		return total
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func checkDeliveries(t *testing.T, sink *memory.Sink, total int) {
	t.Helper()
	for _, v := range sink.Violations() {
		t.Error(v)
	}
	first := map[string]bool{}
	last := map[string]int64{}
	repeated := 0
	for _, r := range sink.Delivered() {
		if first[r.ID] {
			repeated++
			if !r.PossibleDuplicate() {
				t.Errorf("row %s came again without the mark", r.ID)
			}
			continue
		}
		first[r.ID] = true
		if r.Seq < last[r.Key] {
			t.Errorf("row %d of key %s came after row %d", r.Seq, r.Key, last[r.Key])
		}
		last[r.Key] = r.Seq
	}
	if len(first) != total {
		t.Errorf("%d rows arrived of %d", len(first), total)
	}
	t.Logf("%d rows, %d of them came again", total, repeated)
}
