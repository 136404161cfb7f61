package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/connectd/connectd/cmd/connectd/rowwork"
)

// failures is an initialised shop with rows in every state a person meets: of key a a dead row and a pending one
// behind it, of key b a held row with a pending one behind it, a row in backoff, one that is published.
func failures(t *testing.T, config string) (dir string, s *shop) {
	t.Helper()
	dir = shopDir(t, config)
	s = openShop(t, dir)
	add := func(id string, key any, state, columns, values string) {
		s.exec("INSERT INTO outbox (id, aggregateid, type, payload, state"+columns+") VALUES (?, ?, 'order.placed', ?, ?"+values+")",
			id, key, []byte(`{"id":"`+id+`"}`), state)
	}
	soon := ", (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) + 600000"
	add("dead", "a", "dead", ", attempts, deliveries, last_error", ", 3, 3, 'the destination said no'")
	add("behind-dead", "a", "pending", "", "")
	add("held", "b", "held", ", deliveries, last_error", ", 1, 'uncertain'")
	add("behind-held", "b", "pending", "", "")
	add("backoff", "c", "pending", ", attempts, deliveries, last_error, available_at", ", 2, 2, 'connection refused'"+soon)
	add("behind-backoff", "c", "pending", "", "")
	add("done", nil, "published", ", deliveries, published_at", ", 1"+soon)
	add("skipped", nil, "skipped", "", "")
	return dir, s
}

