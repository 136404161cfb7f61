package sqlite_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/sqlite"
)

// An application may have triggers on its table. What they say about conflicts must hold when the relay settles rows,
// whether those follow each other, have gaps or lie far apart.
func TestSettlingKeepsTheApplicationsTriggers(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	initialise(t, cfg)
	db := application(t, cfg.Path)
	for _, query := range []string{
		`CREATE TABLE journal (state TEXT UNIQUE)`,
		`CREATE TRIGGER journal AFTER UPDATE ON outbox BEGIN INSERT OR IGNORE INTO journal VALUES (NEW.state); END`,
		`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) INSERT INTO outbox (id, payload) SELECT 'row' || i, 'x' FROM n`,
	} {
		if _, err := db.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	src := open(t, cfg)
	taken, err := src.Acquire(t.Context(), "one", 1, time.Minute, false)
	if err != nil || len(taken) != 1 {
		t.Fatal(taken, err)
	}
	var all []string
	for shape, seqs := range map[string][]int64{"range": {1, 2, 3}, "gaps": {10, 13, 14, 19}, "apart": {50, 170, 300}} {
		c := core.Change{Lease: taken[0].Lease}
		for _, seq := range seqs {
			c.Settle = append(c.Settle, core.Settlement{Seq: seq, State: core.Published})
			all = append(all, fmt.Sprint("row", seq))
		}
		if err := src.Step(t.Context(), "one", []core.Change{c}); err != nil {
			t.Errorf("%s: %v", shape, err)
		}
	}
	rows, err := src.List(t.Context(), core.Filter{State: core.Published, Limit: 300})
	if err != nil {
		t.Fatal(err)
	}
	var published []string
	for _, r := range rows {
		published = append(published, r.ID)
	}
	slices.Sort(published)
	slices.Sort(all)
	if !slices.Equal(published, all) {
		t.Errorf("published are %v, want %v", published, all)
	}
}
