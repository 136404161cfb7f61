package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/connectd/connectd/cmd/connectd/rowwork"
	"github.com/connectd/connectd/scripts/services"
)

// server is a database server that outbox tables are on, with a database of the test's own.
type server struct {
	plugin string
	dsn    string // of the database
	db     *sql.DB
	insert string // an outbox row: id, key, payload
}

// serverKinds are the servers by name.
var serverKinds = map[string]func(t *testing.T) server{
	"postgres": func(t *testing.T) server {
		dsn := services.Postgres(t)
		return onPostgres(t, dsn, dsn)
	},
	"pgbouncer": func(t *testing.T) server { return onPostgres(t, services.Postgres(t), services.PgBouncer(t)) },
	"mysql":     func(t *testing.T) server { return onMySQL(t, services.MySQL(t)) },
	"mariadb":   func(t *testing.T) server { return onMySQL(t, services.MariaDB(t)) },
}

func onPostgres(t *testing.T, direct, through string) server {
	name := ownDatabase(t, "pgx", direct, `DROP DATABASE %s WITH (FORCE)`)
	at := func(dsn string) string {
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		u.Path = "/" + name
		return u.String()
	}
	return server{plugin: "postgres", dsn: at(through), db: openSQL(t, "pgx", at(direct)),
		insert: `INSERT INTO outbox (id, aggregateid, type, payload) VALUES ($1, $2, 'order.placed', $3)`}
}

func onMySQL(t *testing.T, dsn string) server {
	name := ownDatabase(t, "mysql", dsn, `DROP DATABASE %s`)
	dsn = dsn[:strings.LastIndex(dsn, "/")+1] + name
	return server{plugin: "mysql", dsn: dsn, db: openSQL(t, "mysql", dsn),
		insert: `INSERT INTO outbox (id, aggregateid, type, payload) VALUES (?, ?, 'order.placed', ?)`}
}

// ownDatabase makes a database for the test and returns its name.
func ownDatabase(t *testing.T, driver, dsn, drop string) string {
	t.Helper()
	db := openSQL(t, driver, dsn)
	name := fmt.Sprintf("connectd_cmd_%x", rand.Uint64())
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.Exec(fmt.Sprintf(drop, name)); err != nil {
			t.Error(err)
		}
	})
	return name
}

func openSQL(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// got is a record that the receiver of the test took.
type got struct {
	id, key string
	marked  bool
}

// inbox is a receiver of webhooks that keeps everything in the order of arrival, and refuses what "bad" begins.
type inbox struct {
	mu   sync.Mutex
	all  []got
	mend bool // nothing is refused any more
}

func (i *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	i.mu.Lock()
	defer i.mu.Unlock()
	g := got{r.Header.Get("webhook-id"), r.Header.Get("Connectd-Key"), r.Header.Get("Connectd-Possible-Duplicate") == "true"}
	if strings.HasPrefix(g.id, "bad") && !i.mend {
		http.Error(w, "no such product", http.StatusUnprocessableEntity)
		return
	}
	i.all = append(i.all, g)
}

func (i *inbox) arrived() []got {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]got{}, i.all...)
}

// allArrive waits for as long as more arrives: a busy machine may take its time, and nothing may stand still.
func allArrive(t *testing.T, to *inbox, want int) {
	t.Helper()
	const standstill = 30 * time.Second
	most, since := 0, time.Now()
	for ; most < want; time.Sleep(20 * time.Millisecond) {
		ids := map[string]bool{}
		for _, g := range to.arrived() {
			ids[g.id] = true
		}
		if len(ids) > most {
			most, since = len(ids), time.Now()
		} else if time.Since(since) > standstill {
			t.Fatalf("nothing arrives for %v; %d of %d did", standstill, most, want)
		}
	}
}

// TestServersEndToEnd lets two daemons share an outbox table on each kind of server while producers commit and roll back;
// one daemon is killed in the middle. Everything committed arrives, in the order of each key, nothing that was rolled back
// does, and repeats are marked.
func TestServersEndToEnd(t *testing.T) {
	for name, start := range serverKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endToEnd(t, start(t))
		})
	}
}

const serverSecret = "whsec_Y29ubmVjdGQtdGVzdC1zZWNyZXQtMzItYnl0ZXMhIQ=="