func TestRowsList(t *testing.T) {
	t.Parallel()
	dir, _ := failures(t, quickstart)
	connectd(t, dir, "rows", "list").want(t, 0, "behind-held", "the destination said no", "CONNECTOR")
	r := connectd(t, dir, "rows", "list", "--state", "dead", "--json")
	r.want(t, 0)
	var rows []rowwork.View
	if err := json.Unmarshal([]byte(r.stdout), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 1 || rows[0].ID != "dead" || rows[0].Attempts != 3 || *rows[0].Key != "a" || rows[0].LastError == "" ||
		rows[0].Connector != "orders" {
		t.Errorf("%s", r.stdout)
	}
	page := connectd(t, dir, "rows", "list", "--limit", "2")
	if page.want(t, 0, "--after 2"); strings.Contains(page.stdout, "held") {
		t.Errorf("more than asked: %s", page.stdout)
	}
	if next := connectd(t, dir, "rows", "list", "--after", "2", "--limit", "1"); !strings.Contains(next.stdout, "held") {
		t.Errorf("next page: %s", next.stdout)
	}
	empty := connectd(t, shopDir(t, quickstart), "rows", "list", "--json")
	if empty.want(t, 0); strings.TrimSpace(empty.stdout) != "[]" {
		t.Errorf("no rows in JSON: %q", empty.stdout)
	}
}

func TestRowsShow(t *testing.T) {
	t.Parallel()
	dir, s := failures(t, quickstart)
	s.exec("INSERT INTO outbox (id, payload, headers) VALUES ('binary', x'00ff', '{\"a\":\"b\"}')")
	s.exec("INSERT INTO outbox (id, payload) VALUES ('large', ?)", strings.Repeat("ä", maxShown))
	s.exec("INSERT INTO outbox (id, payload, last_error) VALUES ('evil', ?, ?)", "\x1b[2J", "\x1b]0;owned\a")
	connectd(t, dir, "rows", "show", "dead").want(t, 0, "the destination said no", `{"id":"dead"}`, "text")
	connectd(t, dir, "rows", "show", "done").want(t, 0, "key          -\n")
	connectd(t, dir, "rows", "show", "binary").want(t, 0, "base64\nAP8=", `{"a":"b"}`)
	large := connectd(t, dir, "rows", "show", "large")
	if large.want(t, 0, "--json prints all", "bytes, text"); len(large.stdout) > maxShown+1000 {
		t.Errorf("%d bytes printed", len(large.stdout))
	}
	if evil := connectd(t, dir, "rows", "show", "evil"); strings.ContainsAny(evil.stdout, "\x1b\a") {
		t.Errorf("control characters reach the terminal: %q", evil.stdout)
	}
	r := connectd(t, dir, "rows", "show", "--json", "binary", "large", "nothing")
	r.want(t, 1, `no such row with id "nothing" in orders`)
	var rows []rowwork.View
	if err := json.Unmarshal([]byte(r.stdout), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 || *rows[0].PayloadBase64 != "AP8=" || string(rows[0].Headers) == "" || len(*rows[1].Payload) != 2*maxShown {
		t.Errorf("%.500s", r.stdout)
	}
}

func TestRowsExplain(t *testing.T) {
	t.Parallel()
	blocking := strings.Replace(quickstart, "lease: 2s", "lease: 2s, on_dead: block", 1)
	dir, s := failures(t, blocking)
	for id, words := range map[string][]string{
		"dead":           {"failed for good", "the destination said no", "on_dead: block", "rows retry dead", "rows skip dead"},
		"behind-dead":    {"waits behind row 1 (id dead)", "is dead and blocks it", "No daemon works on this table", "start connectd run"},
		"held":           {"may have been sent", "rows release held", "rows skip held", "Later rows of its key wait"},
		"behind-held":    {"waits behind row 3 (id held)"},
		"backoff":        {"failed 2 times and is due again at", "connection refused"},
		"behind-backoff": {"waits behind row 5 (id backoff)", "failed 2 times and is due at"},
		"done":           {"The sink confirmed it at", "1 send"},
		"skipped":        {"given up"},
	} {
		connectd(t, dir, "rows", "explain", id).want(t, 0, words...)
	}
	r := connectd(t, dir, "rows", "explain", "nothing", "--json")
	r.want(t, 1, "rolled back", "has never removed one there")
	var list []explanation
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil || len(list) != 1 || list[0].State != "not found" || list[0].Because[0].Code != "never_committed" {
		t.Errorf("%v: %s", err, r.stdout)
	}
	s.exec("UPDATE connectd_lease SET owner = 'worker-1', epoch = 1, lease_until = (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) + 60000")
	s.exec("INSERT INTO connectd_inflight (tbl, part, epoch, batch, seqs, sent_at) VALUES ('outbox', 0, 1, 1, '[6]', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))")
	connectd(t, dir, "rows", "explain", "behind-backoff").want(t, 0, "sending", "Send 1 of it is on its way since 20", "in a call of worker worker-1", "lease ends at 20")
	connectd(t, dir, "rows", "list").want(t, 0, "sending")
	s.exec("UPDATE connectd_lease SET lease_until = lease_until - 90000")
	connectd(t, dir, "rows", "explain", "behind-backoff").want(t, 0, "when it was cut off: the lease of worker worker-1 ran out at 20", "possible-duplicate mark")
}

// A time as far away as times go, a state that connectd does not know, and escape sequences wherever text may be.
func TestRowsThatNobodyExpects(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart)
	s := openShop(t, dir)
	s.exec("INSERT INTO outbox (id, created_at) VALUES ('future', 99999999999999999)")
	s.exec("PRAGMA ignore_check_constraints = 1; INSERT INTO outbox (id, state) VALUES ('it''s odd', 'wei\x1b[31mrd')")
	s.exec("INSERT INTO outbox (id, state, last_error) VALUES ('it''s dead', 'dead', 'no'), ('\x1b[31mred', 'dead', '\x1b[2J'), ('\x1b[31mheld', 'held', NULL)")
	connectd(t, dir, "rows", "list").want(t, 0, "future", `wei\x1b[31mrd`)
	connectd(t, dir, "status").want(t, 0)
	connectd(t, dir, "rows", "explain", "it's odd").want(t, 0, "knows no such state", "set its state to 'pending'")
	connectd(t, dir, "rows", "explain", "it's dead").want(t, 0, `rows retry 'it'\''s dead'`)
	for _, args := range [][]string{
		{"rows", "list"},
		{"rows", "explain", "it's odd", "\x1b[31mred", "\x1b[31mheld"},
		{"rows", "show", "it's odd", "\x1b[31mred", "\x1b[31mheld"},
	} {
		if r := connectd(t, dir, args...); strings.ContainsRune(r.stdout+r.stderr, '\x1b') {
			t.Errorf("%v writes escape sequences: %q", args, r.stdout+r.stderr)
		}
	}
}

func TestRowsChange(t *testing.T) {
	t.Parallel()
	dir, s := failures(t, quickstart)
	connectd(t, dir, "rows", "retry", "held").want(t, 1, "row held is held, not dead", "rows explain held")
	connectd(t, dir, "rows", "release", "dead").want(t, 1, "row dead is dead, not held", "rows retry dead")
	connectd(t, dir, "rows", "skip", "done").want(t, 1, "row done is published")
	connectd(t, dir, "rows", "retry", "nothing", "dead").want(t, 1, "retried dead", `"nothing"`)
	connectd(t, dir, "rows", "release", "held").want(t, 0, "released held")
	if n := s.count("pending"); n != 6 {
		t.Errorf("%d rows are pending, want 6", n)
	}
	s.exec("UPDATE outbox SET state = 'dead' WHERE id IN ('backoff', 'behind-backoff', 'held')")
	r := connectdWith(t, dir, "behind-backoff\nheld\n\nheld\n", map[string]string{"USER": "eve"}, "rows", "retry", "--json", "-", "backoff")
	r.want(t, 0)
	var done []rowwork.Changed
	if err := json.Unmarshal([]byte(r.stdout), &done); err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, d := range done {
		order = append(order, d.ID)
	}
	if fmt.Sprint(order) != "[held backoff behind-backoff]" {
		t.Errorf("retried in the order %v, not in the table's", order)
	}
	connectd(t, dir, "rows", "show", "held").want(t, 0, "by cli:eve@", "attempts     0")
	connectd(t, dir, "rows", "explain", "skipped").want(t, 0, "given up")
}

// TestRowsChangeByRange: rows are named by their seq, of one connector; only those that the command is for are changed.
func TestRowsChangeByRange(t *testing.T) {
	t.Parallel()
	second := strings.NewReplacer("orders", "mails", "outbox", "mailbox", "out.jsonl", "mails.jsonl", "connectors:\n", "").Replace(quickstart)
	dir := shopDir(t, quickstart+second)
	s := openShop(t, dir)
	for i, state := range []string{"held", "dead", "held", "pending", "held", "dead"} {
		s.exec("INSERT INTO outbox (id, state) VALUES (?, ?)", fmt.Sprint("row", i+1), state)
	}
	connectd(t, dir, "rows", "release", "--seq", "1-4").want(t, 2, "--connector")
	for _, wrong := range []string{"4-1", "x", "0", "1-", "-3"} {
		connectd(t, dir, "rows", "release", "--connector", "orders", "--seq", wrong).want(t, 2, "must be a number or FROM-TO")
	}
	connectd(t, dir, "rows", "release", "--connector", "orders", "--seq", "4").want(t, 0, "no such rows")
	connectd(t, dir, "rows", "release", "--connector", "orders", "--seq", "2-4").want(t, 0, "released row3\n")
	connectd(t, dir, "rows", "skip", "--connector", "orders", "--seq", "1-5", "row6").want(t, 0, "skipped row1\nskipped row2\nskipped row5\nskipped row6\n")
	if s.count("pending") != 2 || s.count("skipped") != 4 {
		t.Errorf("%d pending, %d skipped", s.count("pending"), s.count("skipped"))
	}
	connectd(t, dir, "rows", "show", "row5").want(t, 0, "skip", "by cli:")
}

// TestRowsOfSeveralConnectors: an id is looked for in all tables, and one that is in two of them needs --connector.
func TestRowsOfSeveralConnectors(t *testing.T) {
	t.Parallel()
	second := strings.NewReplacer("orders", "mails", "outbox", "mailbox", "out.jsonl", "mails.jsonl", "connectors:\n", "").Replace(quickstart)
	dir := shopDir(t, quickstart+second)
	s := openShop(t, dir)
	s.exec("INSERT INTO outbox (id, state) VALUES ('both', 'dead'), ('first', 'dead')")
	s.exec("INSERT INTO mailbox (id, state) VALUES ('both', 'dead'), ('second', 'dead')")
	connectd(t, dir, "rows", "list").want(t, 0, "orders", "mails")
	connectd(t, dir, "rows", "retry", "first", "second").want(t, 0, "retried first", "retried second")
	connectd(t, dir, "rows", "retry", "both").want(t, 1, "choose with --connector")
	connectd(t, dir, "rows", "retry", "both", "--connector", "mails").want(t, 0, "retried both")
	if n := s.count("dead"); n != 1 {
		t.Errorf("%d rows of the other table are dead, want 1", n)
	}
	s.exec("DROP TABLE mailbox")
	connectd(t, dir, "rows", "list").want(t, 1, "both", "mails: ", "connectd init")
	connectd(t, dir, "status").want(t, 1, "stopped", "unknown", "connectd init")
}

// A daemon that cannot write its heartbeat looks as one that is gone; status tells which process to look for.
func TestStatusTellsWhoWasHeardLast(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart)
	connectd(t, dir, "status").want(t, 0, "no worker is alive: no daemon runs")
	openShop(t, dir).exec(`INSERT INTO connectd_worker (tbl, owner, heartbeat, info)
		VALUES ('outbox', 'one', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - 60000, '{"host":"shop-1","pid":4711}'), ('outbox', 'two', 0, '{}')`)
	connectd(t, dir, "status").want(t, 0, "no worker is alive; pid 4711 of shop-1 was last heard 1m")
}

