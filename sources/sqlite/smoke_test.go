package sqlite

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

func TestSmoke(t *testing.T) {
	cfg := Config{Path: filepath.Join(t.TempDir(), "a b?#%.db"), Table: `Out"box x`}
	plan, err := Plan(t.Context(), cfg, InitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range plan.Steps {
		t.Log("-- ", s.Why, "\n", s.SQL)
	}
	if err := Apply(t.Context(), cfg, plan); err != nil {
		t.Fatal(err)
	}
	plan, err = Plan(t.Context(), cfg, InitOptions{})
	if err != nil || len(plan.Steps) > 0 {
		t.Fatal(plan, err)
	}
	src, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	app, err := sql.Open("sqlite", "file:"+filepath.Join(filepath.Dir(cfg.Path), "a%20b%3f%23%25.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	for i := range 40 {
		if _, err := app.Exec(`INSERT INTO "Out""box x" (id, aggregateid, payload) VALUES (?, ?, ?)`, fmt.Sprint("id", i), "k", "hello"); err != nil {
			t.Fatal(err)
		}
	}
	page, err := src.Fetch(t.Context(), core.FetchRequest{Limit: 20, Known: []int64{1}, Exclude: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v %d %v", page.Rows[0], len(page.Rows), page.More)
	a, err := src.Acquire(t.Context(), "me", 1, time.Second, false)
	if err != nil || len(a) != 1 {
		t.Fatal(a, err)
	}
	c := core.Change{Lease: a[0].Lease, Announce: []core.Announcement{{Batch: 1, Seqs: []int64{1, 2, 3}}}}
	for s := int64(1); s < 39; s++ {
		c.Settle = append(c.Settle, core.Settlement{Seq: s, State: core.Published})
	}
	c.Settle = append(c.Settle, core.Settlement{Seq: 40, State: core.Dead, Failure: &core.Failure{Code: "x", Message: "y"}})
	if err := src.Step(t.Context(), "me", c); err != nil {
		t.Fatal(err)
	}
	fmt.Println(src.Lag(t.Context()))
	fmt.Println(src.List(t.Context(), core.Filter{State: core.Dead}))
	fmt.Println(src.Show(t.Context(), "id39"))
	if err := src.Retry(t.Context(), "id39", "ops"); err != nil {
		t.Fatal(err)
	}
	fmt.Println(src.Show(t.Context(), "id39"))
	fmt.Println(src.Heartbeat(t.Context(), "me", nil, time.Second))
	fmt.Println(src.Blocking(t.Context(), 0, true))
	fmt.Println(src.Workers(t.Context()))
	fmt.Println(src.Leases(t.Context()))
	tx := src.s.texts()
	for _, q := range []string{tx.fetch(false), tx.fetch(true), tx.recover(), tx.publish(tx.inRange()), tx.publish(tx.inSet()), tx.remove(tx.inRange()), tx.settle()} {
		rows, err := src.write.Query("EXPLAIN QUERY PLAN "+q, 1, 2, 3, 4, 5, 6, 7)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var a, b, c int
			var d string
			rows.Scan(&a, &b, &c, &d)
			t.Log(d)
		}
		rows.Close()
		t.Log("--")
	}
}
