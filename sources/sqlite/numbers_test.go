package sqlite_test

import (
	"math"
	"strings"
	"testing"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/sourcetest"
	"github.com/connectd/connectd/sources/sqlite"
)

// Fetches begin above 0. A row with another number is refused where init can see to that, and named where it cannot.
func TestNumbersBelowOne(t *testing.T) {
	insert := func(id, seq string) string {
		return "INSERT INTO outbox (seq, id, payload) VALUES (" + seq + ", '" + id + "', 'x')"
	}
	const added = `CREATE TABLE outbox (id TEXT PRIMARY KEY, aggregateid TEXT, payload)`
	for name, ddl := range map[string]string{"new": "", "a column of ours": added} {
		cfg := sqlite.Config{Path: file(t), Table: "outbox"}
		if ddl != "" {
			execute(t, cfg.Path, ddl)
		}
		initialise(t, cfg)
		execute(t, cfg.Path, insert("a", "7"), `INSERT INTO outbox (id, payload) VALUES ('b', 'x')`)
		for _, seq := range []string{"0", "-5", "'abc'", "1.5", "x'07'"} {
			if _, err := application(t, cfg.Path).Exec(insert("c", seq)); err == nil || !strings.Contains(err.Error(), "CHECK") && !strings.Contains(err.Error(), "datatype mismatch") {
				t.Errorf("%s: seq %s: %v", name, seq, err)
			}
		}
	}

	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	execute(t, cfg.Path, `CREATE TABLE outbox (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, aggregateid TEXT, payload BLOB)`, insert("a", "0"), insert("b", "-5"), insert("c", "1"))
	if err := initWith(t, cfg, "pending"); err == nil || !strings.Contains(err.Error(), "has a row whose seq is -5") {
		t.Error(err)
	}
	mend := func() {
		t.Helper()
		execute(t, cfg.Path, `BEGIN; CREATE TEMP TABLE again AS SELECT * FROM outbox WHERE seq <= 0 ORDER BY seq; DELETE FROM outbox WHERE seq <= 0;
			INSERT INTO outbox (id, aggregateid, payload) SELECT id, aggregateid, payload FROM again; DROP TABLE again; COMMIT`)
	}
	mend()
	if err := initWith(t, cfg, "pending"); err != nil {
		t.Fatal(err)
	}
	wantSound(t, sqlite.Diagnose(t.Context(), cfg))
	execute(t, cfg.Path, insert("d", "0"), insert("e", "-5"))
	sourcetest.WantFinding(t, sqlite.Diagnose(t.Context(), cfg), core.Problem, "numbers", `seq is -5 in pending row "e"`, "delete the pending rows with seq <= 0")
	src := open(t, cfg)
	if list, err := src.List(t.Context(), core.Filter{After: math.MinInt64}); err != nil || len(list) != 5 || list[0].ID != "e" || list[1].ID != "d" {
		t.Errorf("%v, %+v", err, list)
	}
	mend()
	wantSound(t, sqlite.Diagnose(t.Context(), cfg))
	if got := pendingIDs(t, src); got != "c b a e d" {
		t.Error(got)
	}
}
