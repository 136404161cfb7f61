package mysql_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/mysql"
)

var anHour = core.Retention{Published: time.Hour, Dead: core.Forever, Skipped: core.Forever, Receipts: core.Forever}

// published makes a table of n rows that are published, whose lease the owner "one" holds.
func (srv server) published(t *testing.T, n int) (mysql.Config, *mysql.Source) {
	t.Helper()
	cfg, src := srv.one(t)
	acquired(t, src, "one")
	db := open(t, cfg.DSN)
	for i := range n {
		_, err := db.Exec(`INSERT INTO outbox (id, aggregateid, payload, state, published_at, deliveries) VALUES (?, 'k', 'x', 'published', UTC_TIMESTAMP(6) - INTERVAL 1 DAY, 1)`, fmt.Sprint("id-", i))
		must(t, err)
	}
	return cfg, src
}

// A row that an application has locked stays for later, and nobody waits.
func TestCleaningWaitsForNobody(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, src := srv.published(t, 10)
		tx, err := open(t, cfg.DSN).Begin()
		must(t, err)
		var one int
		must(t, tx.QueryRow(`SELECT 1 FROM outbox WHERE id = 'id-3' FOR UPDATE`).Scan(&one))
		begun := time.Now()
		c, err := src.Clean(t.Context(), core.CleanRequest{Owner: "one", Retention: anHour, Limit: 100})
		if err != nil || c.Removed[core.Published] != 9 || c.Left != 1 || time.Since(begun) > 3*time.Second {
			t.Errorf("%+v, %v after %v", c, err, time.Since(begun))
		}
		must(t, tx.Commit())
		c, err = src.Clean(t.Context(), core.CleanRequest{Owner: "one", Retention: anHour, Limit: 100})
		if err != nil || c.Removed[core.Published] != 1 {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// No gap is locked: while rows go, applications insert before, between and behind them, and none is aborted or waits for long.
func TestApplicationsInsertWhileRowsAreCleaned(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, src := srv.published(t, 400)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var inserted atomic.Int64
		var slowest atomic.Int64
		db := open(t, cfg.DSN)
		for who := range 3 {
			wg.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					begun := time.Now()
					// Ids fall between those that are removed, in the unique index; numbers behind them.
					if _, err := db.Exec(`INSERT INTO outbox (id, aggregateid, payload) VALUES (?, 'k', 'x')`, fmt.Sprintf("id-%d-%d-%d", n%400, who, n)); err != nil {
						t.Errorf("insert: %v", err)
						return
					}
					inserted.Add(1)
					slowest.Store(max(slowest.Load(), int64(time.Since(begun))))
				}
			})
		}
		removed := 0
		req := core.CleanRequest{Owner: "one", Retention: anHour, Limit: 20}
		until(t, "all rows to be cleaned beside inserts", func() bool {
			c, err := src.Clean(t.Context(), req)
			must(t, err)
			removed += c.Removed[core.Published]
			if req.After = c.Last; c.Looked < req.Limit {
				req.After = 0
			}
			return removed == 400 && inserted.Load() > 100
		})
		cancel()
		wg.Wait()
		if d := time.Duration(slowest.Load()); d > 3*time.Second {
			t.Errorf("an insert took %v", d)
		}
		var left, cleaned int
		must(t, db.QueryRow(`SELECT (SELECT COUNT(*) FROM outbox), (SELECT SUM(count) FROM connectd_ledger WHERE tbl = 'outbox')`).Scan(&left, &cleaned))
		if left != int(inserted.Load()) || cleaned != 400 {
			t.Errorf("%d rows are left of %d, %d were counted", left, inserted.Load(), cleaned)
		}
	})
}

// Receipts name ids as text; what is no value of the id's type is of no row, and no error.
func TestReceiptsOfTypedIDs(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		for kind, ids := range map[string][]string{
			"bigint": {"17", "017", "x"},
			"varchar(40) CHARACTER SET latin1 COLLATE latin1_swedish_ci": {"order-é", "ORDER-é", "😀"},
			"binary(16)": {"61616161-6161-6161-6161-616161616161", "61616161616161616161616161616161", "nonsense"},
			"char(30)":   {"aaaaaaaaaaaaaaaa", "b"},
		} {
			t.Run(kind, func(t *testing.T) {
				cfg, src := srv.one(t, `CREATE TABLE outbox (id `+kind+` PRIMARY KEY, aggregateid varchar(64), payload longblob) ENGINE=InnoDB`)
				acquired(t, src, "one")
				stored := ids[0]
				if kind == "binary(16)" {
					stored = "aaaaaaaaaaaaaaaa"
				}
				_, err := open(t, cfg.DSN).Exec(`INSERT INTO outbox (id, state, published_at) VALUES (?, 'published', UTC_TIMESTAMP(6))`, stored)
				must(t, err)
				var list []core.Receipt
				for _, id := range ids {
					list = append(list, core.Receipt{Command: id, Status: core.ReceiptDone})
				}
				results, err := src.SaveReceipts(t.Context(), list)
				must(t, err)
				for i, r := range results {
					if want := map[bool]core.ReceiptAnswer{true: core.ReceiptStored, false: core.ReceiptUnknown}[i == 0]; r.Answer != want {
						t.Errorf("%q: %s, want %s", r.Receipt.Command, r.Answer, want)
					}
				}
				c, err := src.Clean(t.Context(), core.CleanRequest{Owner: "one", Retention: core.Retention{RequireReceipt: true}, Limit: 10})
				if err != nil || c.Removed[core.Published] != 1 {
					t.Errorf("%+v, %v", c, err)
				}
				if after, err := src.Receipts(t.Context(), core.ReceiptFilter{Command: ids[0]}); err != nil || len(after) != 1 || after[0].Row != core.RowCleaned {
					t.Errorf("%+v, %v", after, err)
				}
			})
		}
	})
}

// The server takes text for equal that differs in spaces at its end; a consumer does not.
func TestAReceiptIsForTheSameBytes(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, src := srv.published(t, 1)
		db := open(t, cfg.DSN)
		for _, text := range []string{`UPDATE outbox SET id = 'cmd '`, `INSERT INTO connectd_receipt (command_id) VALUES ('cmd')`} {
			_, err := db.Exec(text)
			must(t, err)
		}
		r := anHour
		r.RequireReceipt = true
		req := core.CleanRequest{Owner: "one", Retention: r, Limit: 100}
		if c, err := src.Clean(t.Context(), req); err != nil || c.Removed[core.Published] != 0 || c.Left != 1 {
			t.Errorf("with another command's receipt: %+v, %v", c, err)
		}
		_, err := db.Exec(`UPDATE connectd_receipt SET command_id = 'cmd '`)
		must(t, err)
		if c, err := src.Clean(t.Context(), req); err != nil || c.Removed[core.Published] != 1 {
			t.Errorf("with its own: %+v, %v", c, err)
		}
	})
}
