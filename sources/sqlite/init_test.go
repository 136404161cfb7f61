package sqlite_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
	"github.com/connectd/connectd/sources/sourcetest"
	"github.com/connectd/connectd/sources/sqlite"
)

// article is the outbox table many services already have.
const article = `CREATE TABLE commands (command_id TEXT PRIMARY KEY, run_id TEXT, kind TEXT, payload TEXT, published INTEGER)`

func articleConfig(t *testing.T) sqlite.Config {
	return sqlite.Config{Path: file(t), Table: "commands", Columns: columns("id", "command_id", "key", "run_id", "type", "kind")}
}

func initWith(t *testing.T, cfg sqlite.Config, existing string) error {
	t.Helper()
	plan, err := sqlite.Plan(t.Context(), cfg, sqlite.InitOptions{Existing: existing})
	if err != nil {
		return err
	}
	return sqlite.Apply(t.Context(), cfg, plan)
}

// pendingIDs reads all pending rows.
func pendingIDs(t *testing.T, src *sqlite.Source) string {
	t.Helper()
	page, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range page.Rows {
		ids = append(ids, r.Record.ID)
	}
	return strings.Join(ids, " ")
}

func TestOpenNamesWhatIsMissingAndCreatesNothing(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	missing := func(what string) {
		t.Helper()
		_, err := sqlite.Open(t.Context(), cfg)
		if !errors.Is(err, core.ErrNotInitialised) || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "connectd init") {
			t.Errorf("want an error about %s, got %v", what, err)
		}
	}
	missing("no file")
	if entries, err := os.ReadDir(filepath.Dir(cfg.Path)); err != nil || len(entries) > 0 {
		t.Errorf("opening created %v, %v", entries, err)
	}
	if _, err := sqlite.Plan(t.Context(), cfg, sqlite.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(filepath.Dir(cfg.Path)); err != nil || len(entries) > 0 {
		t.Errorf("planning created %v, %v", entries, err)
	}
	execute(t, cfg.Path, `CREATE TABLE other (x)`)
	missing("table outbox")
	initialise(t, cfg)
	execute(t, cfg.Path, `DROP INDEX connectd_outbox_pending`)
	missing("index connectd_outbox_pending")
	initialise(t, cfg)
	execute(t, cfg.Path, `ALTER TABLE outbox RENAME COLUMN failing_since TO failing`, `DROP TABLE connectd_ledger`)
	missing("column failing_since, no table connectd_ledger")
	initialise(t, cfg)
	execute(t, cfg.Path, `DELETE FROM connectd_lease`)
	missing("connectd_outbox")
	initialise(t, cfg)
	open(t, cfg)
}

func TestARemovedFileIsNotCreatedAgain(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	initialise(t, cfg)
	src := open(t, cfg)
	if err := os.RemoveAll(filepath.Dir(cfg.Path)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Dir(cfg.Path), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := src.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) { // it has a connection of its own, opened now
		t.Errorf("waited on a file that is gone: %v", err)
	}
	if entries, err := os.ReadDir(filepath.Dir(cfg.Path)); err != nil || len(entries) > 0 {
		t.Errorf("there is %v again, %v", entries, err)
	}
}

func TestInitIsSafeTwice(t *testing.T) {
	cfg := articleConfig(t)
	execute(t, cfg.Path, article)
	first, err := sqlite.Plan(t.Context(), cfg, sqlite.InitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range first.Steps {
		if step.Why == "" || step.SQL == "" || strings.Contains(strings.ToUpper(step.SQL), "DROP") {
			t.Errorf("step %+v", step)
		}
	}
	for range 2 { // the same plan, applied twice
		if err := sqlite.Apply(t.Context(), cfg, first); err != nil {
			t.Fatal(err)
		}
	}
	again, err := sqlite.Plan(t.Context(), cfg, sqlite.InitOptions{})
	if err != nil || len(again.Steps) > 0 {
		t.Errorf("a second plan: %+v, %v", again, err)
	}
}

func TestAPlanThatNoLongerFitsChangesNothing(t *testing.T) {
	cfg := articleConfig(t)
	plan, err := sqlite.Plan(t.Context(), cfg, sqlite.InitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	execute(t, cfg.Path, article)
	if err := sqlite.Apply(t.Context(), cfg, plan); err == nil || !strings.Contains(err.Error(), "plan again") {
		t.Errorf("applied to a table that came since: %v", err)
	}
	if _, err := sqlite.Open(t.Context(), cfg); !strings.Contains(err.Error(), "table connectd_lease") {
		t.Errorf("something was changed: %v", err)
	}
}

func TestTheArticlesTableIsAdopted(t *testing.T) {
	cfg := articleConfig(t)
	execute(t, cfg.Path, article, `INSERT INTO commands VALUES ('c', 'r', 'k', 'p', 1), ('a', 'r', 'k', 'p', 0), ('b', NULL, NULL, 'p', NULL)`)
	initialise(t, cfg)
	execute(t, cfg.Path, `INSERT INTO commands (command_id, run_id, kind, payload) VALUES ('0', 'r', 'k', '{"x": 1}')`)
	src := open(t, cfg)
	if got := pendingIDs(t, src); got != "a b 0" {
		t.Errorf("pending: %s", got)
	}
	info, _, err := src.Show(t.Context(), "c")
	if err != nil || info.State != core.Published || info.PublishedAt.IsZero() {
		t.Errorf("the published row: %+v, %v", info, err)
	}
	page, _ := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 10})
	if r := page.Rows[2].Record; r.Key != "r" || r.Type != "k" || r.Route != "" || string(r.Payload) != `{"x": 1}` || time.Since(r.CreatedAt) > time.Minute {
		t.Errorf("the new row: %+v", r)
	}
	if old := page.Rows[0].Record; !old.CreatedAt.IsZero() {
		t.Errorf("a row from before has the time %v", old.CreatedAt)
	}
}

