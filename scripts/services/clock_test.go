package services_test

import (
	"context"
	"database/sql"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/connectd/connectd/scripts/services"
)

// A server's clock is as far off as was asked for, jumps in mid-run, also for connections that are open, and stays so when
// the server is killed and started again.
func TestOwnClock(t *testing.T) {
	own := services.OwnClock(t, 10*time.Minute, "postgres", "mariadb")
	if !strings.HasPrefix(own.Clock(), "libfaketime ") {
		t.Errorf("the clock is kept by %q", own.Clock())
	}
	dsn, err := mysql.ParseDSN(own.MariaDB())
	if err != nil {
		t.Fatal(err)
	}
	jump := func(to time.Duration) {
		t.Helper()
		if err := own.SetClock(to); err != nil {
			t.Fatal(err)
		}
	}
	for name, server := range map[string]struct{ driver, dsn, ask string }{
		"postgres": {"pgx", own.Postgres(), "SELECT extract(epoch FROM clock_timestamp())::float8"},
		"mariadb":  {"mysql", dsn.FormatDSN(), "SELECT unix_timestamp(now(6)) + 0.0"},
	} {
		db, err := sql.Open(server.driver, server.dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		off := func(want time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var now, took float64
			for range 5 { // a busy machine takes its time now and then
				asked := time.Now()
				if err := db.QueryRowContext(ctx, server.ask).Scan(&now); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				took = time.Since(asked).Seconds()
				now -= float64(asked.UnixMicro()) / 1e6
				if took < 0.1 {
					break
				}
			}
			if math.Abs(now-want.Seconds()) > took+0.01 {
				t.Errorf("%s: the clock is off by %.3f s, want %v", name, now, want)
			}
		}
		off(10 * time.Minute)
		jump(-90500 * time.Millisecond)
		off(-90500 * time.Millisecond)
		own.Kill(name)
		own.Start(name)
		db.SetMaxIdleConns(0) // the idle ones are of the server that was killed
		off(-90500 * time.Millisecond)
		jump(10 * time.Minute)
	}
}
