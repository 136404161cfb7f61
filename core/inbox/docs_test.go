package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core/inbox"
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

// The page's functions in other languages: six processes get one command at the same time, the effects of two of them
// fail, and one effect is left.
func TestDocumentedLanguages(t *testing.T) {
	const (
		pythonTail = `
import sys
def effect(db):
    db.execute("INSERT INTO effects VALUES ('a')")
    if sys.argv[2] == "fail":
        raise RuntimeError("mine")
    return "by " + sys.argv[2]
print(*once(db, "a", "billing", effect))
`
		nodeTail = `
(async () => {
  const db = new (require("pg").Client)(process.argv[2]);
  await db.connect();
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
	t.Run("Python with SQLite", func(t *testing.T) {
		needs(t, "python3", "-c", "import sqlite3")
		w := newWorld(t, prepared.SQLite(t))
		compete(t, w, w.Path(t), "python3", "once.py", block(t, "python sqlite")+"\nimport sys\ndb = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)\n"+pythonTail)
	})
	t.Run("Python with PostgreSQL", func(t *testing.T) {
		w := newWorld(t, prepared.Postgres(t))
		needs(t, "python3", "-c", "import psycopg")
		compete(t, w, w.DSN, "python3", "once.py", block(t, "python postgres")+"\nimport sys\ndb = psycopg.connect(sys.argv[1], autocommit=True)\n"+pythonTail)
	})
	t.Run("Node with PostgreSQL", func(t *testing.T) {
		w := newWorld(t, prepared.Postgres(t))
		needs(t, "node", "-e", "require('pg')")
		compete(t, w, w.DSN, "node", "once.js", block(t, "node postgres")+nodeTail)
	})
}

// needs skips the test where the language or its driver is not installed: neither comes with the servers.
func needs(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Skipf("needs %s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
}

func compete(t *testing.T, w world, dsn, program, name, code string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Exec(t, "INSERT INTO connectd_receipt (command_id, consumer, status) VALUES ('a', 'billing', 'failed')")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	answers := make(chan string)
	for i := range 6 {
		who := fmt.Sprint(i)
		if i < 2 {
			who = "fail"
		}
		go func() {
			cmd := exec.CommandContext(ctx, program, file, dsn, who)
			out, err := cmd.CombinedOutput()
			if err != nil {
				out = fmt.Appendf(out, "%v", err)
			}
			answers <- strings.TrimSpace(string(out))
		}()
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
