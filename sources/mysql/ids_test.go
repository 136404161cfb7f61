package mysql_test

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/mysql"
)

// A row is found by its id, whatever the id's type and collation, by everything that looks for one: and never another row,
// of which the table has one whose id begins in the same way.
func TestIDTypes(t *testing.T) {
	const uuid, other = "0b9c1c1e-1111-4222-8333-444455556666", "0b9c1c1e-1111-4222-8333-4444555566ff"
	onServers(t, func(t *testing.T, srv server) {
		kinds := map[string]struct{ id, other string }{
			"char(36) CHARACTER SET ascii":                                  {uuid, other},
			"char(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci":     {uuid, other},
			"char(8) CHARACTER SET latin1 COLLATE latin1_swedish_ci":        {"Öl-17", "Ö"},
			"varchar(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci": {"Öl-17", "Ö"},
			"varchar(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin":        {"Öl-17", "öl-17"},
			"varchar(200) CHARACTER SET utf16":                              {"Öl-17", "Ö"},
			"varbinary(200)":                                                {"Öl-17", "öl-17"},
			"binary(16)":                                                    {uuid, other},
			"bigint":                                                        {"17", "1"},
		}
		if srv.name == "MariaDB" {
			kinds["uuid"] = struct{ id, other string }{uuid, other}
		} else {
			kinds["varchar(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci"] = struct{ id, other string }{"Öl-17", "Ö"}
		}
		for kind, c := range kinds {
			t.Run(kind, func(t *testing.T) {
				cfg, src := srv.one(t, `CREATE TABLE outbox (id `+kind+` PRIMARY KEY, aggregateid varchar(64), payload longblob) ENGINE=InnoDB`)
				srv.execute(t, cfg, `CREATE TABLE events (name `+kind+` PRIMARY KEY) ENGINE=InnoDB`)
				acquired(t, src, "one")
				db := open(t, cfg.DSN)
				for _, id := range []string{c.id, c.other} {
					var stored any = id
					if kind == "binary(16)" {
						raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
						must(t, err)
						stored = raw
					}
					_, err := db.Exec(`INSERT INTO events VALUES (?)`, stored)
					must(t, err)
					_, err = db.Exec(`INSERT INTO outbox (id, state) VALUES (?, 'dead')`, stored)
					must(t, err)
				}
				srv.wholeLife(t, cfg, src, c.id, c.other)
			})
		}
	})
}

// wholeLife takes a dead row to its removal, and no other.
func (srv server) wholeLife(t *testing.T, cfg mysql.Config, src *mysql.Source, id, other string) {
	t.Helper()
	wantState := func(id string, want core.State) {
		t.Helper()
		row, _, err := src.Show(t.Context(), id)
		if err != nil || row.ID != id || row.State != want {
			t.Errorf("%q: the row %q is %s, want %s: %v", id, row.ID, row.State, want, err)
		}
	}
	wantState(id, core.Dead)
	if err := src.Retry(t.Context(), core.Act{ID: id, By: "ops"}); err != nil {
		t.Error(err)
	}
	wantState(id, core.Pending)
	wantState(other, core.Dead)
	if _, _, err := src.Show(t.Context(), "9"); !errors.Is(err, core.ErrNoRow) {
		t.Errorf("an id that is not there: %v", err)
	}
	srv.execute(t, cfg, `UPDATE outbox SET state = 'published', published_at = UTC_TIMESTAMP(6) - INTERVAL 1 DAY WHERE state = 'pending'`)
	results, err := src.SaveReceipts(t.Context(), []core.Receipt{{Command: id, Status: core.ReceiptDone}})
	if err != nil || results[0].Answer != core.ReceiptStored {
		t.Errorf("%+v, %v", results, err)
	}
	if trace, err := src.Trace(t.Context(), id); err != nil || len(trace.Receipts) != 1 {
		t.Errorf("%+v, %v", trace, err)
	}
	_, err = src.Heartbeat(t.Context(), "one", nil, time.Hour)
	must(t, err)
	balanced := func() {
		t.Helper()
		for _, rule := range []core.Events{{Command: "name"}, {Join: "id"}} {
			rule.Table, rule.Key = "events", "name"
			a, err := src.Audit(t.Context(), core.AuditRequest{Events: &rule, ReceiptWithin: time.Hour, Lease: time.Hour, Timeout: time.Minute})
			if err != nil || !a.OK() {
				t.Errorf("the audit of %+v: %v, %+v", rule, err, a.Laws)
			}
		}
	}
	balanced()
	r := anHour
	r.RequireReceipt = true
	if c, err := src.Clean(t.Context(), core.CleanRequest{Owner: "one", Retention: r, Limit: 10}); err != nil || c.Removed[core.Published] != 1 || c.Left != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	wantState(other, core.Dead)
	if list, err := src.Receipts(t.Context(), core.ReceiptFilter{Command: id}); err != nil || len(list) != 1 || list[0].Row != core.RowCleaned {
		t.Errorf("%+v, %v", list, err)
	}
	balanced()
}
