package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestOddRows: what can be sent arrives byte for byte; a row that cannot be made into a record is dead, alone and with
// its reason.
func TestOddRows(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, strings.Replace(quickstart, "lease: 2s", "lease: 30s", 1))
	s := openShop(t, dir)
	large := bytes.Repeat([]byte("0123456789abcdef"), 20<<20/16)
	for id, v := range map[string]struct{ key, payload, headers any }{
		"no-key":       {nil, `{"a":1}`, nil},
		"empty-key":    {"", `{"a":1}`, nil},
		"empty":        {"k", "", nil},
		"large":        {"k", large, nil},
		"invalid-utf8": {"k", []byte("\xff\xfe{}"), nil},
		"bad-headers":  {"k", "{}", `{"broken`},
		"headers":      {"k", "{}", `{"emoji":"🦊"}`},
	} {
		s.exec("INSERT INTO outbox (id, aggregateid, payload, headers) VALUES (?, ?, ?, ?)", id, v.key, v.payload, v.headers)
	}
	startDaemon(t, dir)
	s.published(6)
	if n := s.count("dead"); n != 1 {
		t.Errorf("%d rows are dead, want 1", n)
	}
	connectd(t, dir, "rows", "explain", "bad-headers").want(t, 0, "invalid", "headers")
	got := map[string]sent{}
	for _, a := range arrivals(t, dir) {
		got[a.ID] = a
	}
	if len(got) != 6 {
		t.Fatalf("%d rows arrived, want 6", len(got))
	}
	if got["no-key"].Key != nil || got["empty-key"].Key == nil || *got["empty-key"].Key != "" {
		t.Error("a row without a key and one with an empty key are not told apart")
	}
	for id, want := range map[string][]byte{"empty": {}, "large": large, "invalid-utf8": []byte("\xff\xfe{}")} {
		if got[id].PayloadBase64 == nil {
			t.Errorf("%s: no payload_base64", id)
			continue
		}
		if data, err := base64.StdEncoding.DecodeString(*got[id].PayloadBase64); err != nil || !bytes.Equal(data, want) {
			t.Errorf("%s: the payload is not what was inserted (%d bytes, %v)", id, len(data), err)
		}
	}
	if string(got["headers"].Payload) != "{}" {
		t.Errorf("payload %s", got["headers"].Payload)
	}
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

// TestDatabaseLockedLongerThanTheBusyTimeout (F1, F11): the daemon says so, keeps trying, and goes on by itself.
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