func TestExistingRowsNeedAnAnswer(t *testing.T) {
	plain := strings.Replace(article, ", published INTEGER", "", 1)
	for answer, want := range map[string]string{"pending": "a b", "published": ""} {
		cfg := articleConfig(t)
		execute(t, cfg.Path, plain, `INSERT INTO commands VALUES ('a', 'r', 'k', 'p'), ('b', 'r', 'k', 'p')`)
		var existing *layout.ExistingRowsError
		if err := initWith(t, cfg, ""); !errors.As(err, &existing) {
			t.Errorf("without an answer: %v", err)
		}
		if err := initWith(t, cfg, "maybe"); err == nil {
			t.Error("any answer will do")
		}
		if err := initWith(t, cfg, answer); err != nil {
			t.Fatal(err)
		}
		if got := pendingIDs(t, open(t, cfg)); got != want {
			t.Errorf("with %s: %q is pending, want %q", answer, got, want)
		}
	}
	cfg := articleConfig(t)
	execute(t, cfg.Path, plain)
	if err := initWith(t, cfg, ""); err != nil {
		t.Errorf("an empty table needs no answer: %v", err)
	}
}

func TestAnIDThatCouldBeThereTwiceIsRefused(t *testing.T) {
	for create, want := range map[string]string{
		`CREATE TABLE commands (command_id TEXT, run_id, kind, payload)`:                                                                  "unique",
		`CREATE TABLE commands (command_id TEXT, run_id, kind, payload, UNIQUE (command_id, run_id))`:                                     "unique",
		`CREATE TABLE commands (command_id TEXT, run_id, kind, payload); CREATE UNIQUE INDEX u ON commands (command_id) WHERE kind = 'x'`: "unique",
		`CREATE TABLE commands (command_id INTEGER PRIMARY KEY, run_id, kind, payload /* AUTOINCREMENT */)`:                               "AUTOINCREMENT",
		`CREATE TABLE commands (command_id TEXT PRIMARY KEY, kind, payload)`:                                                              "run_id",
		`CREATE TABLE commands (command_id TEXT PRIMARY KEY, run_id, payload)`:                                                            "kind",
		`CREATE TABLE commands (command_id TEXT PRIMARY KEY, run_id, kind)`:                                                               "payload",
		`CREATE TABLE commands (command_id TEXT PRIMARY KEY, run_id, kind, payload, state TEXT)`:                                          "columns.state",
		`CREATE TABLE commands (command_id TEXT PRIMARY KEY, run_id, kind, payload, seq INTEGER)`:                                         "columns.order",
		`CREATE TABLE commands (seq INTEGER PRIMARY KEY, command_id TEXT UNIQUE, run_id, kind, payload)`:                                  "columns.order",
		`CREATE TABLE x (y); CREATE VIEW commands AS SELECT * FROM x`:                                                                     "view",
	} {
		cfg := articleConfig(t)
		execute(t, cfg.Path, create)
		if err := initWith(t, cfg, "pending"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", create, err)
		}
	}
}

