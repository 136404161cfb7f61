package mysql_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/memory"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/mysql"
	"github.com/connectd/connectd/sources/sourcetest"
)

// ownServer is a server that nobody else uses, so that a test may stop it or change it for everybody.
type ownServer struct {
	server
	own *services.Servers
}

// onOwnServers runs a test on a server of each kind that it may break.
func onOwnServers(t *testing.T, run func(t *testing.T, srv ownServer)) {
	t.Helper()
	t.Run("MySQL", func(t *testing.T) {
		own := services.Own(t, "mysql")
		run(t, ownServer{server{"MySQL", own.MySQL()}, own})
	})
	t.Run("MariaDB", func(t *testing.T) {
		own := services.Own(t, "mariadb")
		run(t, ownServer{server{"MariaDB", own.MariaDB()}, own})
	})
}

// After a failover the old primary answers for a long time. Its connections are dropped, and what it has is not read.
func TestAReadOnlyServerIsLeft(t *testing.T) {
	onOwnServers(t, func(t *testing.T, srv ownServer) {
		admin := srv.config(t)
		cfg := srv.user(t, admin, "ALL")
		initialise(t, cfg, mysql.InitOptions{Partitions: 1})
		srv.execute(t, cfg, `INSERT INTO outbox (id, payload) VALUES ('a', 'x')`)
		src := source(t, cfg)
		lease := acquired(t, src, "one")[0]
		pendingRows(t, src) // from a connection that will still be there
		srv.execute(t, admin, `SET GLOBAL read_only = ON`)
		writable := func() { srv.execute(t, admin, `SET GLOBAL read_only = OFF`) }
		defer writable()
		for what, call := range map[string]func() error{
			"step":  func() error { return src.Step(t.Context(), "one", []core.Change{publish(lease, 1)}) },
			"renew": func() error { _, err := src.Renew(t.Context(), "one", []core.Lease{lease}, longLease); return err },
			"fetch": func() error { _, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 1}); return err },
			"open":  func() error { _, err := mysql.Open(t.Context(), cfg); return err },
		} {
			// Within a second every connection has been asked.
			until(t, "the "+what+" to be refused", func() bool {
				err := call()
				return err != nil && strings.Contains(err.Error(), "the server is read-only")
			})
		}
		writable()
		must(t, src.Step(t.Context(), "one", []core.Change{publish(lease, 1)}))
		if rows := pendingRows(t, src); len(rows) != 0 {
			t.Errorf("%d rows are pending", len(rows))
		}
	})
}

// A server that crashes, again and again, in the middle of everything: two workers of the real engine lose nothing, keep
// each key's order, and mark what comes twice.
func TestAServerThatCrashes(t *testing.T) {
	onOwnServers(t, func(t *testing.T, srv ownServer) {
		cfg := srv.config(t)
		initialise(t, cfg, mysql.InitOptions{Partitions: 4})
		const total = 12_000
		var rows strings.Builder
		for i := range total {
			fmt.Fprintf(&rows, "%c('row%d', 'key%d', 'x')", " ,"[min(i, 1)], i, i%50)
		}
		srv.execute(t, cfg, `INSERT INTO outbox (id, aggregateid, payload) VALUES`+rows.String())
		sink := memory.NewSink()
		sink.Before(memory.Delay(15 * time.Millisecond))
		work, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		var workers sync.WaitGroup
		for range 2 {
			c := connector(source(t, cfg), sink)
			workers.Go(func() {
				if err := c.Run(work); err != nil {
					t.Error(err)
				}
			})
		}
		for n := 1; n <= 3; n++ {
			until(t, "the next quarter of the rows to arrive", func() bool { return len(sink.Delivered()) >= n*total/4 })
			srv.own.Kill(strings.ToLower(srv.name))
			srv.own.Start(strings.ToLower(srv.name))
		}
		seen := map[string]bool{}
		until(t, "every row to arrive", func() bool {
			for _, r := range sink.Delivered() {
				seen[r.ID] = true
			}
			return len(seen) >= total
		})
		stop()
		workers.Wait()
		checkDeliveries(t, sink, total)
	})
}
