package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/connectd/connectd/core"
)

func (o *appTable) ledger(t *testing.T) map[core.State]int {
	t.Helper()
	counts := map[core.State]int{}
	rows, err := o.pool.Query(context.Background(), `SELECT state, sum(count)::int FROM `+o.schema+`.connectd_ledger WHERE tbl = $1 GROUP BY state`, o.name)
	if err == nil {
		var state core.State
		var n int
		_, err = pgx.ForEachRow(rows, []any{&state, &n}, func() error {
			counts[state] = n
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

func (o *appTable) lines(t *testing.T) (n int) {
	t.Helper()
	if err := o.pool.QueryRow(context.Background(), `SELECT (SELECT count(*) FROM `+o.schema+`.connectd_attempt WHERE tbl = $1) + (SELECT count(*) FROM `+o.schema+`.connectd_revision WHERE tbl = $1)`, o.name).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (o *appTable) ageReceipts(t *testing.T, d time.Duration) {
	t.Helper()
	if _, err := o.pool.Exec(context.Background(), `UPDATE `+o.schema+`.connectd_receipt SET at = at - $1::interval`, d); err != nil {
		t.Fatal(err)
	}
}
