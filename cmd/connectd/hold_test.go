package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/connectd/connectd/cmd/connectd/rowwork"
)

// sticky is a receiver of webhooks that takes some ids and answers no word, until it is let go. It dedupes nothing.
type sticky struct {
	mu    sync.Mutex
	all   []got
	stick map[string]bool
}

func (s *sticky) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	g := got{r.Header.Get("webhook-id"), r.Header.Get("Connectd-Key"), r.Header.Get("Connectd-Possible-Duplicate") == "true"}
	s.mu.Lock()
	s.all = append(s.all, g)
	stuck := s.stick[g.id]
	s.mu.Unlock()
	if stuck {
		<-r.Context().Done()
	}
}

// letGo answers everything from now on.
func (s *sticky) letGo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stick = nil
}

// of is what arrived of a key, in order; a star marks a possible duplicate.
func (s *sticky) of(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, g := range s.all {
		if g.key != key {
			continue
		}
		if g.marked {
			g.id += "*"
		}
		list = append(list, g.id)
	}
	return strings.Join(list, " ")
}

// outboxKinds are an outbox table of the test's own on each kind of database: its YAML in the test's directory, and the
// database as the application has it.
func outboxKinds() map[string]func(t *testing.T, dir string) (yaml string, app server) {
	kinds := map[string]func(t *testing.T, dir string) (string, server){
		"sqlite": func(t *testing.T, dir string) (string, server) {
			return "{plugin: sqlite, path: ./shop.db, poll: {min: 5ms, max: 50ms}}", server{
				db:     openSQL(t, "sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_txlock=immediate&_pragma=busy_timeout(10000)"),
				insert: `INSERT INTO outbox (id, aggregateid, type, payload) VALUES (?, ?, 'order.placed', ?)`,
			}
		},
	}
	for _, name := range []string{"postgres", "mysql", "mariadb"} {
		kinds[name] = func(t *testing.T, _ string) (string, server) {
			s := serverKinds[name](t)
			return fmt.Sprintf("{plugin: %s, dsn: %q, poll: {min: 5ms, max: 50ms}}", s.plugin, s.dsn), s
		}
	}
	return kinds
}

// holdShop is an initialised table whose webhook has a receiver that sticks on some ids, with this delivery.
func holdShop(t *testing.T, kind, delivery string, stick ...string) (dir string, app server, to *sticky) {
	t.Helper()
	dir = t.TempDir()
	to = &sticky{stick: map[string]bool{}}
	for _, id := range stick {
		to.stick[id] = true
	}
	web := httptest.NewServer(to)
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	source, app := outboxKinds()[kind](t, dir)
	write(t, dir, "connectd.yaml", fmt.Sprintf("connectors:\n  orders:\n    source: %s\n    sink: {plugin: webhook, url: %q}\n    delivery: {lease: 2s, on_uncertain: hold%s}\n",
		source, web.URL, delivery))
	connectd(t, dir, "init").want(t, 0)
	return dir, app, to
}

// place inserts rows; an id begins with its key.
func (s server) place(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if _, err := s.db.ExecContext(t.Context(), s.insert, id, id[:1], `{}`); err != nil {
			t.Fatal(err)
		}
	}
}

// listed are the rows in a state, by `rows list`.
func listed(t *testing.T, dir, state string) (ids string, rows []rowwork.View) {
	t.Helper()
	r := connectd(t, dir, "rows", "list", "--json", "--state", state)
	if err := json.Unmarshal([]byte(r.stdout), &rows); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	var list []string
	for _, row := range rows {
		list = append(list, row.ID)
	}
	return strings.Join(list, " "), rows
}

// becomes waits until the rows in a state are these.
func becomes(t *testing.T, dir, state, ids string) []rowwork.View {
	t.Helper()
	var rows []rowwork.View
	eventually(t, "rows that are "+state, func() (bool, string) {
		var now string
		now, rows = listed(t, dir, state)
		return now == ids, now
	})
	return rows
}

