package mysql_test

import (
	"context"
	"fmt"
	"strings"
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

// Tables that are older than the checks are so.
const (
	unchecked = "ALTER TABLE connectd_receipt DROP CONSTRAINT `a receipt is done, failed or started`"
	unblanked = "ALTER TABLE connectd_receipt DROP CONSTRAINT `command_id and consumer do not end with a blank`"
)

// What SQL writes and nobody would take for done or failed, or for this command's, stays out.
func TestReceiptsThatCountForNothingAreRefused(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, _ := srv.published(t, 1)
		db := open(t, cfg.DSN)
		for _, c := range []struct{ command, consumer, status, why string }{
			{"a", "b", "DONE", "a receipt is done, failed or started"}, {"a", "b", "done ", "a receipt is done, failed or started"},
			{"a", "b", "completed", "a receipt is done, failed or started"}, {"a", "b", "", "a receipt is done, failed or started"},
			{"a ", "b", "done", "do not end with a blank"}, {"a", "b ", "done", "do not end with a blank"}, {"a", " ", "done", "do not end with a blank"},
			{" a b", "", "done", ""}, {"a", "b", "failed", ""}, {"b", "b", "started", ""},
		} {
			_, err := db.Exec(`INSERT INTO connectd_receipt (command_id, consumer, status) VALUES (?, ?, ?)`, c.command, c.consumer, c.status)
			if c.why == "" && err != nil || c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)) {
				t.Errorf("%+v: %v", c, err)
			}
		}
	})
}

// A row whose id can have no receipt is published without the one that came with its outcome, and so are the others with it.
func TestARowThatCanHaveNoReceiptIsPublished(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, src := srv.one(t)
		lease := acquired(t, src, "one")[0]
		srv.execute(t, cfg, `INSERT INTO outbox (id, payload) VALUES ('a ', 'x'), ('b', 'x')`)
		settle := func(seq int64) core.Settlement {
			return core.Settlement{Seq: seq, State: core.Published, Receipt: "orders"}
		}
		must(t, src.Step(t.Context(), "one", []core.Change{{Lease: lease, Settle: []core.Settlement{settle(1), settle(2)}}}))
		for id, receipts := range map[string]int{"a ": 0, "b": 1} {
			list, err := src.Receipts(t.Context(), core.ReceiptFilter{Command: id})
			if got := state(t, src, id); got != core.Published || err != nil || len(list) != receipts {
				t.Errorf("%q is %s with receipts %+v, %v", id, got, list, err)
			}
		}
	})
}

// In a table that is older than the checks, a receipt of a name with a blank at its end is not changed, nor given for another's.
func TestAReceiptWithABlankAtItsEndIsNotAnothers(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, src := srv.published(t, 1)
		srv.execute(t, cfg, unchecked, unblanked,
			`INSERT INTO connectd_receipt (command_id, consumer, status) VALUES ('cmd-1 ', 'b', 'done'), ('cmd-2 ', 'b', 'failed'), ('cmd-3', 'b ', 'failed'), ('cmd-4', 'b', 'completed')`)
		var list []core.Receipt
		for _, id := range []string{"cmd-1", "cmd-2", "cmd-3", "cmd-4", "cmd-5"} {
			list = append(list, core.Receipt{Command: id, Consumer: "b", Status: core.ReceiptDone})
		}
		results, err := src.SaveReceipts(t.Context(), list)
		must(t, err)
		for i, r := range results {
			if (r.Answer == core.ReceiptRefused) != (i < 3) || (r.Why == "") || r.Receipt.Key() != list[i].Key() || r.Receipt.Status != core.ReceiptDone {
				t.Errorf("%q: %+v", list[i].Command, r)
			}
		}
		var n int
		must(t, open(t, cfg.DSN).QueryRow(`SELECT COUNT(*) FROM connectd_receipt WHERE LENGTH(command_id) + LENGTH(consumer) = 7 AND (status LIKE 'failed' OR command_id LIKE 'cmd-1 ')`).Scan(&n))
		if n != 3 {
			t.Errorf("%d of the 3 receipts are as they were", n)
		}
	})
}

// The server takes text for equal that differs in spaces at its end; a consumer does not.
func TestAReceiptIsForTheSameBytes(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, src := srv.published(t, 1)
		db := open(t, cfg.DSN)
		for _, text := range []string{unchecked, unblanked, `UPDATE outbox SET id = 'cmd '`, `INSERT INTO connectd_receipt (command_id) VALUES ('cmd')`} {
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
