package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestDocumentedRowsCommands runs the commands of docs/operating.md on rows that stopped, each block as a shell would,
// and those over HTTP against a daemon. They find this test binary under the names connectd and curl.
func TestDocumentedRowsCommands(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, path := shopDir(t, quickstart), standIns(t, "connectd", "curl")
	s := openShop(t, dir)
	for _, r := range []struct{ id, key, state, reason, headers string }{
		{"order-1", "trip-7", "dead", "http_422: no such trip", ""}, {"order-2", "trip-9", "dead", "http_422: amount", ""}, {"order-3", "trip-9", "dead", "invalid", `["ams"]`},
		{"order-4", "trip-9", "dead", "http_422: no", ""}, {"held-1", "trip-8", "held", "uncertain", ""}, {"held-2", "trip-8", "held", "uncertain", ""},
		{"away-1", "trip-7", "skipped", "", ""}, {"away-2", "trip-7", "skipped", "", ""}, {"order-5", "trip-7", "dead", "http_422: no", ""},
	} {
		s.exec("INSERT INTO outbox (id, aggregateid, type, payload, state, last_error, headers, created_at) VALUES (?, ?, 'order.placed', '{}', ?, ?, nullif(?, ''), CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - 7200000)",
			r.id, r.key, r.state, r.reason, r.headers)
	}
	giveUp(t, dir, s)
	shell := func(script string) string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "sh", "-c", "set -eu\n"+script)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), path, "TOKEN=s3cret")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, script, out)
		}
		return string(out)
	}
	out := shell(strings.ReplaceAll(marked(t, string(page), "stopped"), "connectd rows retry --all\n", ""))
	for _, want := range []string{
		"order-1 ", "retried order-1", "dry run: 2 rows would be retried; nothing was changed", "retried away-1\nretried away-2\n2 rows retried", "retried order-2", "retried order-3",
		`{"order":2,"amount":900}`, "edit  amount was missing, ticket 4711  (by cli:", "skipped order-4", "skipped held-1\nskipped held-2\n2 rows skipped",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	write(t, dir, "connectd.yaml", "daemon: {token: s3cret}\n"+quickstart)
	d := startDaemon(t, dir)
	s.published(5)
	script := strings.ReplaceAll(marked(t, string(page), "stopped over HTTP"), "http://127.0.0.1:8083", d.url())
	out = shell(script + "connectd rows show order-5\n")
	for _, want := range []string{`"id":"order-5"`, `"id":"order-1"`, `"dry_run":true,"changed":1`, `"done":true`, `{"order":5}`, "edit  ticket 4711  (by api:ann@127.0.0.1)"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	s.exec("INSERT INTO outbox (id, state) VALUES ('last', 'dead')")
	if out := shell("connectd rows retry --all\n"); !strings.Contains(out, "retried last") {
		t.Error(out)
	}
}

// marked are the shell blocks between the marks of that name.
func marked(t *testing.T, page, mark string) string {
	t.Helper()
	_, after, _ := strings.Cut(page, "<!-- "+mark+" -->")
	text, _, found := strings.Cut(after, "<!-- /"+mark+" -->")
	if !found {
		t.Fatalf("no part %q", mark)
	}
	return shellBlocks(text)
}

// curl does what curl does with the flags -H and -d, for machines that have none.
func curl(args []string) error {
	var url, body string
	method, header := http.MethodGet, http.Header{}
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "-H":
			i++
			name, value, _ := strings.Cut(args[i], ": ")
			header.Set(name, value)
		case "-d":
			i++
			method, body = http.MethodPost, args[i]
		default:
			url = args[i]
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header = header
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}

// giveUp has a daemon give up the rows away-1 and away-2, whose receiver answers 503 to each attempt.
func giveUp(t *testing.T, dir string, s *shop) {
	t.Helper()
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "busy", http.StatusServiceUnavailable)
	}))
	defer busy.Close()
	write(t, dir, "connectd.yaml", strings.NewReplacer("{plugin: file, path: ./out.jsonl}", `{plugin: webhook, url: "`+busy.URL+`/", ssrf: {mode: "off", allow_hosts: [127.0.0.1]}}`,
		"{lease: 2s}", "{lease: 2s, retry: {initial: 1ms, max: 2ms, max_attempts: 2}}").Replace(quickstart))
	s.exec("UPDATE outbox SET state = 'pending' WHERE id LIKE 'away-%'")
	d := startDaemon(t, dir)
	eventually(t, "the rows are given up", func() (bool, string) {
		got := s.count("pending")
		return got == 0, fmt.Sprintf("%d are pending", got)
	})
	d.signal(syscall.SIGTERM)
	d.wait()
	write(t, dir, "connectd.yaml", quickstart)
}
