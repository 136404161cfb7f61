package postgres_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
)

// While a session holds an old snapshot nothing that is deleted can be vacuumed. What a fetch reads past its cursor does
// not grow with that, though it would from the beginning of the table.
// (https://github.com/que-rb/que/issues/297, https://github.com/NikolayS/PgQue/issues/61)
func TestAFetchBesideAHeldSnapshot(t *testing.T) {
	const each, rounds = 2_000, 5
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
	initialise(t, cfg, postgres.InitOptions{Partitions: 1})
	src := open(t, cfg)
	begin(t, cfg.DSN, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`, `SELECT count(*) FROM `+cfg.Table)
	conn := planner(t, cfg.DSN, "force_custom_plan")
	if _, err := conn.Exec(t.Context(), "PREPARE q AS "+src.FetchTexts()[0]); err != nil {
		t.Fatal(err)
	}
	var first, last, all int
	for round := range rounds {
		in(t, cfg, `DELETE FROM outbox`, insertMany(each))
		last = pagesOf(t, conn, round*each)
		all = pagesOf(t, conn, 0)
		if round == 0 {
			first = last
		}
	}
	if last > first+20 {
		t.Errorf("a fetch has touched %d pages at last, and %d at first", last, first)
	}
	if all < last+60 {
		t.Errorf("from the beginning it touches %d pages, and %d past the cursor: the snapshot holds nothing", all, last)
	}
	t.Logf("%d pages at first, %d at last, %d from the beginning", first, last, all)
}

var buffers = regexp.MustCompile(`Buffers: shared hit=(\d+)(?: read=(\d+))?`)

// pagesOf is how many pages a fetch of 100 rows past the cursor touches.
func pagesOf(t *testing.T, conn *pgx.Conn, cursor int) int {
	t.Helper()
	rows, err := conn.Query(context.Background(), fmt.Sprintf(`EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) EXECUTE q('{0}', '{%d}', 1000000, '{100}')`, cursor))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if found := buffers.FindStringSubmatch(line); found != nil {
			hit, _ := strconv.Atoi(found[1])
			read, _ := strconv.Atoi(found[2])
			return hit + read
		}
	}
	t.Fatalf("the plan has no buffers: %q", lines)
	return 0
}
