package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/connectd/connectd/cmd/connectd/rowwork"
	"github.com/connectd/connectd/core"
)

// all is the whole outbox table as rows show has it.
func (s *shop) all(dir string) string {
	s.t.Helper()
	ids := connectd(s.t, dir, "rows", "list", "--json", "--limit", "10000")
	var rows []rowwork.View
	if err := json.Unmarshal([]byte(ids.stdout), &rows); err != nil {
		s.t.Fatal(err)
	}
	args := []string{"rows", "show", "--json"}
	for _, row := range rows {
		args = append(args, row.ID)
	}
	return connectd(s.t, dir, args...).stdout
}

// listedIDs are the ids that rows list prints.
func listedIDs(t *testing.T, dir string, args ...string) string {
	t.Helper()
	r := connectd(t, dir, append([]string{"rows", "list", "--json"}, args...)...)
	var rows []rowwork.View
	if err := json.Unmarshal([]byte(r.stdout), &rows); err != nil || r.code != 0 {
		t.Fatalf("%v: %+v", err, r)
	}
	var list []string
	for _, row := range rows {
		list = append(list, row.ID)
	}
	return strings.Join(list, " ")
}

func TestRowsListFilters(t *testing.T) {
	t.Parallel()
	dir, s := failures(t, quickstart)
	s.exec("UPDATE outbox SET created_at = created_at - 7200000 WHERE id IN ('dead', 'held')")
	s.exec("UPDATE outbox SET type = 'mail' WHERE id IN ('held', 'backoff')")
	for args, want := range map[string]string{
		"--key a": "dead behind-dead", "--key a --state dead": "dead", "--type mail": "held backoff", "--reason said": "dead", "--reason SAID": "",
		"--older 1h": "dead held", "--older 1h --type mail": "held", "--newer 1h --key a": "behind-dead", "--older 1h --newer 3h --limit 1": "dead",
		"--key a --after 1": "behind-dead", "--key nobody": "",
	} {
		if got := listedIDs(t, dir, strings.Fields(args)...); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
	for args, words := range map[string]string{
		"list --key=": "--key is empty", "list --older 5": "--older must be a duration with a unit", "list --newer 0s": "--newer must be above 0", "list --state=": "--state is empty", "list --state sending": "such rows are pending", "explain -": "no IDs came on standard input",
		"retry": "at least one ID, a filter or --all", "retry --all dead": "--all is all of them", "retry --all --key a": "--all is all of them", "skip --key=": "--key is empty",
		"retry --state held": "no row that is held can be retried", "release --state dead": "no row that is dead can be released", "skip --state pending": "no row that is pending can be skipped",
		"release --payload x held": "no flag", "retry --payload x": "needs at least one ID", "retry --payload x a b": "for one row", "retry --payload x --key a": "for one row",
		"retry --payload - -": "only one of", "retry --payload - --headers - a": "only one of", "retry --seq= --key a": "must be a number",
	} {
		connectd(t, dir, append([]string{"rows"}, strings.Fields(args)...)...).want(t, 2, words)
	}
}

// TestDryRunChangesNothing, whatever chooses the rows, and tells which they are.
func TestDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	dir, s := failures(t, quickstart)
	write(t, dir, "new", "new")
	before := s.all(dir)
	for _, c := range []struct {
		args, ids string
		code      int
	}{
		{"skip --all", "dead held", 0},
		{"skip --state held", "held", 0},
		{"retry --reason said", "dead", 0},
		{"release --key b", "held", 0},
		{"release --key a", "", 0},
		{"skip --seq 2-9 dead", "dead held", 0},
		{"retry dead done nothing", "dead", 1},
		{"retry dead --payload " + filepath.Join(dir, "new"), "dead", 0},
	} {
		args := append([]string{"rows", "--dry-run", "--why", "a trial"}, strings.Fields(c.args)...)
		args[0], args[1], args[4] = "rows", args[4], args[1] // the command's name comes second
		words := connectd(t, dir, args...)
		words.want(t, c.code, "nothing was changed")
		r := connectd(t, dir, append(args, "--json")...)
		r.want(t, c.code, "would be")
		var changed []rowwork.Changed
		if err := json.Unmarshal([]byte(r.stdout), &changed); err != nil {
			t.Fatalf("%s: %v: %s", c.args, err, r.stdout)
		}
		var ids []string
		for _, row := range changed {
			if row.Done || !row.DryRun && row.Error == "" {
				t.Errorf("%s: %+v", c.args, row)
			}
			if row.Error == "" {
				ids = append(ids, row.ID)
				if !strings.Contains(words.stdout, row.ID) {
					t.Errorf("%s: %s is missing in %s", c.args, row.ID, words.stdout)
				}
			}
		}
		if strings.Join(ids, " ") != c.ids {
			t.Errorf("%s: %v, want %s", c.args, ids, c.ids)
		}
	}
	if after := s.all(dir); after != before {
		t.Errorf("changed from\n%s\nto\n%s", before, after)
	}
}

