package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestOddRows: what can be sent arrives byte for byte; a row that cannot be made into a record is dead, alone, with its
// reason and without ever having been sent.
func TestOddRows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "connectd.yaml", strings.Replace(quickstart, "lease: 2s", "lease: 30s", 1))
	s := openShop(t, dir)
	// The application's own table, with an id that may be NULL.
	s.exec("CREATE TABLE outbox (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, aggregateid TEXT, aggregatetype TEXT, type TEXT, payload BLOB, headers TEXT)")
	connectd(t, dir, "init").want(t, 0)
	broken := []byte("a\xffb")
	bad := []struct {
		name                     string
		id, key, route, kind, hd any
		reason                   string
	}{
		{"null id", nil, "k", "r", "t", nil, "id is NULL"},
		{"id", broken, "k", "r", "t", nil, "id is not UTF-8"},
		{"key", "bad-key", broken, "r", "t", nil, "key is not UTF-8"},
		{"route", "bad-route", "k", broken, "t", nil, "route is not UTF-8"},
		{"type", "bad-type", "k", "r", broken, nil, "type is not UTF-8"},
		{"headers", "bad-headers", "k", "r", "t", `{"broken`, "headers"},
		{"headers' text", "bad-text", "k", "r", "t", []byte("{\"a\":\"\xff\"}"), "headers"},
		{"headers' kind", "bad-kind", "k", "r", "t", `["a"]`, "headers"},
	}
	for _, r := range bad {
		s.exec(`INSERT INTO outbox (id, aggregateid, aggregatetype, type, headers, payload) VALUES
			(CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), '{}')`, r.id, r.key, r.route, r.kind, r.hd)
	}
	good := map[string]struct {
		key     any
		payload []byte
	}{
		"no-key":       {nil, []byte(`{"a":1}`)},
		"empty-key":    {"", []byte(`{"a":1}`)},
		"empty":        {"k", []byte{}},
		"null":         {"k", nil},
		"large":        {"k", bytes.Repeat([]byte("0123456789abcdef"), 20<<20/16)},
		"invalid-utf8": {"k", []byte("\xff\xfe{}")},
		"spaces":       {"k", []byte(`{"a" :  1.0, "a":"\u00e4"}`)},
	}
	for id, r := range good {
		s.exec("INSERT INTO outbox (id, aggregateid, payload, headers) VALUES (?, ?, ?, ?)", id, r.key, r.payload, `{"emoji":"🦊"}`)
	}
	startDaemon(t, dir)
	s.published(len(good))
	eventually(t, "the bad ones are dead", func() (bool, string) { return s.count("dead") == len(bad), "" })
	for i, r := range bad {
		var state, reason string
		if err := s.db.QueryRow("SELECT state, last_error FROM outbox WHERE seq = ?", i+1).Scan(&state, &reason); err != nil {
			t.Fatal(err)
		}
		if state != "dead" || !strings.HasPrefix(reason, "invalid: ") || !strings.Contains(reason, r.reason) {
			t.Errorf("%s: %s, %q", r.name, state, reason)
		}
	}
	listed := connectd(t, dir, "rows", "list", "--state", "dead")
	listed.want(t, 0, "id is NULL", "headers")
	if refused := regexp.MustCompile(`bad-headers .* dead +1 +0 `); !refused.MatchString(listed.stdout) {
		t.Errorf("a row that was refused has been sent, it says:\n%s", listed.stdout)
	}
	explained := connectd(t, dir, "rows", "explain", "bad-headers")
	if explained.want(t, 0, "refused without ever being sent: invalid", "headers"); strings.Contains(explained.stdout, "1 send") {
		t.Error(explained.stdout)
	}
	connectd(t, dir, "rows", "show", "bad-headers").want(t, 0, "sends        0 known or possible", "(not sent, by ")
	got := map[string]sent{}
	for _, a := range arrivals(t, dir) {
		got[a.ID] = a
	}
	if len(got) != len(good) {
		t.Fatalf("%d rows arrived, want %d", len(got), len(good))
	}
	if got["no-key"].Key != nil || got["empty-key"].Key == nil || *got["empty-key"].Key != "" {
		t.Error("a row without a key and one with an empty key are not told apart")
	}
	for id, want := range good {
		if data := payloadOf(t, got[id]); !bytes.Equal(data, want.payload) {
			t.Errorf("%s: the payload is not what was inserted: %d bytes, %.100q", id, len(data), data)
		}
	}
}

