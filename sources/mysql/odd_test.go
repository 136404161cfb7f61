package mysql_test

import (
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/mysql"
	"github.com/connectd/connectd/sources/sourcetest"
)

// An application whose SQL mode is empty may write times that are none.
func TestNoValueStopsTheOthers(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		var odd []sourcetest.Odd
		for _, value := range []string{"2147483647", "-2147483648", "-1", "1000000001"} {
			odd = append(odd, sourcetest.Odd{Column: "attempts", Value: value}, sourcetest.Odd{Column: "deliveries", Value: value})
		}
		for _, value := range []string{"32767", "-32768", "30001"} {
			odd = append(odd, sourcetest.Odd{Column: "crashes", Value: value})
		}
		times := []string{"'0000-00-00'", "'2026-00-00'", "'2026-02-31'", "'0000-01-01'", "'0001-01-01'", "'9999-12-31 23:59:59.999999'", "'2100-01-01'"}
		for _, value := range times {
			for _, column := range []string{"available_at", "failing_since", "published_at", "created_at"} {
				odd = append(odd, sourcetest.Odd{Column: column, Value: value})
			}
			odd = append(odd, sourcetest.Odd{Column: "deliveries, attempts, failing_since", Value: "1, 1, " + value})
		}
		odd = append(odd, sourcetest.Odd{Column: "last_error", Value: "repeat('x', 1024)"})
		sourcetest.RunOdd(t, func(t *testing.T) (sourcetest.Table, string, func(...string)) {
			cfg := srv.config(t)
			initialise(t, cfg, mysql.InitOptions{Partitions: 2})
			return table(t, cfg), "outbox", func(statements ...string) {
				db := open(t, withOptions(cfg.DSN, "multiStatements=true&sql_mode=ALLOW_INVALID_DATES"))
				defer db.Close()
				_, err := db.Exec("BEGIN; " + strings.Join(statements, "; ") + "; COMMIT")
				must(t, err)
			}
		}, odd, times[:2])
	})
}

// A consumer's, too. The 31st of February has an age, as a day in March.
func TestAReceiptOfNoDayIsAnsweredWith(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, src := srv.one(t)
		db := open(t, withOptions(cfg.DSN, "sql_mode=ALLOW_INVALID_DATES"))
		_, err := db.Exec(`INSERT INTO connectd_receipt (command_id, consumer, at) VALUES ('a', 'c', '2026-02-31')`)
		must(t, err)
		results, err := src.SaveReceipts(t.Context(), []core.Receipt{{Command: "a", Consumer: "c", Status: core.ReceiptDone}})
		if err != nil || len(results) != 1 || !results[0].Receipt.At.Equal(time.Date(2026, 3, 3, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("%+v, %v", results, err)
		}
	})
}