// TestRowsAreChangedInBulk: by filters, in order, those that cannot be changed counted, with who and why in their history.
func TestRowsAreChangedInBulk(t *testing.T) {
	t.Parallel()
	dir, s := failures(t, quickstart)
	for i := range 5 {
		s.exec("INSERT INTO outbox (id, aggregateid, type, state, last_error) VALUES (?, 'bulk', 'mail', 'dead', 'http_500: no')", fmt.Sprint("bulk", i))
	}
	connectd(t, dir, "rows", "skip", "--key", "nobody").want(t, 0, "no such rows")
	connectd(t, dir, "rows", "retry", "-").want(t, 0, "no IDs came on standard input")
	why := "the receiver was down\n" + strings.Repeat("x", 2*core.MaxErrorText)
	r := connectdWith(t, dir, "", map[string]string{"USER": "eve"}, "rows", "retry", "--key", "bulk", "--reason", "http_500", "--why", why, "done", "dead")
	r.want(t, 1, "6 rows retried, 1 could not be", "row done is published")
	if want := "retried dead\nretried bulk0\nretried bulk1\nretried bulk2\nretried bulk3\nretried bulk4\n"; r.stdout != want {
		t.Errorf("%s, want %s", r.stdout, want)
	}
	show := connectd(t, dir, "rows", "show", "bulk3")
	show.want(t, 0, "history", "retry  the receiver was down x", "by cli:eve@")
	if len(show.stdout) > 2*core.MaxErrorText {
		t.Errorf("%d bytes of text", len(show.stdout))
	}
	connectd(t, dir, "rows", "explain", "bulk3").want(t, 0, "It was retried by cli:eve@", ": the receiver was down x")
	var changed []rowwork.Changed
	skip := connectd(t, dir, "rows", "skip", "--all", "--json")
	if err := json.Unmarshal([]byte(skip.stdout), &changed); err != nil || len(changed) != 1 || changed[0] != (rowwork.Changed{Connector: "orders", Seq: 3, ID: "held", Done: true}) {
		t.Errorf("%v: %s", err, skip.stdout)
	}
	if empty := connectd(t, dir, "rows", "skip", "--all", "--json"); strings.TrimSpace(empty.stdout) != "[]" || empty.code != 0 {
		t.Errorf("%+v", empty)
	}
}

// TestRowsThatAreDoneAreNotSentAgain, unless a person names them, who is told.
func TestRowsThatAreDoneAreNotSentAgain(t *testing.T) {
	t.Parallel()
	dir, s := failures(t, quickstart)
	s.exec("INSERT INTO outbox (id, state) VALUES ('dead2', 'dead')")
	s.exec("INSERT INTO connectd_receipt (command_id, consumer, status) VALUES ('dead', 'billing', 'done'), ('held', 'billing', 'done'), ('dead2', 'billing', 'failed')")
	for _, dry := range [][]string{{"--dry-run"}, nil} {
		args := func(args ...string) []string { return append(append([]string{"rows"}, args...), dry...) }
		connectd(t, dir, args("release", "--key", "b")...).want(t, 1, "row held is left as it is", "connectd rows skip held", "1 could not be")
		r := connectd(t, dir, args("retry", "--all")...)
		if r.want(t, 1, "row dead is left as it is", "billing", "1 row ", ", 1 could not be"); !strings.Contains(r.stdout, "dead2") {
			t.Errorf("%+v", r)
		}
		if n, m := s.count("dead"), s.count("held"); m != 1 || n != 1+len(dry) {
			t.Errorf("%d rows are dead, %d held", n, m)
		}
		connectd(t, dir, args("release", "held", "--json")...).want(t, 0, `has done it, and it is sent again all the same`)
		connectd(t, dir, args("retry", "--key", "a", "dead")...).want(t, 0, "row dead: consumer", "sent again all the same")
	}
	if n, m := s.count("dead"), s.count("held"); n+m != 0 {
		t.Errorf("%d rows are dead, %d held", n, m)
	}
}

// TestNobodyKnowsTheUser: whoever has no name in the session (cron, systemd) has that of the system, or a number.
func TestNobodyKnowsTheUser(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	known := func(uid string) (*user.User, error) { return &user.User{Username: "name of " + uid}, nil }
	unknown := func(string) (*user.User, error) { return nil, user.UnknownUserIdError(7) }
	if a, b, c := userName(7, none, known), userName(7, none, unknown), userName(-1, none, known); a != "name of 7" || b != "uid 7" || c != "unknown" {
		t.Error(a, b, c)
	}
	dir, _ := failures(t, quickstart)
	connectdWith(t, dir, "", nil, "rows", "retry", "dead").want(t, 0, "retried dead")
	if show := connectd(t, dir, "rows", "show", "dead"); strings.Contains(show.stdout, "cli:unknown@") || !strings.Contains(show.stdout, "by cli:") {
		t.Error(show.stdout)
	}
}

