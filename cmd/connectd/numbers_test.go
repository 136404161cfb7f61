package main

import (
	"strings"
	"testing"
)

// TestRowsWithNumbersBelowOne: they are never read, and no command passes over that.
func TestRowsWithNumbersBelowOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "connectd.yaml", quickstart)
	s := openShop(t, dir)
	s.exec("CREATE TABLE outbox (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, aggregateid TEXT, aggregatetype TEXT, type TEXT, payload BLOB, headers TEXT)")
	connectd(t, dir, "init").want(t, 0)
	s.exec("INSERT INTO outbox (seq, id, aggregateid, payload) VALUES (0, 'zero', 'k', '{}'), (-5, 'five', 'k', '{}'), (1, 'one', 'k', '{}')")
	if r := connectd(t, dir, "rows", "list"); !strings.Contains(r.stdout, "five") || strings.Index(r.stdout, "five") > strings.Index(r.stdout, "zero") || !strings.Contains(r.stdout, "one") {
		t.Errorf("%+v", r)
	}
	if r := connectd(t, dir, "rows", "list", "--after", "0"); strings.Contains(r.stdout, "zero") || !strings.Contains(r.stdout, "one") {
		t.Errorf("%+v", r)
	}
	if r := connectd(t, dir, "rows", "list", "--after", "x"); r.code != 2 || !strings.Contains(r.stderr, "must be a number") {
		t.Errorf("%+v", r)
	}
	for _, id := range []string{"zero", "five"} {
		if e := explained(t, dir, nil, id); e.codes() != "number_below_one" || !strings.Contains(e.Do, "insert it again") {
			t.Errorf("%+v", e)
		}
	}
	if r := connectd(t, dir, "doctor"); !strings.Contains(r.stdout, `seq is -5 in pending row "five"`) {
		t.Errorf("%+v", r)
	}
}
