package postgres_test

import (
	"testing"
	"time"

	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
)

// Counting stops at its bound, and not before: what is counted below it is exact, however the rows are spread.
func TestCountingStopsAtItsBound(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			cfg := postgres.Config{DSN: mode(t), Table: schemaOf(t) + ".outbox"}
			initialise(t, cfg, postgres.InitOptions{Partitions: 8})
			in(t, cfg, `INSERT INTO outbox (id, aggregateid, payload) SELECT i::text, CASE WHEN i % 5 > 0 THEN 'hot' ELSE i::text END, 'x' FROM generate_series(1, 50) i`,
				`INSERT INTO outbox (id, aggregateid, payload, state) SELECT 'sent' || i, 'hot', 'x', 'published' FROM generate_series(1, 5) i`,
				`UPDATE outbox SET available_at = now() + interval '1 hour' WHERE seq <= 10`)
			src := open(t, cfg)
			for _, c := range []struct{ after, bound, rows, due int64 }{
				{0, 1000, 50, 40}, {0, 50, 50, 40}, {20, 1000, 30, 30}, {50, 10, 0, 0},
			} {
				if rows, due, _, err := src.CountUpTo(t.Context(), c.after, c.bound); err != nil || rows != c.rows || due != c.due {
					t.Errorf("behind %d, up to %d: %d rows, %d due, %v; want %d and %d", c.after, c.bound, rows, due, err, c.rows, c.due)
				}
			}
			for _, bound := range []int64{1, 10, 30, 49} {
				if rows, _, _, err := src.CountUpTo(t.Context(), 0, bound); err != nil || rows <= bound || rows > bound+8 {
					t.Errorf("up to %d: %d rows, %v; want a few more than the bound", bound, rows, err)
				}
			}
		})
	}
}

// The rows that are counted lie side by side in the table: the first ones, and not those of the first partitions, which lie
// all over it.
func TestTheFirstRowsAreCounted(t *testing.T) {
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
	initialise(t, cfg, postgres.InitOptions{})
	in(t, cfg, insertMany(8000), `UPDATE outbox SET created_at = now() - interval '1 year' WHERE seq > 4000`)
	rows, _, oldest, err := open(t, cfg).CountUpTo(t.Context(), 0, 1000)
	if err != nil || rows <= 1000 || oldest > time.Hour {
		t.Errorf("%d rows, the oldest %v old, %v", rows, oldest, err)
	}
}
