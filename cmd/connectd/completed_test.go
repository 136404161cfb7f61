package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// answering is a receiver of webhooks with a status for each id, else 200.
type answering struct {
	mu     sync.Mutex
	status map[string]int
	times  map[string]int
}

func (a *answering) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	id := r.Header.Get("webhook-id")
	a.mu.Lock()
	a.times[id]++
	status := a.status[id]
	a.mu.Unlock()
	if status != 0 {
		w.WriteHeader(status)
	}
}

// answer sets what an id is answered from now on.
func (a *answering) answer(id string, status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status[id] = status
}

func (a *answering) arrived(id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.times[id]
}

// completing is the configuration of a connector whose webhook gives receipts.
func completing(url, more string) string {
	return fmt.Sprintf(`daemon: {http: 127.0.0.1:0}
connectors:
  orders:
    source: {plugin: sqlite, path: ./shop.db, poll: {min: 5ms, max: 50ms}}
    sink: {plugin: webhook, url: %q, receipt: on_2xx, success_status: [2xx, 409]}
    delivery: {lease: 2s, retry: {initial: 10ms, max: 50ms}}
%s`, url, more)
}

// receipts lists what is stored.
func (s *shop) receipts() string {
	s.t.Helper()
	var list string
	err := s.db.QueryRow(`SELECT coalesce(group_concat(command_id || ' ' || consumer || ' ' || status, ', '), '') FROM (SELECT * FROM connectd_receipt ORDER BY 1, 2)`).Scan(&list)
	if err != nil {
		s.t.Fatal(err)
	}
	return list
}

func (s *shop) ids() string {
	s.t.Helper()
	var list string
	if err := s.db.QueryRow(`SELECT coalesce(group_concat(id, ' '), '') FROM (SELECT id FROM outbox ORDER BY seq)`).Scan(&list); err != nil {
		s.t.Fatal(err)
	}
	return list
}

// TestA2xxAnswerIsAReceipt: where a receipt is required a row goes when the receiver has answered 2xx and stays while it
// answers 500; a 409 that counts as delivered is no receipt.
func TestA2xxAnswerIsAReceipt(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ retention, rows, later string }{
		"required": {"published: 0s, require_receipt: true", "id-000002 id-000003", "id-000003"},
		"deleted":  {"published: 0s", "id-000002", ""},
		"kept":     {"published: 1h", "id-000001 id-000002 id-000003", "id-000001 id-000002 id-000003"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := &answering{status: map[string]int{"id-000002": 500, "id-000003": 409}, times: map[string]int{}}
			web := httptest.NewServer(to)
			t.Cleanup(web.Close)
			dir := shopDir(t, completing(web.URL, "    retention: {"+want.retention+"}\n"))
			connectd(t, dir, "check").want(t, 0, "give no receipt")
			s := openShop(t, dir)
			s.insert(3, 3)
			d := startDaemon(t, dir)
			becomes := func(what, rows, receipts string) {
				t.Helper()
				d.eventually(what, func() (bool, string) {
					got, stored := s.ids(), s.receipts()
					return got == rows && stored == receipts, got + " | " + stored
				})
			}
			d.eventually("the second row to fail again and again", func() (bool, string) { return to.arrived("id-000002") > 3, "" })
			becomes("the first row's receipt", want.rows, "id-000001 orders done")
			to.answer("id-000002", 202)
			becomes("the second row's receipt", want.later, "id-000001 orders done, id-000002 orders done")
			s.conserved()
			connectd(t, dir, "audit").want(t, 0, "the books balance")
			if _, body := d.get("/api/v1/receipts?connector=orders&command=id-000001"); strings.Contains(body, "unknown") || !strings.Contains(body, `"consumer":"orders"`) {
				t.Error(body)
			}
			if n := to.arrived("id-000001") + to.arrived("id-000003"); n != 2 {
				t.Errorf("the others arrived %d times", n)
			}
		})
	}
}

// TestKill9BetweenTheAnswerAndItsReceipt: the receiver has answered, and before that can be written the daemon is killed.
// The row goes out again with the same id, and there is one receipt.
func TestKill9BetweenTheAnswerAndItsReceipt(t *testing.T) {
	t.Parallel()
	to := &answering{status: map[string]int{}, times: map[string]int{}}
	answered := make(chan struct{}, 100)
	var lock func()
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to.arrived("id-000001") == 0 {
			lock() // from now on nobody can write to the database
		}
		to.ServeHTTP(w, r)
	}))
	web.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateIdle { // a whole answer was written
			answered <- struct{}{}
		}
	}
	dir := shopDir(t, completing("http://"+web.Listener.Addr().String(), ""))
	s := openShop(t, dir)
	s.insert(1, 1)
	unlock := func() error { return nil }
	lock = func() {
		conn, err := s.db.Conn(context.Background())
		if err == nil {
			_, err = conn.ExecContext(context.Background(), `BEGIN IMMEDIATE`)
		}
		if err != nil {
			t.Errorf("lock the database: %v", err)
			return
		}
		unlock = func() error {
			_, err := conn.ExecContext(context.Background(), `ROLLBACK`)
			conn.Close()
			return err
		}
	}
	web.Start()
	t.Cleanup(web.Close)
	first := startDaemon(t, dir)
	select {
	case <-answered:
	case <-time.After(30 * time.Second):
		t.Fatal("no request came")
	}
	first.signal(syscall.SIGKILL)
	first.wait()
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if got := s.receipts(); got != "" || s.count("published") != 0 {
		t.Fatalf("before the takeover: %q", got)
	}
	startDaemon(t, dir)
	s.published(1)
	if n := to.arrived("id-000001"); n != 2 {
		t.Errorf("delivered %d times", n)
	}
	if got := s.receipts(); got != "id-000001 orders done" {
		t.Errorf("receipts are %q", got)
	}
	var deliveries int
	if err := s.db.QueryRow(`SELECT deliveries FROM outbox`).Scan(&deliveries); err != nil || deliveries != 2 {
		t.Errorf("deliveries %d, %v", deliveries, err)
	}
}