// TestUncertainRowsAreHeld: a webhook whose receiver cannot dedupe, and a call of which nobody knows what became: the daemon
// or the sink's process was killed in mid-send, or the answer did not come in time. Exactly the rows on their way are held, and
// tell why; later rows of their keys wait, others go on. A person releases one, which is sent again with the mark, and
// skips another; each of that is in the row's history with who and when: releasing is no silent repeat.
func TestUncertainRowsAreHeld(t *testing.T) {
	t.Parallel()
	for kind := range outboxKinds() {
		for _, fault := range []string{"daemon killed", "sink killed", "timeout"} {
			t.Run(kind+" "+fault, func(t *testing.T) {
				t.Parallel()
				delivery := ", batch: {max_records: 1}, in_flight: 4"
				if fault == "timeout" {
					delivery += ", timeout: 1s"
				}
				dir, app, to := holdShop(t, kind, delivery, "a1", "b1")
				app.place(t, "c1")
				d := startDaemon(t, dir)
				becomes(t, dir, "published", "c1")
				app.place(t, "a1", "a2", "a3", "b1", "b2")
				eventually(t, "both are on their way", func() (bool, string) { return to.of("a") == "a1" && to.of("b") == "b1", to.of("a") + to.of("b") })
				began := time.Now()
				switch fault {
				case "daemon killed":
					d.signal(syscall.SIGKILL)
					d.wait()
					startDaemon(t, dir)
				case "sink killed":
					if err := syscall.Kill(d.sinkPID(), syscall.SIGKILL); err != nil {
						t.Fatal(err)
					}
				}
				for _, row := range becomes(t, dir, "held", "a1 b1") {
					checkHeld(t, dir, row, fault, began)
				}
				app.place(t, "c2", "b3")
				becomes(t, dir, "published", "c1 c2")
				if e := explained(t, dir, nil, "a3"); e.Because[0].Code != "behind_held" || e.Because[0].Row.ID != "a1" || !strings.Contains(e.Do, "rows explain a1") {
					t.Errorf("of a row behind: %+v", e)
				}
				to.letGo()
				operate(t, dir, "release", "a1")
				noted(t, dir, "a1", "release")
				becomes(t, dir, "published", "c1 a1 a2 a3 c2")
				operate(t, dir, "skip", "b1")
				noted(t, dir, "b1", "skip")
				becomes(t, dir, "published", "c1 a1 a2 a3 b2 c2 b3")
				if a, b, c := to.of("a"), to.of("b"), to.of("c"); a != "a1 a1* a2 a3" || b != "b1 b2 b3" || c != "c1 c2" {
					t.Errorf("arrived: %s; %s; %s", a, b, c)
				}
				e := explained(t, dir, nil, "b1")
				if r := e.find(t, "skipped"); e.State != "skipped" || !strings.HasPrefix(r.By, "cli:eve@") {
					t.Errorf("of the skipped row: %+v", e)
				}
				if e = explained(t, dir, nil, "a1"); e.find(t, "published").Send < 2 || !strings.HasPrefix(e.find(t, "released").By, "cli:eve@") {
					t.Errorf("of the released row: %+v", e)
				}
			})
		}
	}
}

// checkHeld: a held row tells which send is uncertain, when it was and by which worker, and what happened.
func checkHeld(t *testing.T, dir string, row rowwork.View, fault string, began time.Time) {
	t.Helper()
	what := map[string]string{
		"daemon killed": " lost its lease before an answer was stored",
		"sink killed":   "sink process died: signal: killed",
		"timeout":       "",
	}[fault]
	if !strings.Contains(row.LastError, what) || row.LastError == "" || row.Deliveries != 1 {
		t.Errorf("in the list: %+v", row)
	}
	e := explained(t, dir, nil, row.ID)
	r := e.find(t, "held")
	if since := moment(t, "when", r.Since); since.Before(began.Add(-patience)) || since.After(time.Now().Add(time.Minute)) {
		t.Errorf("%s was sent at %v", row.ID, since)
	}
	if r.Send != 1 || r.Error == nil || !strings.Contains(r.Error.Message, what) || !strings.Contains(r.Say, "worker ") || !strings.Contains(r.Say, "send 1") {
		t.Errorf("%+v", r)
	}
	if id := row.ID; !strings.Contains(e.Do, "rows release "+id) || !strings.Contains(e.Do, "rows skip "+id) {
		t.Errorf("what to do: %s", e.Do)
	}
	shown := connectd(t, dir, "rows", "show", row.ID)
	shown.want(t, 0, "state        held", "sends        1 known or possible", "(send 1, ", what)
}

// TestHeldRowsOfOneKeyAreReleasedInEitherOrder: the first goes first, whichever was released first.
func TestHeldRowsOfOneKeyAreReleasedInEitherOrder(t *testing.T) {
	t.Parallel()
	for kind := range outboxKinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for _, order := range []string{"a1 a2", "a2 a1"} {
				// Both are in one call, and the receiver has the first of them.
				dir, app, to := holdShop(t, kind, ", in_flight: 1, batch: {max_records: 2}", "a1")
				app.place(t, "a1", "a2")
				d := startDaemon(t, dir)
				eventually(t, "they are on their way", func() (bool, string) { return to.of("a") == "a1", to.of("a") })
				d.signal(syscall.SIGKILL)
				d.wait()
				startDaemon(t, dir)
				becomes(t, dir, "held", "a1 a2")
				app.place(t, "a3")
				to.letGo()
				ids := strings.Fields(order)
				operate(t, dir, "release", ids[0])
				if order == "a1 a2" {
					becomes(t, dir, "published", "a1")
				} else if e := explained(t, dir, nil, "a2"); e.find(t, "behind_held").Row.ID != "a1" || e.find(t, "released").By == "" {
					t.Errorf("released before the first: %+v", e)
				}
				if e := explained(t, dir, nil, "a3"); !strings.Contains(e.codes(), "behind_held") {
					t.Errorf("of the row behind both: %+v", e)
				}
				operate(t, dir, "release", ids[1])
				becomes(t, dir, "published", "a1 a2 a3")
				if got := to.of("a"); got != "a1 a1* a2* a3" {
					t.Errorf("released as %s they arrived as %s", order, got)
				}
			}
		})
	}
}
