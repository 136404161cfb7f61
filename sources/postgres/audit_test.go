package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
	"github.com/connectd/connectd/sources/sourcetest"
)

func (o *appTable) vandal() *sourcetest.Vandal {
	tbl, id, state, key := quoted(o.cfg), name(o.cfg, "id", "id"), name(o.cfg, "state", "state"), "aggregateid"
	if mapped := o.cfg.Columns["key"]; mapped != nil {
		key = *mapped
	}
	do := func(t *testing.T, sql string, args ...any) {
		t.Helper()
		if _, err := o.pool.Exec(context.Background(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	// unconstrain drops the constraints of a kind.
	unconstrain := func(t *testing.T, kind string) {
		t.Helper()
		do(t, `DO $$ DECLARE c record; BEGIN FOR c IN SELECT conname FROM pg_constraint WHERE conrelid = '`+strings.ReplaceAll(tbl, "'", "''")+`'::regclass AND contype IN (`+kind+`)
			LOOP EXECUTE 'ALTER TABLE `+tbl+` DROP CONSTRAINT ' || quote_ident(c.conname); END LOOP; END $$`)
	}
	return &sourcetest.Vandal{
		Name: o.schema + ".events", Key: key,
		Events: func(t *testing.T, ids ...string) {
			do(t, `CREATE TABLE `+o.schema+`.events (id text PRIMARY KEY)`)
			do(t, `INSERT INTO `+o.schema+`.events SELECT unnest($1::text[])`, ids)
		},
		Delete: func(t *testing.T, row string) { do(t, `DELETE FROM `+tbl+` WHERE `+id+` = $1`, row) },
		Double: func(t *testing.T, row string) {
			unconstrain(t, `'p', 'u'`)
			do(t, `INSERT INTO `+tbl+` (`+id+`, payload) VALUES ($1, '')`, row)
		},
		Damage: func(t *testing.T, row string) {
			unconstrain(t, `'c'`)
			do(t, `UPDATE `+tbl+` SET `+state+` = 'lost' WHERE `+id+` = $1`, row)
		},
		Mend: func(t *testing.T, row string) {
			do(t, `UPDATE `+tbl+` SET `+state+` = 'pending' WHERE `+id+` = $1`, row)
		},
		Adopt: func(t *testing.T, row string) {
			do(t, `UPDATE `+tbl+` SET `+state+` = 'published', `+name(o.cfg, "published_at", "published_at")+` = now() - interval '1 day' WHERE `+id+` = $1`, row)
		},
		Orphan: func(t *testing.T, d int) {
			do(t, `UPDATE `+o.schema+`.connectd_lease SET epoch = epoch + $1 WHERE tbl = $2`, d, o.name)
		},
		Ledger: func(t *testing.T, d int) {
			do(t, `UPDATE `+o.schema+`.connectd_ledger SET count = count + $1 WHERE (tbl, day, state, n) IN (SELECT tbl, day, state, n FROM `+o.schema+`.connectd_ledger WHERE tbl = $2 LIMIT 1)`, d, o.name)
		},
		Run: func(t *testing.T, seq int64, statements []string) {
			conn, err := o.pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			names := sourcetest.Documented(seq, tbl, name(o.cfg, "order", "seq"), o.name, o.schema+".")
			for _, s := range statements {
				if _, err := conn.Exec(t.Context(), names.Replace(s)); err != nil {
					t.Fatalf("%s: %v", names.Replace(s), err)
				}
			}
		},
		Silent: func(t *testing.T) { do(t, `DELETE FROM `+o.schema+`.connectd_worker WHERE tbl = $1`, o.name) },
	}
}

// The rule's SQL is the operator's own and has the source's rights, but for writing.
func TestAnAuditWritesNothing(t *testing.T) {
	schema := schemaOf(t)
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schema + ".outbox"}
	initialise(t, cfg, postgres.InitOptions{})
	execute(t, `CREATE TABLE `+schema+`.events (id text)`)
	execute(t, `INSERT INTO `+schema+`.events VALUES ('a')`)
	execute(t, `CREATE FUNCTION `+schema+`.spoil(x text) RETURNS text LANGUAGE sql AS 'DELETE FROM `+schema+`.events RETURNING id'`)
	// The simple protocol would take several statements at once.
	cfg.DSN = modes["simple"](t)
	src := open(t, cfg)
	req := core.AuditRequest{Events: &core.Events{Table: schema + ".events", Key: "id", Command: schema + ".spoil(id)"}, ReceiptWithin: core.Forever, Lease: time.Second, Timeout: time.Minute}
	if _, err := src.Audit(t.Context(), req); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("the error is %v", err)
	}
	req.Events.Command, req.Events.Where = "id", "true)) x; COMMIT; DELETE FROM "+schema+".events; SELECT 0 FROM (SELECT 1 WHERE (true"
	if _, err := src.Audit(t.Context(), req); err == nil || !strings.Contains(err.Error(), "multiple commands") {
		t.Errorf("the error is %v", err)
	}
	req.Events.Where = ""
	if a, err := src.Audit(t.Context(), req); err != nil || a.Findings() != 2 {
		t.Errorf("the event is gone: %+v, %v", a, err)
	}
}
