package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
)

// slow polls so seldom that only a NOTIFY can have woken a waiter.
var slow = postgres.Poll{Min: time.Hour, Max: time.Hour}

// woken waits for the waiter and says how long after committed it took.
func woken(t *testing.T, src *postgres.Source, insert func()) time.Duration {
	t.Helper()
	done := make(chan time.Time, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		if err := src.Wait(ctx); err != nil {
			t.Errorf("wait: %v", err)
		}
		done <- time.Now()
	}()
	insert()
	committed := time.Now()
	return (<-done).Sub(committed)
}

// settled takes the wake-ups that are there from before.
func settled(t *testing.T, src *postgres.Source) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err := src.Wait(ctx)
		cancel()
		if err != nil {
			return
		}
	}
}

func TestNotifyWakes(t *testing.T) {
	for kind, insert := range map[postgres.Notify]string{
		postgres.NotifyTrigger:  `INSERT INTO %s (id, payload) VALUES ('a', 'x')`,
		postgres.NotifyProducer: `WITH n AS (SELECT pg_notify('connectd.%[1]s', '')) INSERT INTO %[1]s (id, payload) SELECT 'a', 'x' FROM n`,
	} {
		t.Run(string(kind), func(t *testing.T) {
			cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox", Notify: kind, Poll: slow}
			initialise(t, cfg, postgres.InitOptions{})
			src := open(t, cfg)
			settled(t, src)
			if took := woken(t, src, func() { execute(t, fmt.Sprintf(insert, cfg.Table)) }); took > time.Second {
				t.Errorf("woken %v after the commit", took)
			}
		})
	}
}

// The listener's connection dies. It comes back, and whoever waits is woken, since rows may have come meanwhile.
// https://github.com/oban-bg/oban/commit/ee1048abb174ba154cd7aa683048c6d4b070f4fd
func TestAListenerThatIsCutComesBack(t *testing.T) {
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox", Notify: postgres.NotifyTrigger, Poll: slow}
	initialise(t, cfg, postgres.InitOptions{})
	src := open(t, cfg)
	settled(t, src)
	listeners := `SELECT count(*)::int FROM pg_stat_activity WHERE query LIKE 'LISTEN "connectd.' || $1 || '%'`
	if n := ask[int](t, listeners, cfg.Table); n != 1 {
		t.Fatalf("%d listen", n)
	}
	woken(t, src, func() {
		ask[bool](t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN "connectd.' || $1 || '%'`, cfg.Table)
	})
	until(t, "a listener", func() bool { return ask[int](t, listeners, cfg.Table) == 1 })
	settled(t, src)
	if took := woken(t, src, func() { execute(t, `INSERT INTO `+cfg.Table+` (id, payload) VALUES ('a', 'x')`) }); took > time.Second {
		t.Errorf("woken %v after the commit", took)
	}
}

// A LISTEN through a transaction pooler succeeds and hears nothing. It is said, and rows are found by polling.
// https://github.com/zoolutions/pgbus/issues/191
func TestNotifyThroughAPoolerIsNotTrusted(t *testing.T) {
	var log notes
	cfg := postgres.Config{DSN: services.PgBouncer(t), Table: schemaOf(t) + ".outbox", Notify: postgres.NotifyTrigger, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Poll: postgres.Poll{Min: 10 * time.Millisecond, Max: 50 * time.Millisecond}}
	initialise(t, cfg, postgres.InitOptions{})
	src := open(t, cfg)
	if text := log.String(); !strings.Contains(text, "polling") || !strings.Contains(text, "pooler") {
		t.Errorf("it logged %q", text)
	}
	if took := woken(t, src, func() { execute(t, `INSERT INTO `+cfg.Table+` (id, payload) VALUES ('a', 'x')`) }); took > time.Second {
		t.Errorf("woken %v after the commit", took)
	}
}

// Nobody waits, and still everything the server has to say is taken: it could not send it otherwise, and would keep its
// snapshot. https://github.com/leo91000/graphile_worker_rs/pull/456
func TestTheListenerAlwaysTakesWhatComes(t *testing.T) {
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox", Notify: postgres.NotifyTrigger, Poll: slow}
	initialise(t, cfg, postgres.InitOptions{})
	src := open(t, cfg)
	pool := application(t, cfg.DSN)
	for range 20 { // some 16 MB
		if _, err := pool.Exec(t.Context(), `SELECT pg_notify('connectd.`+cfg.Table+`', repeat('x', 7900) || i) FROM generate_series(1, 100) i`); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the listener's backend to have sent all", func() bool {
		return ask[bool](t, `SELECT coalesce(wait_event = 'ClientRead', false) FROM pg_stat_activity WHERE query LIKE 'LISTEN "connectd.' || $1 || '%'`, cfg.Table)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	wakes := 0
	for src.Wait(ctx) == nil {
		wakes++
	}
	if wakes == 0 || wakes > 45 { // one in 5ms
		t.Errorf("2,000 notifications woke %d times", wakes)
	}
}

// The pause between two looks grows while there is nothing, and is short again after something.
func TestPollingIsAdaptive(t *testing.T) {
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox", Poll: postgres.Poll{Min: 2 * time.Millisecond, Max: 5 * time.Second}}
	initialise(t, cfg, postgres.InitOptions{})
	src := open(t, cfg)
	pool := application(t, cfg.DSN)
	var slowest time.Duration
	for i := range 10 {
		took := woken(t, src, func() {
			if _, err := pool.Exec(t.Context(), `INSERT INTO `+cfg.Table+` (id, payload) SELECT $1, 'x' FROM pg_sleep(0.02)`, fmt.Sprint(i)); err != nil {
				t.Error(err)
			}
		})
		slowest = max(slowest, took)
	}
	if slowest > 2*time.Second {
		t.Errorf("woken %v after a commit", slowest)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := src.Wait(ctx); err == nil {
		t.Error("woken for nothing")
	}
}

// notes is a log that is read while it is written.
type notes struct {
	mu   sync.Mutex
	text strings.Builder
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}
