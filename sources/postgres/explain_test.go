package postgres_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
)

// shapes are tables whose statistics tell another story than the table does.
var shapes = map[string]func(t *testing.T, cfg postgres.Config){
	"empty": func(t *testing.T, cfg postgres.Config) { in(t, cfg, `ANALYZE outbox`) },
	"analysed while empty, then filled": func(t *testing.T, cfg postgres.Config) {
		in(t, cfg, `ANALYZE outbox`, insertMany(20_000))
	},
	"vacuumed when all rows were gone, then filled": func(t *testing.T, cfg postgres.Config) {
		in(t, cfg, insertMany(20_000), `DELETE FROM outbox WHERE seq < 20000`, `VACUUM ANALYZE outbox`, `DELETE FROM outbox`, `ANALYZE outbox`, insertMany(20_000))
	},
	"analysed while all were pending, then published": func(t *testing.T, cfg postgres.Config) {
		in(t, cfg, insertMany(20_000), `ANALYZE outbox`, `UPDATE outbox SET state = 'published' WHERE seq > 50`)
	},
	"a few rows beside many published, analysed": func(t *testing.T, cfg postgres.Config) {
		in(t, cfg, insertMany(20_000), `UPDATE outbox SET state = 'published'`, insertMany(50), `VACUUM ANALYZE outbox`)
	},
}

func insertMany(n int) string {
	return fmt.Sprintf(`INSERT INTO outbox (id, aggregateid, payload) SELECT gen_random_uuid(), 'key' || i %% 100, 'x' FROM generate_series(1, %d) i`, n)
}

// The plan of a fetch and of a step is the same whatever the server believes of the table, with the arguments known and
// unknown.
func TestThePlanIsTheSameForEveryTable(t *testing.T) {
	for shape, make := range shapes {
		for _, adopted := range []bool{false, true} {
			t.Run(fmt.Sprint(shape, ", adopted ", adopted), func(t *testing.T) {
				cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
				if adopted {
					in(t, cfg, `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregateid varchar(100), payload bytea)`)
				}
				initialise(t, cfg, postgres.InitOptions{})
				make(t, cfg)
				src := open(t, cfg)
				plan, err := src.FetchPlan(t.Context(), 3)
				if err != nil {
					t.Fatal(err)
				}
				if err := src.CheckPlan(plan); err != nil {
					t.Errorf("%v:\n%s", err, plan)
				}
				for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
					conn := planner(t, cfg.DSN, mode)
					for i, text := range src.FetchTexts() {
						plan := prepared(t, conn, text, fetchArgs(i))
						if err := src.CheckPlan(plan); err != nil {
							t.Errorf("%s: %v:\n%s", mode, err, plan)
						}
					}
					for _, args := range [][]string{nil, {"'{3}'", "'{0}'", "100"}} {
						plan := prepared(t, conn, src.CountText(), args)
						if err := src.CheckPlan(plan); err != nil {
							t.Errorf("%s: the count: %v:\n%s", mode, err, plan)
						}
					}
					for _, text := range []string{src.StepText(everything()), src.RecoverText()} {
						checkStep(t, mode, prepared(t, conn, text, nil))
					}
				}
			})
		}
	}
}

// Names of the application's are in the plan as well, and say nothing about it.
func TestThePlanOfATableWithMisleadingNames(t *testing.T) {
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".Sort", Columns: columns("key", "Seq Scan", "type", "Sort Key")}
	execute(t, `CREATE TABLE `+quoted(cfg)+` (id text PRIMARY KEY, "Seq Scan" text, "Sort Key" text, payload text)`)
	initialise(t, cfg, postgres.InitOptions{})
	src := open(t, cfg)
	plan, err := src.FetchPlan(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := src.CheckPlan(plan); err != nil {
		t.Errorf("%v:\n%s", err, plan)
	}
	bad := strings.Replace(plan, "Index Scan using ", "Sort\n -> Index Scan using ", 1)
	if err := src.CheckPlan(bad); err == nil {
		t.Errorf("nothing is wrong with:\n%s", bad)
	}
}

// Behind a pooler the sessions have none of our settings.
func TestThePlanBehindAPooler(t *testing.T) {
	for shape, make := range shapes {
		if shape == "empty" {
			continue // where there is nothing to read it may be read in any way
		}
		t.Run(shape, func(t *testing.T) {
			cfg := postgres.Config{DSN: services.PgBouncer(t), Table: schemaOf(t) + ".outbox"}
			initialise(t, cfg, postgres.InitOptions{})
			make(t, cfg)
			src := open(t, cfg)
			if !postgres.Pooled(src) {
				t.Error("the pooler was not noticed")
			}
			plan, err := src.FetchPlan(t.Context(), 3)
			if err != nil {
				t.Fatal(err)
			}
			if err := src.CheckPlan(plan); err != nil {
				t.Errorf("%v:\n%s", err, plan)
			}
		})
	}
}

func everything() core.Change {
	failure := &core.Failure{Code: "x"}
	return core.Change{
		Settle: []core.Settlement{
			{Seq: 1, State: core.Published}, {Seq: 2, State: core.Dead, Failure: failure, Deliveries: core.MaxHistory}, {Seq: 3, State: core.Pending, Failure: failure},
		},
		Finished: []core.Finished{{Batch: 1}, {Batch: 2, Keep: true}},
		Announce: []core.Announcement{{Batch: 3, Seqs: []int64{4}}},
	}
}

func fetchArgs(i int) []string {
	return [][]string{
		{"'{3,5}'", "'{0,7}'", "1000000", "'{500,20}'"},
		{"'{3,5}'", "'{0,7}'", "1000000", "'{500,20}'", "'{1000000,1000}'"},
		{"'{3}'", "'{0}'", "1000000", "'{500}'", "'{1,2,3}'", "'{key1}'"},
		{"'{3,5}'", "'{0,7}'", "1000000", "'{500,20}'", "'{1,2,3}'", "'{key1}'", "'{1000000,1000}'"},
	}[i]
}

// planner connects as a source does, to a server that makes plans in this mode.
func planner(t *testing.T, dsn, mode string) *pgx.Conn {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range postgres.Settings {
		cfg.RuntimeParams[name] = value
	}
	cfg.RuntimeParams["plan_cache_mode"] = mode
	conn, err := pgx.ConnectConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// prepared is the plan of a prepared statement; nil arguments are NULLs.
func prepared(t *testing.T, conn *pgx.Conn, text string, args []string) string {
	t.Helper()
	ctx := context.Background()
	if err := conn.DeallocateAll(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, "PREPARE q AS "+text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if args == nil {
		var n int
		if err := conn.QueryRow(ctx, "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'q'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		args = strings.Split(strings.Repeat("NULL ", n), " ")[:n]
	}
	rows, err := conn.Query(ctx, "EXPLAIN (COSTS OFF) EXECUTE q("+strings.Join(args, ", ")+")")
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

var scans = regexp.MustCompile(`(\w+ )*Scan (using \S+ )?on outbox\b.*`)

// checkStep wants each row to be found by its number, and no relation joined to the outbox.
func checkStep(t *testing.T, mode, plan string) {
	t.Helper()
	if strings.Contains(plan, "Join") || strings.Contains(plan, "Nested Loop") {
		t.Errorf("%s: something is joined:\n%s", mode, plan)
	}
	for _, scan := range scans.FindAllString(plan, -1) {
		if !strings.Contains(scan, "outbox_pkey") && !strings.Contains(scan, "connectd_outbox_order") {
			t.Errorf("%s: %s:\n%s", mode, scan, plan)
		}
	}
}
