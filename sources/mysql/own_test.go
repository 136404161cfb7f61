package mysql_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/memory"
	"github.com/connectd/connectd/sources/mysql"
)

// ownServer is a server that nobody else uses, so that a test may stop it or change it for everybody.
type ownServer struct {
	server
	t           *testing.T
	script, dir string
}

// onOwnServers runs a test on a server of each kind that it may break. The script of the test services starts them.
func onOwnServers(t *testing.T, run func(t *testing.T, srv ownServer)) {
	t.Helper()
	for name, variable := range map[string]string{"MySQL": "CONNECTD_TEST_MYSQL_DSN", "MariaDB": "CONNECTD_TEST_MARIADB_DSN"} {
		t.Run(name, func(t *testing.T) {
			srv := ownServer{server: server{name: name}, t: t, script: os.Getenv("CONNECTD_TEST_SERVICES_SH"), dir: t.TempDir()}
			switch {
			case srv.script != "":
			case os.Getenv("CONNECTD_TEST_SERVICES") == "1":
				t.Fatal("CONNECTD_TEST_SERVICES_SH is not set")
			default:
				t.Skip("CONNECTD_TEST_SERVICES_SH is not set: there is nothing to start a server with that may be broken")
			}
			t.Cleanup(func() { srv.do("down") })
			srv.do("up", strings.ToLower(name))
			for line := range strings.Lines(srv.do("env")) {
				if _, dsn, found := strings.Cut(line, variable+"="); found {
					srv.dsn = strings.Trim(strings.TrimSpace(dsn), "'")
				}
			}
			run(t, srv)
		})
	}
}

// do runs a command of the script.
func (srv ownServer) do(args ...string) string {
	srv.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, srv.script, args...)
	cmd.Env = append(os.Environ(), "CONNECTD_SERVICES_DIR="+srv.dir, fmt.Sprint("CONNECTD_SERVICES_OWNER=", os.Getpid()))
	var words bytes.Buffer
	cmd.Stderr = &words
	out, err := cmd.Output()
	if err != nil {
		srv.t.Fatalf("%s %q: %v\n%s", srv.script, args, err, words.String())
	}
	return string(out)
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
			"step":  func() error { return src.Step(t.Context(), "one", publish(lease, 1)) },
			"renew": func() error { _, err := src.Renew(t.Context(), "one", []core.Lease{lease}, longLease); return err },
			"fetch": func() error { _, err := src.Fetch(t.Context(), core.FetchRequest{Limit: 1}); return err },
			"open":  func() error { _, err := mysql.Open(t.Context(), cfg); return err },
		} {
			// Within a second every connection has been asked.
			until(t, "the "+what+" to be refused", func() bool {
				err := call()
				return err != nil && strings.Contains(err.Error(), "the server is read-only")
			})
		}
		writable()
		must(t, src.Step(t.Context(), "one", publish(lease, 1)))
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
			srv.do("kill", strings.ToLower(srv.name))
			srv.do("start", strings.ToLower(srv.name))
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
