package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
)

// Many connectors share one server: a connector has few connections, gives back those it does not need, and keeps its
// leases although all that read are stuck.
func TestConnectionsAreFewAndThoseForLeasesAreApart(t *testing.T) {
	app := fmt.Sprintf("few-%x", rand.Uint64())
	w := start(t, postgres.Config{DSN: services.Postgres(t)}, 1)
	cfg := w.cfg
	for name, value := range map[string]string{"application_name": app, "pool_max_conn_idle_time": "1s", "pool_health_check_period": "100ms"} {
		cfg.DSN = with(t, cfg.DSN, name, value)
	}
	src := open(t, cfg)
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), services.Postgres(t))
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	blocker, watcher := connect(), connect()
	defer blocker.Close(t.Context())
	defer watcher.Close(t.Context())
	count := func(what string) (n int) {
		t.Helper()
		if err := watcher.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 `+what, app).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	await := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(5 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not yet: %s; %d connections, %d wait", what, count(""), count(`AND wait_event_type = 'Lock'`))
			}
		}
	}

	if _, err := blocker.Exec(t.Context(), `BEGIN; LOCK TABLE `+w.cfg.Table); err != nil {
		t.Fatal(err)
	}
	var reads sync.WaitGroup
	for range 20 {
		reads.Go(func() {
			if _, err := src.Fetch(t.Context(), []core.FetchRequest{{Limit: 1}}); err != nil {
				t.Error(err)
			}
		})
	}
	await("four reads wait", func() bool { return count(`AND wait_event_type = 'Lock'`) == 4 })
	if kept, err := src.Renew(t.Context(), "one", []core.Lease{w.lease}, time.Minute); err != nil || len(kept) != 1 {
		t.Error(kept, err)
	}
	if _, err := src.Heartbeat(t.Context(), "one", nil, time.Minute); err != nil {
		t.Error(err)
	}
	if n := count(""); n > 4+3 {
		t.Errorf("%d connections", n)
	}
	if _, err := blocker.Exec(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	reads.Wait()
	await("idle connections end", func() bool { return count("") == 0 })
}
