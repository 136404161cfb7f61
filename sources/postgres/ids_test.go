package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
)

// A row is found by its id, whatever the id's type, by everything that looks for one: and never another row, of which the
// table has one whose id is the beginning of this one.
func TestIDTypes(t *testing.T) {
	for kind, c := range map[string]struct{ id, other string }{
		"uuid":         {"0b9c1c1e-1111-4222-8333-444455556666", "0b9c1c1e-1111-4222-8333-444455556667"},
		"char(36)":     {"0b9c1c1e-1111-4222-8333-444455556666", "0"},
		"char(8)":      {"order-17", "o"},
		"char(40)":     {"order-17", "o"},
		"text":         {"order-17", "o"},
		"varchar(200)": {"order-17", "o"},
		"bigint":       {"17", "1"},
	} {
		t.Run(kind, func(t *testing.T) {
			schema := schemaOf(t)
			cfg := postgres.Config{DSN: services.Postgres(t), Table: schema + ".outbox"}
			execute(t, `CREATE TABLE `+cfg.Table+` (id `+kind+` UNIQUE, aggregateid text, payload text)`,
				`CREATE TABLE `+schema+`.events (key `+kind+` PRIMARY KEY)`)
			initialise(t, cfg, postgres.InitOptions{Partitions: 1})
			src := open(t, cfg)
			if _, err := src.Acquire(t.Context(), "one", 1, time.Hour, false); err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{c.id, c.other} {
				execute(t, `INSERT INTO `+schema+`.events VALUES ('`+id+`')`, `INSERT INTO `+cfg.Table+` (id, state) VALUES ('`+id+`', 'dead')`)
			}
			wholeLife(t, cfg, src, schema, c.id, c.other)
		})
	}
}

// wholeLife takes a dead row to its removal, and no other.
func wholeLife(t *testing.T, cfg postgres.Config, src *postgres.Source, schema, id, other string) {
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
	execute(t, `UPDATE `+cfg.Table+` SET state = 'published', published_at = clock_timestamp() - interval '1 day' WHERE state = 'pending'`)
	results, err := src.SaveReceipts(t.Context(), []core.Receipt{{Command: id, Status: core.ReceiptDone}})
	if err != nil || results[0].Answer != core.ReceiptStored {
		t.Errorf("%+v, %v", results, err)
	}
	if trace, err := src.Trace(t.Context(), id); err != nil || len(trace.Receipts) != 1 {
		t.Errorf("%+v, %v", trace, err)
	}
	balanced := func() {
		t.Helper()
		for _, rule := range []core.Events{{Command: "key"}, {Join: "id"}} {
			rule.Table, rule.Key = schema+".events", "key"
			a, err := src.Audit(t.Context(), core.AuditRequest{Events: &rule, ReceiptWithin: time.Hour, Lease: time.Hour, Timeout: time.Minute})
			if err != nil || !a.OK() {
				t.Errorf("the audit of %+v: %v, %+v", rule, err, a.Laws)
			}
		}
	}
	if _, err := src.Heartbeat(t.Context(), "one", nil, time.Hour); err != nil {
		t.Fatal(err)
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