func TestStatusJSON(t *testing.T) {
	t.Parallel()
	dir, s := failures(t, quickstart)
	r := connectd(t, dir, "status", "--json")
	r.want(t, 0)
	var answer struct{ Connectors []connectorStatus }
	if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil {
		t.Fatal(err)
	}
	c := answer.Connectors[0]
	if c.State != "stopped" || c.Lag.Rows != 4 || c.Lag.Due != 3 || c.Dead != 1 || c.Held != 1 || c.Leases.Partitions != 1 {
		t.Errorf("%s", r.stdout)
	}
	s.exec("UPDATE outbox SET state = 'published' WHERE state <> 'dead'")
	d := startDaemon(t, dir)
	d.ready()
	d.eventually("status shows the daemon", func() (bool, string) {
		r := connectd(t, dir, "status", "--json")
		if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil {
			t.Fatal(err)
		}
		c := answer.Connectors[0]
		ok := c.State == "running" && len(c.Workers) == 1 && c.Workers[0].Published.PID == d.cmd.Process.Pid &&
			c.Workers[0].Published.Plugin.PID == d.sinkPID() && c.Workers[0].Leases == 1
		return ok, r.stdout
	})
	connectd(t, dir, "status").want(t, 0, "running", fmt.Sprint("pid ", d.sinkPID()), "1/1")
}