func TestEveryUsableShapeOfTableIsAdopted(t *testing.T) {
	for _, create := range []string{
		`CREATE TABLE commands (command_id INTEGER PRIMARY KEY AUTOINCREMENT, run_id, kind, payload)`,
		`CREATE TABLE commands (n INTEGER PRIMARY KEY AUTOINCREMENT, command_id UNIQUE, run_id, kind, payload)`,
		`CREATE TABLE commands (n INTEGER PRIMARY KEY, command_id UNIQUE, run_id, kind, payload)`,
		`CREATE TABLE commands (command_id TEXT PRIMARY KEY, run_id, kind, payload) WITHOUT ROWID`,
		`CREATE TABLE commands (command_id TEXT NOT NULL, run_id, kind, payload) ; CREATE UNIQUE INDEX u ON commands (command_id)`,
		`CREATE TABLE "COMMANDS" ("Command_ID" TEXT PRIMARY KEY, run_id, kind, payload ANY) STRICT`,
	} {
		cfg := articleConfig(t)
		cfg.DeletePublished = true
		execute(t, cfg.Path, strings.Replace(create, "run_id, kind, payload", "run_id TEXT, kind TEXT, payload", 1))
		execute(t, cfg.Path, `INSERT INTO commands (command_id, run_id, kind, payload) VALUES (11, 'r', 'k', 'p'), (12, 'r', 'k', 'p')`)
		if err := initWith(t, cfg, "pending"); err != nil {
			t.Errorf("%s: %v", create, err)
			continue
		}
		src := open(t, cfg)
		insert := func(id string) {
			execute(t, cfg.Path, `INSERT INTO commands (command_id, run_id, kind, payload) VALUES (`+id+`, 'r', 'k', 'p')`)
		}
		insert("13")
		if got := pendingIDs(t, src); got != "11 12 13" {
			t.Errorf("%s: pending: %s", create, got)
		}
		// The last row is deleted: its seq must not come again, or the next row would hide behind the cursor and
		// take a late settlement of the old one.
		last := publishAll(t, src)
		insert("14")
		page, err := sourcetest.Page(t.Context(), src, core.FetchRequest{After: last, Limit: 10})
		if err != nil || len(page.Rows) != 1 || page.Rows[0].Record.ID != "14" {
			t.Errorf("%s: after the last seq: %+v, %v", create, page.Rows, err)
		}
		// VACUUM may give a rowid to another row.
		execute(t, cfg.Path, `VACUUM`)
		after, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 10})
		if err != nil || len(after.Rows) != 1 || after.Rows[0].Record.Seq != page.Rows[0].Record.Seq {
			t.Errorf("%s: after VACUUM: %+v, %v", create, after.Rows, err)
		}
	}
}

// publishAll settles every pending row and returns the highest seq.
func publishAll(t *testing.T, src *sqlite.Source) int64 {
	t.Helper()
	taken, err := src.Acquire(t.Context(), "one", 1, 1e12, false)
	if err != nil || len(taken) != 1 {
		t.Fatal(taken, err)
	}
	page, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	c := core.Change{Lease: taken[0].Lease}
	for _, r := range page.Rows {
		c.Settle = append(c.Settle, core.Settlement{Seq: r.Record.Seq, Deliveries: r.Deliveries, State: core.Published})
	}
	if err := src.Step(t.Context(), "one", []core.Change{c}); err != nil {
		t.Fatal(err)
	}
	if err := src.Release(t.Context(), "one", taken[0].Lease); err != nil {
		t.Fatal(err)
	}
	return page.Rows[len(page.Rows)-1].Record.Seq
}

func TestConfigurationIsChecked(t *testing.T) {
	for want, cfg := range map[string]sqlite.Config{
		"path":                    {Table: "outbox"},
		"table":                   {Path: "x.db"},
		"sqlite_master":           {Path: "x.db", Table: "sqlite_master"},
		"connectd_Lease":          {Path: "x.db", Table: "connectd_Lease"},
		"columns.partition is no": {Path: "x.db", Table: "t", Columns: columns("partition", "x")},
		"cannot be a column's":    {Path: "x.db", Table: "t", Columns: columns("key", "a\x00b")},
		"header h":                {Path: "x.db", Table: "t", HeaderColumns: []layout.HeaderColumn{{Header: "h"}}},
		"columns.key and columns": {Path: "x.db", Table: "t", Columns: columns("key", "x", "type", "X")},
	} {
		if _, err := sqlite.Plan(t.Context(), cfg, sqlite.InitOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error about %q, got %v", want, err)
		}
		if _, err := sqlite.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error about %q, got %v", want, err)
		}
	}
}

// published = 'true' is not 1: taken for pending, all that was ever sent would be sent again.
func TestAPublishedColumnWithOtherValuesNeedsAnAnswer(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	execute(t, cfg.Path, `CREATE TABLE outbox (id TEXT PRIMARY KEY, aggregateid TEXT, payload, published BOOLEAN)`,
		`INSERT INTO outbox VALUES ('a', 'k', 'x', 'true'), ('b', 'k', 'x', 0)`)
	var answer *layout.ExistingRowsError
	if err := initWith(t, cfg, ""); !errors.As(err, &answer) {
		t.Fatalf("got %v, want a question", err)
	}
	if err := initWith(t, cfg, "published"); err != nil {
		t.Fatal(err)
	}
}

func TestAnAdoptedTableTakesASeqOfTheApplications(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	execute(t, cfg.Path, `CREATE TABLE outbox (id TEXT PRIMARY KEY, aggregateid TEXT, payload)`)
	if err := initWith(t, cfg, ""); err != nil {
		t.Fatal(err)
	}
	execute(t, cfg.Path, `INSERT INTO outbox (id, payload) VALUES ('a', 'x')`, `INSERT INTO outbox (id, payload, seq) VALUES ('b', 'x', 2)`,
		`INSERT INTO outbox (id, payload) VALUES ('c', 'x')`)
}

func TestAStateNobodyKnowsIsRefused(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	initialise(t, cfg)
	if _, err := application(t, cfg.Path).Exec(`INSERT INTO outbox (id, payload, state) VALUES ('a', 'x', 'PENDING')`); err == nil {
		t.Error("a row was taken that nobody would ever send")
	}
}
