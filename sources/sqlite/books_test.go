package sqlite_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/sourcetest"
	"github.com/connectd/connectd/sources/sqlite"
)

// withBooks gives the suite what it reads of the relay's tables beside the source.
func withBooks(db *sql.DB, cfg sqlite.Config, t sourcetest.Table) sourcetest.Table {
	table := cfg.Table
	t.Ledger = func(t *testing.T) map[core.State]int {
		t.Helper()
		rows, err := db.Query(`SELECT state, sum(count) FROM connectd_ledger WHERE tbl = ? GROUP BY state`, table)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		counts := map[core.State]int{}
		for rows.Next() {
			var state core.State
			var n int
			if err := rows.Scan(&state, &n); err != nil {
				t.Fatal(err)
			}
			counts[state] = n
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return counts
	}
	t.Lines = func(t *testing.T) (n int) {
		t.Helper()
		if err := db.QueryRow(`SELECT (SELECT count(*) FROM connectd_attempt WHERE tbl = ?) + (SELECT count(*) FROM connectd_revision WHERE tbl = ?)`, table, table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	t.AgeReceipts = func(t *testing.T, d time.Duration) {
		t.Helper()
		if _, err := db.Exec(`UPDATE connectd_receipt SET at = at - ?`, d.Milliseconds()); err != nil {
			t.Fatal(err)
		}
	}
	t.Vandal = vandal(db, cfg)
	return t
}
