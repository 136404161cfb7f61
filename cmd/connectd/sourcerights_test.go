package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// The pages in docs/sources say which rights the daemon needs. Here it has these and no others.

// documentedUse is a database in which the SQL of a page is run.
type documentedUse struct {
	plugin      string
	dir         string
	source      string // settings
	delivery    string // settings
	keep        bool   // published rows
	init, run   map[string]string
	afterInit   func()
	admin, shop func(sql ...string) // runs statements as who may do anything, as an application that only inserts
}

// useDocumented does with a table what operators and applications do.
func useDocumented(t *testing.T, u documentedUse) {
	to := &inbox{}
	web := httptest.NewServer(to)
	t.Cleanup(web.Close)
	published := "0s"
	if u.keep {
		published = "24h"
	}
	write(t, u.dir, "connectd.yaml", fmt.Sprintf(`connectors:
  orders:
    source: {%s}
    sink: {plugin: webhook, url: %q, signing: {secrets: [{value: %q}]}}
    delivery: {lease: 2s%s}
    retention: {published: %s}
`, u.source, web.URL, serverSecret, u.delivery, published))
	connectdWith(t, u.dir, "", u.init, "init").want(t, 0, "CREATE TABLE")
	if u.afterInit != nil {
		u.afterInit()
	}
	command := func(args ...string) result { return connectdWith(t, u.dir, "", u.run, args...) }
	var env []string
	for name, value := range u.run {
		env = append(env, name+"="+value)
	}
	d := startDaemon(t, u.dir, env...)
	d.ready()
	u.shop(statements(t, u.plugin, "insert")...)
	u.shop(statements(t, u.plugin, "delayed")...)
	u.shop(`INSERT INTO outbox (id, aggregateid, payload) VALUES ('bad-1', 'ada', 'x')`, `INSERT INTO outbox (id, aggregateid, payload) VALUES ('bad-2', 'ada', 'x')`)
	eventually(t, "the refused rows are dead", func() (bool, string) {
		r := command("rows", "list", "--state", "dead")
		return strings.Contains(r.stdout, "bad-1") && strings.Contains(r.stdout, "bad-2"), r.stdout + r.stderr
	})
	command("rows", "explain", "bad-1").want(t, 0, "no such product")
	command("rows", "skip", "bad-2").want(t, 0)
	to.mu.Lock()
	to.mend = true
	to.mu.Unlock()
	command("rows", "retry", "bad-1").want(t, 0)
	eventually(t, "all arrive", func() (bool, string) { n := len(to.arrived()); return n == 2, fmt.Sprint(to.arrived()) })
	if all := to.arrived(); all[0].id != "order-1" || all[0].key != "ada" || all[1].id != "bad-1" {
		t.Errorf("arrived: %v", all)
	}
	command("rows", "list", "--state", "pending").want(t, 0, "order-1-reminder")
	command("status").want(t, 0, "running")
	if u.keep {
		eventually(t, "the row is marked", func() (bool, string) {
			r := command("rows", "show", "order-1")
			return strings.Contains(r.stdout, "published"), r.stdout + r.stderr
		})
	}
	u.admin(statements(t, u.plugin, "clean")...)
	d.signal(syscall.SIGTERM)
	if code := d.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, word := range []string{"denied", "level=ERROR"} {
		if strings.Contains(d.log.String(), word) {
			t.Errorf("the log has %q:\n%s", word, d.log)
		}
	}
}

// executeOn runs statements on one connection.
func executeOn(t *testing.T, db *sql.DB, sql ...string) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, text := range sql {
		if _, err := conn.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// renamed puts names of the test's own into statements of a page.
func renamed(statements []string, names map[string]string) []string {
	list := make([]string, len(statements))
	for i, text := range statements {
		list[i] = regexp.MustCompile(`\b[a-z]+\b`).ReplaceAllStringFunc(text, func(word string) string {
			if name, found := names[word]; found {
				return name
			}
			return word
		})
	}
	return list
}

const rolePassword = "p4ss-of-the-test"

// postgresRoles makes the roles of the page, relay, shop and owner, and returns a DSN for each, and their names.
func postgresRoles(t *testing.T, s server) (dsn, names map[string]string) {
	t.Helper()
	suffix := fmt.Sprintf("_%x", rand.Uint64())
	dsn, names = map[string]string{}, map[string]string{}
	u, err := url.Parse(s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"relay", "shop", "owner"} {
		role := name + suffix
		u.User = url.UserPassword(role, rolePassword)
		dsn[name], names[name] = u.String(), role
		executeOn(t, s.db, "CREATE ROLE "+role+" LOGIN PASSWORD '"+rolePassword+"'")
		t.Cleanup(func() {
			for _, text := range []string{"DROP OWNED BY " + role, "DROP ROLE " + role} {
				if _, err := s.db.ExecContext(context.WithoutCancel(t.Context()), text); err != nil {
					t.Error(err)
				}
			}
		})
	}
	return dsn, names
}

func TestDocumentedRightsOnPostgres(t *testing.T) {
	for name, u := range map[string]documentedUse{
		"kept": {keep: true},
		"all":  {source: ", notify: trigger", delivery: ", ordering: commit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serverKinds["postgres"](t)
			dsn, names := postgresRoles(t, s)
			executeOn(t, s.db, renamed(statements(t, "postgres", "grant init"), names)...)
			db := openSQL(t, "pgx", dsn["shop"])
			u.plugin, u.dir, u.source = "postgres", t.TempDir(), `plugin: postgres, dsn: "${SHOP_DSN}"`+u.source
			u.init, u.run = map[string]string{"SHOP_DSN": dsn["owner"]}, map[string]string{"SHOP_DSN": dsn["relay"]}
			u.admin = func(sql ...string) { executeOn(t, s.db, sql...) }
			u.shop = func(sql ...string) { executeOn(t, db, sql...) }
			u.afterInit = func() {
				marks := []string{"grant daemon", "grant application"}
				if !u.keep {
					marks = append(marks, "grant commit")
				}
				for _, mark := range marks {
					u.admin(renamed(statements(t, "postgres", mark), names)...)
				}
				u.admin(statements(t, "postgres", "holder")...)
			}
			useDocumented(t, u)
		})
	}
}

