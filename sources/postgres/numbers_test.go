package postgres_test

import (
	"math"
	"strings"
	"testing"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
	"github.com/connectd/connectd/sources/sourcetest"
)

// Fetches begin above 0. A row with another number is refused where init can see to that, and named where it cannot.
func TestNumbersBelowOne(t *testing.T) {
	insert := func(id, seq string) string {
		return "INSERT INTO outbox (seq, id, payload) OVERRIDING SYSTEM VALUE VALUES (" + seq + ", '" + id + "', 'x')"
	}
	config := func() postgres.Config {
		return postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
	}
	const added = `CREATE TABLE outbox (id text PRIMARY KEY, aggregateid text, payload text)`
	for name, ddl := range map[string]string{"new": "", "a column of ours": added} {
		cfg := config()
		if ddl != "" {
			in(t, cfg, ddl)
		}
		initialise(t, cfg, postgres.InitOptions{})
		in(t, cfg, insert("a", "7"), `INSERT INTO outbox (id, payload) VALUES ('b', 'x')`)
		for _, seq := range []string{"0", "-5"} {
			_, err := application(t, cfg.DSN).Exec(t.Context(), strings.Replace(insert("c", seq), "outbox", quoted(cfg), 1))
			if err == nil || !strings.Contains(err.Error(), "check constraint") {
				t.Errorf("%s: seq %s: %v", name, seq, err)
			}
		}
	}

	cfg := config()
	in(t, cfg, `CREATE TABLE outbox (seq bigserial PRIMARY KEY, id text UNIQUE, aggregateid text, payload text)`, insert("a", "0"), insert("b", "-5"), `INSERT INTO outbox (id, payload) VALUES ('c', 'x')`)
	if err := initWith(t, cfg, postgres.InitOptions{Existing: "pending"}); err == nil || !strings.Contains(err.Error(), "has a row whose seq is -5") {
		t.Error(err)
	}
	mend := func() {
		t.Helper()
		in(t, cfg, `BEGIN; CREATE TEMP TABLE again ON COMMIT DROP AS SELECT * FROM outbox WHERE seq <= 0 ORDER BY seq; DELETE FROM outbox WHERE seq <= 0;
			INSERT INTO outbox (id, aggregateid, payload) SELECT id, aggregateid, payload FROM again ORDER BY seq; COMMIT`)
	}
	mend()
	initialise(t, cfg, postgres.InitOptions{Existing: "pending"})
	wantSound(t, postgres.Diagnose(t.Context(), cfg))
	in(t, cfg, insert("d", "0"), insert("e", "-5"))
	sourcetest.WantFinding(t, postgres.Diagnose(t.Context(), cfg), core.Problem, "numbers", `seq is -5 in pending row "e"`, "delete the pending rows with seq <= 0")
	src := open(t, cfg)
	for _, state := range []core.State{"", core.Pending} {
		if list, err := src.List(t.Context(), core.Filter{After: math.MinInt64, State: state}); err != nil || len(list) != 5 || list[0].ID != "e" || list[1].ID != "d" {
			t.Errorf("%v, %+v", err, list)
		}
	}
	mend()
	wantSound(t, postgres.Diagnose(t.Context(), cfg))
	if rows := pending(t, src); len(rows) != 5 || rows[4].Record.ID != "d" {
		t.Errorf("%+v", rows)
	}
}
