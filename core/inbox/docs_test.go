package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/connectd/connectd/core/inbox"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/scripts/services/prepared"
)

// block is what docs/consumers.md has behind a mark.
func block(t *testing.T, mark string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/consumers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "<!-- "+mark+" -->\n```")
	_, text, _ = strings.Cut(text, "\n")
	text, _, closed := strings.Cut(text, "```")
	if !found || !closed {
		t.Fatalf("there is no block %s", mark)
	}
	return text
}

func statements(t *testing.T, mark string) []string {
	t.Helper()
	return strings.Split(strings.TrimSuffix(block(t, mark), ";\n"), ";\n")
}

const budgets = "CREATE TABLE budgets (owner varchar(255) PRIMARY KEY, locked int NOT NULL, total int NOT NULL)"

func TestDocumentedGo(t *testing.T) {
	code, err := os.ReadFile("example_test.go")
	if err != nil || !strings.HasSuffix(string(code), "\n"+block(t, "go")) {
		t.Error("docs/consumers.md and example_test.go differ:", err)
	}
	w := newWorld(t, prepared.Postgres(t))
	w.Exec(t, budgets, "INSERT INTO budgets VALUES ('ada', 0, 1000)")
	in := newInbox(t, "postgres", "billing")
	for range 2 {
		if err := lockBudget(t.Context(), w.DB, in, "a", Trip{"ada", 900}); err != nil {
			t.Error(err)
		}
		var failure *inbox.Failure
		if err := lockBudget(t.Context(), w.DB, in, "b", Trip{"ada", 900}); !errors.As(err, &failure) {
			t.Error(err)
		}
	}
	if got := w.Ask(t, "SELECT locked FROM budgets"); got != "900" {
		t.Error(got)
	}
}

// The page's plain SQL has one effect, also after a failed attempt, and also beside package inbox.
func TestDocumentedSQL(t *testing.T) {
	prepared.Each(t, func(t *testing.T, db prepared.Database) {
		w := newWorld(t, db)
		w.Exec(t, budgets, "INSERT INTO budgets VALUES ('ada', 0, 5000)")
		mark := "sql"
		if db.Dialect == "mysql" {
			mark = "sql mysql"
		}
		failed := block(t, "failed")
		if db.Dialect == "mysql" {
			failed = strings.Replace(failed, " ON CONFLICT DO NOTHING", "", 1)
		}
		w.Exec(t, failed)
		for range 3 {
			w.plainSQL(t, statements(t, mark))
		}
		if db.Dialect != "mysql" {
			w.Exec(t, failed) // done is final
		}
		if got := w.Ask(t, "SELECT locked FROM budgets") + " " + w.stored(t, "cmd-1"); got != "900 done budgets/ada" {
			t.Error(got)
		}
	})
}