// TestWhoMayInsertDoesSoAlsoAfterAdoption: applications that do not own the table, and one that gets its right later, need no
// more than before.
func TestWhoMayInsertDoesSoAlsoAfterAdoption(t *testing.T) {
	t.Parallel()
	s := serverKinds["postgres"](t)
	dsn, names := postgresRoles(t, s)
	dir := t.TempDir()
	write(t, dir, "connectd.yaml", `connectors:
  orders:
    source: {plugin: postgres, dsn: "${SHOP_DSN}"}
    sink: {plugin: file, path: ./out}
`)
	executeOn(t, s.db, `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb)`)
	executeOn(t, s.db, renamed([]string{"GRANT USAGE ON SCHEMA public TO shop", "GRANT INSERT ON outbox TO shop"}, names)...)
	const insert = `INSERT INTO outbox (id, aggregateid, payload) VALUES (gen_random_uuid(), 'ada', '{}')`
	shop := openSQL(t, "pgx", dsn["shop"])
	executeOn(t, shop, insert)
	connectdWith(t, dir, "", map[string]string{"SHOP_DSN": s.dsn}, "init", "--existing", "pending").want(t, 0, "GRANT USAGE ON SEQUENCE")
	executeOn(t, shop, insert)
	executeOn(t, s.db, renamed([]string{"GRANT INSERT (id, aggregateid, payload) ON outbox TO owner"}, names)...)
	executeOn(t, openSQL(t, "pgx", dsn["owner"]), insert)
	executeOn(t, s.db, renamed(statements(t, "postgres", "grant sequence"), names)...)
	executeOn(t, shop, insert)
}

func TestDocumentedRightsOnMySQL(t *testing.T) {
	for _, kind := range []string{"mysql", "mariadb"} {
		for name, u := range map[string]documentedUse{"kept": {keep: true}, "all": {}} {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				s := serverKinds[kind](t)
				names, dsn := map[string]string{"shop": s.dsn[strings.LastIndex(s.dsn, "/")+1:]}, map[string]string{}
				for _, role := range []string{"relay", "owner", "app"} {
					user := fmt.Sprintf("%s_%x", role, rand.Uint64())
					names[role], dsn[role] = "'"+user+"'@'%'", user+":"+rolePassword+s.dsn[strings.LastIndex(s.dsn, "@"):]
					executeOn(t, s.db, "CREATE USER "+names[role]+" IDENTIFIED BY '"+rolePassword+"'")
					t.Cleanup(func() {
						if _, err := s.db.ExecContext(context.WithoutCancel(t.Context()), "DROP USER "+names[role]); err != nil {
							t.Error(err)
						}
					})
				}
				u.admin = func(sql ...string) { executeOn(t, s.db, sql...) }
				u.admin(renamed(statements(t, "mysql", "grant init"), names)...)
				u.plugin, u.dir, u.source = "mysql", t.TempDir(), `plugin: mysql, dsn: "${SHOP_DSN}"`
				u.init, u.run = map[string]string{"SHOP_DSN": dsn["owner"]}, map[string]string{"SHOP_DSN": dsn["relay"]}
				db := openSQL(t, "mysql", dsn["app"])
				u.shop = func(sql ...string) { executeOn(t, db, sql...) }
				u.afterInit = func() {
					u.admin(renamed(statements(t, "mysql", "grant daemon"), names)...)
					u.admin(renamed(statements(t, "mysql", "grant application"), names)...)
					if !u.keep {
						u.admin(renamed(statements(t, "mysql", "grant process"), names)...)
					}
				}
				useDocumented(t, u)
			})
		}
	}
}
