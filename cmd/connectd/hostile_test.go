package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// Who chooses ids must not choose which rows an operator's command is for, nor what a terminal does.
func TestRowsWithHostileIDs(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart)
	s := openShop(t, dir)
	long := strings.Repeat("long", 1<<18)
	hostile := []string{"x\nvictim", "\x1b[2Jcleared", " blank ", "-", `"victim"`, long}
	dead := func(ids ...string) {
		for _, id := range ids {
			s.exec("INSERT INTO outbox (id, payload, state) VALUES (?, '', 'dead')", id)
		}
	}
	dead(hostile...)
	dead("victim")
	for _, verb := range []string{"release", "show"} {
		for _, id := range []string{hostile[0], hostile[1], hostile[1] + " is not there"} {
			r := connectd(t, dir, "rows", verb, id)
			if strings.Contains(r.stdout+r.stderr, "\x1b") {
				t.Errorf("rows %s: escape sequences reach the terminal: %q", verb, r.stdout+r.stderr)
			}
		}
	}
	if r := connectd(t, dir, "rows", "release", hostile[1]); !strings.Contains(r.stderr, "rows retry - (and its id on standard input)") {
		t.Errorf("a command that cannot be copied: %q", r.stderr)
	}
	var lines strings.Builder
	for _, id := range hostile {
		text, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&lines, "%s\n", text)
	}
	r := connectdWith(t, dir, lines.String(), nil, "rows", "skip", "-")
	if r.want(t, 0); strings.Count(r.stdout, "skipped ") != len(hostile) {
		t.Errorf("%q", r.stdout)
	}
	connectd(t, dir, "rows", "explain", "victim").want(t, 0, "victim (orders): dead")
	plain := connectdWith(t, dir, "  victim \n\n", nil, "rows", "retry", "-")
	plain.want(t, 0, "retried victim")
}

// What stands in the table of workers may be anything: it is shown in its place, short, and hides nobody.
func TestHostileHeartbeats(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, strings.Replace(quickstart, "lease: 2s", "lease: 5m", 1))
	s := openShop(t, dir)
	const now = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
	publish := func(owner, since string, info any) {
		text, err := json.Marshal(info)
		if err != nil {
			t.Fatal(err)
		}
		s.exec("INSERT INTO connectd_worker (tbl, owner, heartbeat, info) VALUES ('outbox', ?, "+now+since+", ?)", owner, text)
	}
	evil := "\x1b[2J\n"
	publish("evil"+evil, "", map[string]any{
		"host": evil, "pid": 7, "version": evil, "rate": 1e300, "retries": 1 << 62,
		"engine": map[string]any{"gate": evil, "gate_reason": evil, "source_error": evil}, "plugin": map[string]any{"state": evil, "last_exit": evil},
	})
	publish("huge", "", map[string]any{"host": strings.Repeat("h", maxPublished), "engine": map[string]any{"gate": "open"}})
	publish("future", " + 36000000", map[string]any{"host": "future", "pid": 8})
	s.exec("UPDATE connectd_lease SET owner = ?, epoch = 1, lease_until = "+now+" + 60000", "evil"+evil)
	s.exec("INSERT INTO outbox (id, payload) VALUES ('order-1', '')")
	for _, args := range [][]string{{"status"}, {"rows", "explain", "order-1"}, {"doctor"}} {
		r := connectd(t, dir, args...)
		if strings.Contains(r.stdout+r.stderr, "\x1b") {
			t.Errorf("%s: escape sequences reach the terminal: %q", args, r.stdout+r.stderr)
		}
		for l := range strings.Lines(r.stdout) {
			if len(l) > 1000 {
				t.Errorf("%s: a line of %d bytes: %.200s", args, len(l), l)
			}
		}
	}
	connectd(t, dir, "status").want(t, 0, "1.0e+300/s", "2, 1 silent")
	if r := connectd(t, dir, "status", "--json"); len(r.stdout) > maxPublished {
		t.Errorf("%d bytes of JSON", len(r.stdout))
	}
}

// maxPublished is what a worker publishes at most, in bytes.
const maxPublished = 64 << 10
