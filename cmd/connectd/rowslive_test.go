package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/connectd/connectd/cmd/connectd/rowwork"
)

// liveLease is long enough to tell what a heartbeat brings (a third of it) from the reading of the whole table (a minute).
const liveLease = 6 * time.Second

// soon says that what an operator did was seen within a third of the lease, and the daemon's work after it.
func soon(t *testing.T, began time.Time) {
	t.Helper()
	if took := time.Since(began); took > liveLease/3+time.Second {
		t.Errorf("seen after %v; a third of the lease is %v", took, liveLease/3)
	}
}

// operate runs a rows command as eve.
func operate(t *testing.T, dir, verb string, ids ...string) {
	t.Helper()
	connectdWith(t, dir, "", map[string]string{"USER": "eve"}, append([]string{"rows", verb}, ids...)...).want(t, 0)
}

// noted checks that the newest line of a row's history says who did what just now.
func noted(t *testing.T, dir, id, verb string) {
	t.Helper()
	r := connectd(t, dir, "rows", "show", "--json", id)
	var rows []rowwork.View
	if err := json.Unmarshal([]byte(r.stdout), &rows); err != nil || len(rows) != 1 {
		t.Fatalf("%v: %+v", err, r)
	}
	for _, a := range rows[0].History {
		at, err := time.Parse(time.RFC3339Nano, a.At)
		if a.Code == verb && strings.HasPrefix(a.By, "cli:eve@") && err == nil && time.Since(at).Abs() < patience {
			return
		}
	}
	t.Errorf("the history does not say who did %s %s and when: %+v", verb, id, rows[0].History)
}

// ids lists what arrived of a key, in order.
func ids(t *testing.T, dir, key string) string {
	t.Helper()
	var list []string
	for _, a := range arrivals(t, dir) {
		if a.Key != nil && *a.Key == key {
			list = append(list, strings.TrimPrefix(a.ID, "id-00000"))
		}
	}
	return strings.Join(list, " ")
}

// TestRetryAndSkipBesideARunningDaemon: a dead row blocks its key until a person decides; the daemon sees that soon and
// goes on in order.
func TestRetryAndSkipBesideARunningDaemon(t *testing.T) {
	t.Parallel()
	dir, s := tortured(t, ", on_dead: block")
	config := strings.Replace(tortureConfig(", path: "+filepath.Join(dir, "out.jsonl"), ", on_dead: block"), "lease: 2s", "lease: "+liveLease.String(), 1)
	write(t, dir, "connectd.yaml", config)
	s.insert(8, 2)
	s.exec("UPDATE outbox SET type = 'refuse' WHERE id IN ('id-000001', 'id-000002')")
	d := startDaemon(t, dir)
	d.eventually("two are dead", func() (bool, string) { return s.count("dead") == 2, "" })
	connectd(t, dir, "rows", "explain", "id-000003").want(t, 0, "waits behind row 1 (id id-000001)", "is dead")
	if n := len(arrivals(t, dir)); n > 0 {
		t.Errorf("%d rows behind dead ones were sent", n)
	}
	s.exec("UPDATE outbox SET type = 'mended' WHERE id = 'id-000001'")
	began := time.Now()
	operate(t, dir, "retry", "id-000001")
	s.published(4)
	soon(t, began)
	noted(t, dir, "id-000001", "retry")
	if got := ids(t, dir, "key-1"); got != "1 3 5 7" {
		t.Errorf("of the retried row's key came %s", got)
	}
	began = time.Now()
	operate(t, dir, "skip", "id-000002")
	s.published(7)
	soon(t, began)
	noted(t, dir, "id-000002", "skip")
	if got := ids(t, dir, "key-0"); got != "4 6 8" {
		t.Errorf("of the skipped row's key came %s", got)
	}
	connectd(t, dir, "rows", "explain", "id-000002").want(t, 0, "given up by cli:eve@")
	if c := statusOf(t, dir); c.Lag.Rows != 0 || c.Dead != 0 {
		t.Errorf("status: %+v", c)
	}
}

// TestReleaseAndSkipBesideARunningDaemon: the sink dies with two rows in flight. They are held, and a person releases one
// and skips the other.
func TestReleaseAndSkipBesideARunningDaemon(t *testing.T) {
	t.Parallel()
	dir, s := tortured(t, "")
	config := tortureConfig(", pause: 1s, path: "+filepath.Join(dir, "out.jsonl"), ", on_uncertain: hold, batch: {max_records: 2}, in_flight: 1")
	write(t, dir, "connectd.yaml", strings.Replace(config, "lease: 2s", "lease: "+liveLease.String(), 1))
	s.insert(8, 4)
	d := startDaemon(t, dir)
	d.eventually("two rows are in flight", func() (bool, string) { return len(arrivals(t, dir)) == 2, "" })
	if err := syscall.Kill(d.sinkPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.published(4)
	if n := s.count("held"); n != 2 {
		t.Fatalf("%d rows are held, want the 2 that were in flight", n)
	}
	connectd(t, dir, "rows", "explain", "id-000001").want(t, 0, "It may have been sent", "send 1, in a call of worker ", "sink process died", "rows release id-000001")
	connectd(t, dir, "rows", "explain", "id-000005").want(t, 0, "waits behind row 1 (id id-000001)", "is held")
	began := time.Now()
	operate(t, dir, "release", "id-000001")
	d.eventually("the released row is sent again", func() (bool, string) {
		state, _ := rowState(t, s, "id-000001")
		return state == "published", state
	})
	soon(t, began.Add(time.Second)) // the sink takes a second to answer
	noted(t, dir, "id-000001", "release")
	s.published(6)
	began = time.Now()
	operate(t, dir, "skip", "id-000002")
	s.published(7)
	soon(t, began.Add(time.Second))
	noted(t, dir, "id-000002", "skip")
	for key, want := range map[string]string{"key-1": "1 1 5", "key-2": "2 6", "key-3": "3 7", "key-0": "4 8"} {
		if got := ids(t, dir, key); got != want {
			t.Errorf("of %s came %s, want %s", key, got, want)
		}
	}
	if n := audit(t, dir, 8); n != 1 {
		t.Errorf("%d rows came again", n)
	}
}
