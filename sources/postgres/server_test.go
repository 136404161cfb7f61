package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connectd/connectd/scripts/services"
)

// tests are run, and then what they shared is closed.
type tests struct{ *testing.M }

func (m tests) Run() int {
	defer closeShared()
	return m.M.Run()
}

// shared are connections for whatever tests do beside what they test; a new one for each statement would take most of
// their time.
var shared struct {
	sync.Mutex
	pools map[string]*pgxpool.Pool
}

func closeShared() {
	for _, pool := range shared.pools {
		pool.Close()
	}
}

// onShared runs f with a connection to a server, whose session is as new.
func onShared(t testing.TB, dsn string, f func(ctx context.Context, conn *pgx.Conn) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	shared.Lock()
	if shared.pools == nil {
		shared.pools = map[string]*pgxpool.Pool{}
	}
	pool := shared.pools[dsn]
	if pool == nil {
		var err error
		if pool, err = pgxpool.New(context.Background(), dsn); err != nil {
			t.Fatal(err)
		}
		shared.pools[dsn] = pool
	}
	shared.Unlock()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := f(ctx, conn.Conn()); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, "DISCARD ALL"); err != nil {
		t.Fatal(err)
	}
}

// execute runs statements on the server that tests share, executeAt on any.
func execute(t testing.TB, statements ...string) {
	t.Helper()
	onShared(t, services.Postgres(t), all(statements))
}

func executeAt(t testing.TB, dsn string, statements ...string) {
	t.Helper()
	once(t, dsn, all(statements))
}

func all(statements []string) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		for _, s := range statements {
			if _, err := conn.Exec(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		return nil
	}
}

// ask reads one value from the server that tests share, askAt from any.
func ask[T any](t testing.TB, query string, args ...any) (value T) {
	t.Helper()
	onShared(t, services.Postgres(t), into(&value, query, args))
	return value
}

func askAt[T any](t testing.TB, dsn, query string, args ...any) (value T) {
	t.Helper()
	once(t, dsn, into(&value, query, args))
	return value
}

func into(value any, query string, args []any) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		if err := conn.QueryRow(ctx, query, append([]any{pgx.QueryExecModeExec}, args...)...).Scan(value); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
		return nil
	}
}

// once runs f with a connection of its own.
func once(t testing.TB, dsn string, f func(ctx context.Context, conn *pgx.Conn) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := f(ctx, conn); err != nil {
		t.Fatal(err)
	}
}