// plainSQL does as the page says.
func (w world) plainSQL(t *testing.T, statements []string) {
	t.Helper()
	conn, err := w.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, s := range statements {
		result, err := conn.ExecContext(t.Context(), s)
		claim := strings.HasPrefix(s, "INSERT INTO connectd_receipt")
		if err != nil && !(claim && w.Dialect == "mysql" && strings.Contains(err.Error(), "Error 1062 ")) {
			t.Fatalf("%s: %v", s, err)
		}
		n := int64(0)
		if err == nil {
			n, _ = result.RowsAffected()
		}
		if claim && n == 0 {
			if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
}

// language is one of the page's functions, as a program that gets one command: its arguments are the database's address and
// who it is, one called "fail" being in vain.
type language struct {
	mark, program, file string
	// connect makes db, main runs once with an effect.
	connect, main string
	env           func(testing.TB) string // with the driver
}

const (
	pythonMain = `
def effect(db):
    db.execute("INSERT INTO effects VALUES ('a')")
    if sys.argv[2] == "fail":
        raise RuntimeError("mine")
    return "by " + sys.argv[2]
print(*once(db, "a", "billing", effect))
`
	nodeMain = `
  try {
    const receipt = await once(db, "a", "billing", async (db) => {
      await db.query("INSERT INTO effects VALUES ('a')");
      if (process.argv[3] === "fail") throw new Error("mine");
      return "by " + process.argv[3];
    });
    console.log(receipt.status, receipt.result_ref);
  } finally {
    await db.end();
  }
})();
`
)

func python(mark, connect string) language {
	return language{mark, "python3", "once.py", "\nimport sys, urllib.parse\naddress = urllib.parse.urlsplit(sys.argv[1])\ndb = " + connect, pythonMain,
		func(t testing.TB) string { return "PYTHONPATH=" + services.PythonPath(t) }}
}

func node(mark, connect string) language {
	return language{mark, "node", "once.js", "\n(async () => {\n  const db = " + connect, nodeMain,
		func(t testing.TB) string { return "NODE_PATH=" + services.NodePath(t) }}
}

// The page's functions in other languages: six processes get one command at the same time, the effects of two of them
// fail, and one effect is left.
func TestDocumentedLanguages(t *testing.T) {
	languages := map[string][]language{
		"sqlite": {python("python sqlite", "sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)")},
		"postgres": {
			python("python postgres", "psycopg.connect(sys.argv[1], autocommit=True)"),
			node("node postgres", `new (require("pg").Client)(process.argv[2]);
  await db.connect();`),
		},
		"mysql": {
			python("python mysql", "pymysql.connect(host=address.hostname, port=address.port, user=address.username, password=address.password, database=address.path[1:], autocommit=True)"),
			node("node mysql", `await require("mysql2/promise").createConnection(process.argv[2]);`),
		},
	}
	if exec.CommandContext(t.Context(), "python3", "-c", "import sqlite3").Run() == nil {
		languages["sqlite"][0].env = func(testing.TB) string { return "PYTHONPATH=" } // it comes with the language
	}
	prepared.Each(t, func(t *testing.T, db prepared.Database) {
		if db.Driver == "postgres" {
			return // Go's drivers make no difference here
		}
		w := newWorld(t, db)
		for _, l := range languages[db.Dialect] {
			t.Run(l.mark, func(t *testing.T) { compete(t, w, l) })
		}
	})
}

// address is a database's as other languages take it.
func address(t *testing.T, db prepared.Database) string {
	t.Helper()
	switch db.Dialect {
	case "sqlite":
		return db.Path(t)
	case "postgres":
		return db.DSN
	}
	c, err := mysql.ParseDSN(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	u := url.URL{Scheme: "mysql", User: url.UserPassword(c.User, c.Passwd), Host: c.Addr, Path: c.DBName}
	return u.String()
}

func compete(t *testing.T, w world, l language) {
	t.Helper()
	env := append(os.Environ(), l.env(t))
	file := filepath.Join(t.TempDir(), l.file)
	if err := os.WriteFile(file, []byte(block(t, l.mark)+l.connect+l.main), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Exec(t, "DELETE FROM effects", "DELETE FROM connectd_receipt", "INSERT INTO connectd_receipt (command_id, consumer, status) VALUES ('a', 'billing', 'failed')")
	to := address(t, w.Database)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	answers := make(chan string)
	for i := range 6 {
		who := fmt.Sprint(i)
		if i < 2 {
			who = "fail"
		}
		go func() { answers <- deliver(ctx, env, l.program, file, to, who) }()
	}
	receipts := map[string]int{}
	for range 6 {
		a := <-answers
		if strings.HasPrefix(a, "done by ") {
			receipts[a]++
		} else if !strings.Contains(a, "mine") {
			t.Error(a)
		}
	}
	total := 0
	for _, n := range receipts {
		total += n
	}
	if len(receipts) != 1 || total < 4 {
		t.Errorf("receipts %v", receipts)
	}
	w.want(t, "a", "1")
}

// deliver gives the command to a process, and again after a deadlock.
func deliver(ctx context.Context, env []string, program string, args ...string) string {
	for {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err != nil && strings.Contains(string(out), "Deadlock found") && ctx.Err() == nil {
			continue
		}
		if err != nil {
			out = fmt.Appendf(out, "%v", err)
		}
		return strings.TrimSpace(string(out))
	}
}
