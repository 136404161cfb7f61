package durableexecution

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/connectd/connectd/examples/exampletest"
	"github.com/connectd/connectd/scripts/services"
)

// told are what the story says and its programs print, in this order.
var told = []string{
	"committed", "events= 1 commands= 1", "('cmd-1', 'lock_budget', 0)",
	"refused, a duplicate: there is a command cmd-1", "rolled back", "events= 1 commands= 1", "('cmd-1', 'lock_budget', 0)",
	"\nclaimed True\n", "kill -9", "cmd-1 (trips): sending", "\nearly False\n", "\ntakeover True\n",
	"\nstatus= published deliveries= 2\n", "cmd-1 arrived: delivery 1\ncmd-1 arrived: delivery 2, a possible duplicate\n",
	"cmd-2, delivery 1: done (900 locked)", "rows= 1 receipts= 1 cleaned= 1", "No consumer has reported it",
	"cmd-1, delivery 1: done (900 locked)\ncmd-1, delivery 2: done before, the receipt is the first one's (900 locked)",
	"locked: 1800 of 5000, by 2 receipts", "rows= 0 receipts= 2 cleaned= 2", "trips: the books balance",
}

// TestRun runs the example as its reader does, on each kind of database, and breaks each law of the books it leaves.
func TestRun(t *testing.T) {
	program := filepath.Join(t.TempDir(), "connectd")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../cmd/connectd").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, kind := range []struct {
		name, driver string
		dsn          func(t *testing.T) string
	}{
		{"sqlite", "sqlite", nil},
		{"postgres", "pgx", func(t *testing.T) string { return exampletest.PostgresDatabase(t, services.Postgres(t)) }},
		{"mysql", "mysql", func(t *testing.T) string { return exampletest.MySQLDatabase(t, services.MySQL(t)) }},
		{"mariadb", "mysql", func(t *testing.T) string { return exampletest.MySQLDatabase(t, services.MariaDB(t)) }},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			work := t.TempDir()
			env := []string{"WORK=" + work, "CONNECTD=" + program}
			dsn := "file:" + filepath.Join(work, "trips.db") + "?_pragma=busy_timeout(10000)"
			if kind.dsn != nil {
				dsn = kind.dsn(t)
				env = append(env, "TRIPS_DSN="+dsn)
			}
			out := exampletest.Run(t, env, kind.name)
			inOrder(t, out, told)
			if n := strings.Count(out, "arrived: "); n != 2 || strings.Contains(out, "BROKEN") {
				t.Errorf("%d deliveries of cmd-1\n%s", n, out)
			}
			out += breakLaws(t, books{program: program, dir: work, dsn: dsn}, kind.driver)
			documented(t, out)
		})
	}
}

// inOrder wants these words in a text, one behind the other.
func inOrder(t *testing.T, text string, words []string) {
	t.Helper()
	rest := text
	for _, w := range words {
		_, after, found := strings.Cut(rest, w)
		if !found {
			t.Fatalf("%q is missing, or not where it should be, in\n%s", w, text)
		}
		if strings.HasSuffix(w, "\n") {
			after = "\n" + after // the next one may begin with it
		}
		rest = after
	}
}
