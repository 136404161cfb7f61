package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/connectd/connectd/cmd/connectd/daemon"
)

// TestAudit: a daemon delivers, the books balance; a row that is deleted by hand is missed by its name.
func TestAudit(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart+`    audit: {events: {table: events, key: id, where: "kind = 'order'", command: "'id-' || printf('%06d', n)"}}
`)
	shop := openShop(t, dir)
	shop.exec(`CREATE TABLE events (id INTEGER PRIMARY KEY, n INTEGER, kind TEXT)`)
	for n := range 6 {
		shop.exec(`INSERT INTO events (n, kind) VALUES (?, 'order'), (?, 'noise')`, n+1, n+100)
	}
	shop.insert(6, 2)
	r := connectd(t, dir, "audit")
	r.want(t, 0, "orders: the books balance (6 of 7 laws checked", "6 inserted, 6 pending", "not checked: no receipts are required")
	if !strings.Contains(r.stderr, "reading leases") || strings.Contains(r.stdout, "reading") {
		t.Errorf("progress goes to stderr: %s | %s", r.stderr, r.stdout)
	}
	shop.exec(`DELETE FROM outbox WHERE id = 'id-000003'`)
	connectd(t, dir, "audit").want(t, 1, "orders: the books do not balance", "BROKEN  events", "id-000003", "to do: ")

	var all struct{ Connectors []daemon.AuditView }
	j := connectd(t, dir, "audit", "--json")
	j.want(t, 1)
	if err := json.Unmarshal([]byte(j.stdout), &all); err != nil || len(all.Connectors) != 1 || all.Connectors[0].OK || len(all.Connectors[0].Laws) != 7 {
		t.Errorf("%v: %s", err, j.stdout)
	}
	shop.exec(`ALTER TABLE events RENAME TO gone`)
	connectd(t, dir, "audit").want(t, 1, "the events (audit.events): ", "no such table: events")
	connectd(t, dir, "doctor").want(t, 1, "problem  audit ", "the events (audit.events): ", "1 problem")
	connectd(t, dir, "audit", "--json").want(t, 1, `"error": "sqlite: audit:`)
	connectd(t, dir, "audit", "extra").want(t, 2, "takes no arguments")
	connectd(t, dir, "audit", "--connector", "ordres").want(t, 1, `did you mean "orders"?`)
}

func TestIDsAreTold(t *testing.T) {
	for id, want := range map[string]string{
		"cmd-1": "cmd-1", "": `""`, " cmd-403": `" cmd-403"`, "bad id, two \x1b[31m": `"bad id, two \x1b[31m"`, `a"b\`: `"a\"b\\"`, "a\tb": `a\tb`,
	} {
		if got := idText(id, 100); got != want {
			t.Errorf("%q is told as %s, not %s", id, got, want)
		}
	}
}

// TestAuditOfALostConstraint: what other commands refuse to work on is just what an audit must look at.
func TestAuditOfALostConstraint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "connectd.yaml", quickstart)
	shop := openShop(t, dir)
	shop.exec(`CREATE TABLE outbox (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, aggregateid TEXT, type TEXT, payload BLOB)`)
	shop.exec(`CREATE UNIQUE INDEX outbox_id ON outbox (id)`)
	connectd(t, dir, "init").want(t, 0)
	shop.insert(3, 1)
	shop.exec(`DROP INDEX outbox_id`)
	connectd(t, dir, "audit").want(t, 0, "0 ids there twice")
	shop.n = 1
	shop.insert(1, 1)
	connectd(t, dir, "audit").want(t, 1, "BROKEN  identity", "1 ids are there more than once", "id-000002")
	connectd(t, dir, "rows", "list").want(t, 1, "has no unique constraint of its own")
}