func endToEnd(t *testing.T, s server) {
	to := &inbox{}
	web := httptest.NewServer(to)
	t.Cleanup(web.Close)
	dir := t.TempDir()
	write(t, dir, "connectd.yaml", fmt.Sprintf(`connectors:
  orders:
    source: {plugin: %s, dsn: "${SHOP_DSN}"}
    sink: {plugin: webhook, url: %q, signing: {secrets: [{value: %q}]}}
    delivery: {lease: 2s}
`, s.plugin, web.URL, serverSecret))
	env := map[string]string{"SHOP_DSN": s.dsn}
	command := func(args ...string) result { return connectdWith(t, dir, "", env, args...) }
	command("init").want(t, 0, "CREATE TABLE")
	command("init").want(t, 0, "nothing to do")
	command("check").want(t, 0, "orders: ok")
	if r := command("init", "--print"); strings.Contains(r.stdout+r.stderr, password(s.dsn)) {
		t.Errorf("a password is shown: %s%s", r.stdout, r.stderr)
	}

	first := startDaemon(t, dir, "SHOP_DSN="+s.dsn)
	second := startDaemon(t, dir, "SHOP_DSN="+s.dsn)
	first.ready()
	second.ready()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		var left []rowwork.View // what is left, and why
		_ = json.Unmarshal([]byte(command("rows", "list", "--state", "pending", "--limit", "1", "--json").stdout), &left)
		for _, row := range left {
			t.Logf("%s%s", command("rows", "explain", row.ID).stdout, command("status").stdout)
		}
	})
	p := produce(t, s)
	eventually(t, "the first hundred arrive", func() (bool, string) { n := len(to.arrived()); return n > 100, fmt.Sprint(n) })
	first.signal(syscall.SIGKILL)
	first.wait()
	committed, rolledBack := p.stop()
	for id := range rolledBack {
		if committed[id] {
			t.Fatalf("the test's producers are wrong about %s", id)
		}
	}
	allArrive(t, to, len(committed))
	checkArrivals(t, to.arrived(), committed)

	if _, err := s.db.ExecContext(t.Context(), s.insert, "bad-1", "ada", "{}"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the refused row is dead", func() (bool, string) {
		r := command("rows", "list", "--state", "dead")
		return strings.Contains(r.stdout, "bad-1"), r.stdout + r.stderr
	})
	command("rows", "explain", "bad-1").want(t, 0, "no such product")
	to.mu.Lock()
	to.mend = true
	to.mu.Unlock()
	command("rows", "retry", "bad-1").want(t, 0)
	eventually(t, "it is sent again", func() (bool, string) {
		r := command("rows", "show", "bad-1")
		return strings.Contains(r.stdout, "published"), r.stdout + r.stderr
	})
	command("status").want(t, 0, "orders")
	second.signal(syscall.SIGTERM)
	if code := second.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if log := first.log.String() + second.log.String(); strings.Contains(log, password(s.dsn)) {
		t.Errorf("the password is in the log")
	}
}

// checkArrivals holds what arrived against what was committed, and returns how many rows came more than once. Ids end in a
// number that rises with the commits of a key.
func checkArrivals(t *testing.T, all []got, committed map[string]bool) (repeats int) {
	t.Helper()
	seen, newest, marked := map[string]int{}, map[string]string{}, map[string]bool{}
	for _, g := range all {
		if !committed[g.id] {
			t.Errorf("row %s arrived and was never committed", g.id)
		}
		seen[g.id]++
		marked[g.id] = marked[g.id] || g.marked
		if seen[g.id] > 1 {
			continue
		}
		if g.id < newest[g.key] {
			t.Errorf("key %s: row %s came after %s", g.key, g.id, newest[g.key])
		}
		newest[g.key] = g.id
	}
	for id, n := range seen {
		if n > 1 {
			repeats++
			if !marked[id] {
				t.Errorf("row %s came %d times, never with the mark", id, n)
			}
		}
	}
	for id := range committed {
		if seen[id] == 0 {
			t.Errorf("row %s was committed and never arrived", id)
		}
	}
	t.Logf("%d rows, %d of them more than once", len(seen), repeats)
	return repeats
}

// producers commit rows until they are stopped: each has keys of its own and commits them one after another, beside the
// others' open transactions.
type producers struct {
	done                  chan struct{}
	wg                    sync.WaitGroup
	mu                    sync.Mutex
	committed, rolledBack map[string]bool
}

func produce(t *testing.T, s server) *producers {
	p := &producers{done: make(chan struct{}), committed: map[string]bool{}, rolledBack: map[string]bool{}}
	for i := range 4 {
		p.wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-p.done:
					return
				default:
				}
				if err := p.transaction(t, s, i, n); err != nil {
					t.Errorf("a producer's transaction failed: %v", err)
					return
				}
			}
		})
	}
	return p
}

// transaction inserts some rows and commits, or rolls back each tenth time.
func (p *producers) transaction(t *testing.T, s server, producer, n int) error {
	tx, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var ids []string
	for i := range 1 + n%3 {
		key := fmt.Sprintf("key-%d-%d", producer, i)
		ids = append(ids, fmt.Sprintf("%s-%06d", key, n))
		if _, err := tx.ExecContext(t.Context(), s.insert, ids[i], key, fmt.Sprintf(`{"n":%d}`, n)); err != nil {
			return err
		}
	}
	time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond) // others' transactions are open meanwhile
	into := p.committed
	if n%10 == 9 {
		into, err = p.rolledBack, tx.Rollback()
	} else {
		err = tx.Commit()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		into[id] = true
	}
	return err
}

// stop ends the producers after a while in which one daemon is alone.
func (p *producers) stop() (committed, rolledBack map[string]bool) {
	time.Sleep(3 * time.Second) // longer than a lease
	return p.end(), p.rolledBack
}

// end ends the producers at once.
func (p *producers) end() (committed map[string]bool) {
	close(p.done)
	p.wg.Wait()
	return p.committed
}

// password is the one in a DSN of the tests' servers.
func password(dsn string) string {
	_, rest, _ := strings.Cut(strings.TrimPrefix(dsn, "postgres://"), ":")
	secret, _, _ := strings.Cut(rest, "@")
	return secret
}
