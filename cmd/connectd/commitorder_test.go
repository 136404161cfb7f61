package main

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// TestCommitOrderSaysWhatHoldsItBack: with ordering: commit a row waits for an older transaction that is open, the metrics
// say so, and both rows come when it commits.
func TestCommitOrderSaysWhatHoldsItBack(t *testing.T) {
	t.Parallel()
	s := serverKinds["postgres"](t)
	to := &inbox{}
	web := httptest.NewServer(to)
	t.Cleanup(web.Close)
	dir := t.TempDir()
	write(t, dir, "connectd.yaml", fmt.Sprintf(`connectors:
  orders:
    source: {plugin: postgres, dsn: "${SHOP_DSN}"}
    sink: {plugin: webhook, url: %q}
    delivery: {ordering: commit, lease: 2s}
`, web.URL))
	connectdWith(t, dir, "", map[string]string{"SHOP_DSN": s.dsn}, "init").want(t, 0, "CREATE TABLE")
	d := startDaemon(t, dir, "SHOP_DSN="+s.dsn)
	d.ready()
	older, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = older.Rollback() }()
	if _, err := older.ExecContext(t.Context(), s.insert, "first", "ada", "{}"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.ExecContext(t.Context(), s.insert, "second", "bob", "{}"); err != nil {
		t.Fatal(err)
	}
	d.eventually("the metrics say that a row is held back", func() (bool, string) {
		_, body := d.get("/metrics")
		return strings.Contains(body, `connectd_held_back_rows{connector="orders"} 1`), body
	})
	var e explanation
	d.eventually("rows explain names the transaction", func() (bool, string) {
		e = explained(t, dir, map[string]string{"SHOP_DSN": s.dsn}, "second")
		return e.codes() == "open_transaction leased", fmt.Sprintf("%+v", e)
	})
	if r := e.Because[0]; r.Rows != 1 || !strings.Contains(r.Holder, "process ") || moment(t, "since", r.Since).IsZero() || !strings.Contains(e.Do, "let that transaction end") {
		t.Errorf("%+v", e)
	}
	if got := to.arrived(); len(got) > 0 {
		t.Errorf("%v arrived before the older transaction ended", got)
	}
	if err := older.Commit(); err != nil {
		t.Fatal(err)
	}
	d.eventually("both arrive", func() (bool, string) { n := len(to.arrived()); return n == 2, fmt.Sprint(n) })
	var ids []string
	for _, g := range to.arrived() {
		ids = append(ids, g.id)
	}
	slices.Sort(ids)
	if !slices.Equal(ids, []string{"first", "second"}) {
		t.Errorf("arrived: %v", ids)
	}
	d.eventually("nothing is held back any more", func() (bool, string) {
		_, body := d.get("/metrics")
		return strings.Contains(body, `connectd_held_back_rows{connector="orders"} 0`), body
	})
}