// TestBulkNeedsOneConnector, also where another one cannot be opened just now.
func TestBulkNeedsOneConnector(t *testing.T) {
	t.Parallel()
	second := strings.NewReplacer("orders", "mails", "outbox", "mailbox", "out.jsonl", "mails.jsonl", "connectors:\n", "").Replace(quickstart)
	dir := shopDir(t, quickstart+second)
	s := openShop(t, dir)
	s.exec("INSERT INTO outbox (id, state) VALUES ('one', 'dead')")
	s.exec("INSERT INTO mailbox (id, state) VALUES ('two', 'dead')")
	connectd(t, dir, "rows", "retry", "--all").want(t, 2, "choose with --connector")
	s.exec("DROP TABLE mailbox")
	connectd(t, dir, "rows", "retry", "--all").want(t, 2, "choose with --connector")
	connectd(t, dir, "rows", "retry", "--all", "--connector", "orders").want(t, 0, "retried one")
}

// TestEditAndRetry: a row gets other content byte for byte, from a file or stdin, and what it was is shown.
func TestEditAndRetry(t *testing.T) {
	t.Parallel()
	dir, s := failures(t, quickstart)
	file := filepath.Join(dir, "payload.json")
	write(t, dir, "payload.json", "{\"n\": 2}\n")
	write(t, dir, "bad.json", `["no object"]`)
	edit := func(args ...string) result {
		return connectdWith(t, dir, `{"from":"stdin"}`, map[string]string{"USER": "eve"}, append([]string{"rows", "retry"}, args...)...)
	}
	edit("dead", "--payload", filepath.Join(dir, "missing")).want(t, 1, "read the payload", "no such file")
	edit("dead", "--headers", filepath.Join(dir, "bad.json")).want(t, 1, "row dead is not changed", "not a JSON object")
	edit("held", "--payload", file).want(t, 1, "row held is held, not dead")
	if n := s.count("dead"); n != 1 {
		t.Errorf("%d rows are dead, want 1", n)
	}
	edit("dead", "--payload", file, "--headers", "-", "--why", "typo in n").want(t, 0, "retried dead", "earlier version under the same id")
	s.exec("UPDATE outbox SET state = 'dead' WHERE id = 'dead'")
	edit("dead", "--payload", "-").want(t, 0, "retried dead")
	show := connectd(t, dir, "rows", "show", "dead")
	show.want(t, 0, "edit  typo in n  (by cli:eve@", "edited by cli:eve@", ": typo in n; what it was:", `{"id":"dead"}`, `{"n": 2}`, `{"from":"stdin"}`)
	var rows []rowwork.View
	if err := json.Unmarshal([]byte(connectd(t, dir, "rows", "show", "--json", "dead").stdout), &rows); err != nil {
		t.Fatal(err)
	}
	r := rows[0]
	if *r.Payload != `{"from":"stdin"}` || len(r.Revisions) != 2 || *r.Revisions[0].Payload != `{"id":"dead"}` || *r.Revisions[1].Payload != "{\"n\": 2}\n" ||
		r.Revisions[0].Headers != nil || string(r.Revisions[1].Headers) == "" || r.Revisions[0].Why != "typo in n" || !strings.HasPrefix(r.Revisions[1].By, "cli:eve@") || r.Revisions[0].Until == "" {
		t.Errorf("%+v", r)
	}
	large, err := os.Create(filepath.Join(dir, "large"))
	if err != nil {
		t.Fatal(err)
	}
	defer large.Close()
	if err := large.Truncate(maxContent + 1); err != nil {
		t.Fatal(err)
	}
	edit("behind-dead", "--payload", large.Name()).want(t, 1, "larger than 67108864 bytes")
}

// TestShowTellsOfEachSend: when, what, which send, how long it took and whose it was.
func TestShowTellsOfEachSend(t *testing.T) {
	t.Parallel()
	dir, s := failures(t, quickstart)
	s.exec(`INSERT INTO connectd_attempt (tbl, seq, n, at, deliveries, code, message, by, duration_ms) VALUES
		('outbox', 1, 1, 1700000000000, 3, 'http_422', 'no such trip', 'worker-7', 1250), ('outbox', 1, 2, 1700000001000, 0, 'invalid', 'id is NULL', 'worker-7', 0)`)
	connectd(t, dir, "rows", "show", "dead").want(t, 0, "2023-11-14T22:13:20.000Z  http_422  no such trip  (send 3, by worker-7, took 1.2s)", "invalid  id is NULL  (not sent, by worker-7)")
	connectd(t, dir, "rows", "show", "dead", "--json").want(t, 0, `"seconds": 1.25`, `"deliveries": 3`, `"by": "worker-7"`)
}