// payloadOf is the payload of a line, byte for byte.
func payloadOf(t *testing.T, line sent) []byte {
	t.Helper()
	if line.PayloadBase64 == nil {
		return line.Payload
	}
	data, err := base64.StdEncoding.DecodeString(*line.PayloadBase64)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestRefusedRowMendedAndRetried: what was refused unsent is no send, and the one that follows is the first.
func TestRefusedRowMendedAndRetried(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart)
	s := openShop(t, dir)
	s.exec("INSERT INTO outbox (id, headers) VALUES ('odd', '[]')")
	startDaemon(t, dir)
	eventually(t, "it is dead", func() (bool, string) { return s.count("dead") == 1, "" })
	s.exec("UPDATE outbox SET headers = NULL")
	connectd(t, dir, "rows", "retry", "odd").want(t, 0)
	s.published(1)
	connectd(t, dir, "rows", "explain", "odd").want(t, 0, "The sink confirmed it", "; 1 send.")
}

// Somebody renames the database under the daemon and puts another in its place, as a restored backup does.
func TestTheDatabaseIsReplacedUnderTheDaemon(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart)
	insert := "INSERT INTO outbox (id, payload) VALUES (?, '{}')"
	openShop(t, dir).exec(insert, "before")
	d := startDaemon(t, dir)
	eventually(t, "the first row", func() (bool, string) { return len(arrivals(t, dir)) == 1, "" })
	for _, suffix := range []string{"", "-wal", "-shm"} {
		path := filepath.Join(dir, "shop.db"+suffix)
		if err := os.Rename(path, path+".old"); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the daemon says what happened", func() (bool, string) {
		log := d.log.String()
		return strings.Contains(log, "was deleted or renamed") && strings.Contains(log, "connectd init"), log
	})
	connectd(t, dir, "init").want(t, 0)
	openShop(t, dir).exec(insert, "after")
	eventually(t, "the row of the new file", func() (bool, string) {
		list := arrivals(t, dir)
		return len(list) == 2 && list[1].ID == "after", d.log.String()
	})
}

// TestDatabaseLockedLongerThanTheBusyTimeout: the daemon says so, keeps trying, and goes on by itself:
// https://github.com/latitude-dev/latitude-llm/issues/3835, https://github.com/RunLLM/aqueduct/pull/369
func TestDatabaseLockedLongerThanTheBusyTimeout(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, strings.Replace(quickstart, "lease: 2s", "lease: 16s", 1))
	s := openShop(t, dir)
	d := startDaemon(t, dir)
	d.ready()
	s.insert(5, 2)
	s.published(5)
	conn, err := s.db.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(context.Background(), "BEGIN EXCLUSIVE"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(context.Background(),
		"INSERT INTO outbox (id, aggregateid) VALUES ('id-000006', 'key-0')"); err != nil {
		t.Fatal(err)
	}
	d.eventually("readiness gives the reason", func() (bool, string) {
		code, body := d.get("/readyz")
		return code == 503 && strings.Contains(body, "source: ") && strings.Contains(body, "database is locked"), body
	})
	if _, err := conn.ExecContext(context.Background(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	s.published(6)
	d.ready()
	audit(t, dir, 6)
}

// TestFullDiskOfTheFileSink: nothing is buried, the reason is shown, and it goes on when there is room again.
func TestFullDiskOfTheFileSink(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, strings.Replace(quickstart, "lease: 2s", "lease: 2s, retry: {initial: 10ms, max: 200ms}", 1))
	out := filepath.Join(dir, "out.jsonl")
	if err := os.Symlink("/dev/full", out); err != nil {
		t.Fatal(err)
	}
	s := openShop(t, dir)
	s.insert(5, 2)
	d := startDaemon(t, dir)
	d.eventually("the reason is shown", func() (bool, string) {
		code, body := d.get("/readyz")
		return code == 503 && strings.Contains(body, "no space left"), body
	})
	var attempts int
	if err := s.db.QueryRow("SELECT max(attempts) FROM outbox").Scan(&attempts); err != nil || attempts != 0 {
		t.Errorf("a full disk was charged to rows: %d attempts, %v", attempts, err)
	}
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	s.published(5)
	audit(t, dir, 5)
}

// TestRowsThatCommitWhileItRuns arrive soon: within a second, though the poll's upper bound is half of it.
func TestRowsThatCommitWhileItRuns(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart)
	s := openShop(t, dir)
	d := startDaemon(t, dir)
	d.ready()
	for i := range 5 {
		began := time.Now()
		s.insert(1, 1)
		s.published(i + 1)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("row %d after %v", i+1, took)
		}
	}
	_, metrics := d.get("/metrics")
	if !strings.Contains(metrics, fmt.Sprintf(`connectd_settled_rows_total{connector="orders",state="published"} %d`, 5)) {
		t.Error("the metrics do not count the published rows")
	}
}
