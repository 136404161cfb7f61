package sqlite_test

import (
	"database/sql"
	"strings"
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

// SQLite keeps bytes in a column of text, where they are another value: such a receipt would be of no row for ever.
func TestAReceiptInBytesIsRefused(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	initialise(t, cfg)
	_, err := application(t, cfg.Path).Exec(`INSERT INTO connectd_receipt (command_id) VALUES (?)`, []byte("cmd-1"))
	if err == nil || !strings.Contains(err.Error(), "a receipt is text, not bytes") {
		t.Errorf("the error is %v", err)
	}
}

func TestAReceiptOfAnotherStatusIsRefused(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	initialise(t, cfg)
	db := application(t, cfg.Path)
	for status, fits := range map[string]bool{"done": true, "failed": true, "started": true, "DONE": false, "done ": false, "completed": false, "": false} {
		_, err := db.Exec(`INSERT INTO connectd_receipt (command_id, status) VALUES (?, ?)`, "cmd of "+status, status)
		if fits != (err == nil) || err != nil && !strings.Contains(err.Error(), "a receipt is done, failed or started") {
			t.Errorf("%q: the error is %v", status, err)
		}
	}
}

// A trigger of the application's that keeps a row keeps it in the books too.
func TestARowThatATriggerKeepsIsNotCleaned(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	initialise(t, cfg)
	execute(t, cfg.Path, `CREATE TRIGGER stay BEFORE DELETE ON outbox WHEN OLD.id = 'a' BEGIN SELECT RAISE(IGNORE); END`,
		`INSERT INTO outbox (id, state, published_at) VALUES ('a', 'published', 1), (CAST(x'ff41' AS TEXT), 'published', 1), ('c', 'published', 1)`,
		`INSERT INTO connectd_receipt (command_id) VALUES ('a'), (CAST(x'ff41' AS TEXT))`)
	src := open(t, cfg)
	if _, err := src.Acquire(t.Context(), "one", 1, time.Hour, false); err != nil {
		t.Fatal(err)
	}
	c, err := src.Clean(t.Context(), core.CleanRequest{Owner: "one", Limit: 10})
	if err != nil || c.Removed[core.Published] != 2 || c.Left != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	var known string
	if err := application(t, cfg.Path).QueryRow(`SELECT group_concat(hex(command_id)) FROM connectd_cleaned`).Scan(&known); err != nil || known != "FF41" {
		t.Errorf("the ids that are known as cleaned are %s, %v", known, err)
	}
	var counted int
	if err := application(t, cfg.Path).QueryRow(`SELECT sum(count) FROM connectd_ledger`).Scan(&counted); err != nil || counted != 2 {
		t.Errorf("the ledger counts %d, %v", counted, err)
	}
}
