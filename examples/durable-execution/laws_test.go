package durableexecution

import (
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"
)

// books are what the example leaves: two events, their rows cleaned, two receipts.
type books struct{ program, dir, dsn string }

// damage breaks one law, with SQL as only a person or a bug does, and mends it again.
type damage struct {
	law    string
	do     []string
	undo   []string
	broken []string // all the laws that it breaks
	ids    []string // that the audit names, of the law
}

const (
	insertEvent = `INSERT INTO events (run_id, n, kind, payload) VALUES ('run-9', 1, 'trip_requested', '{}')`
	deleteEvent = `DELETE FROM events WHERE run_id = 'run-9'`
	insertRow   = `INSERT INTO outbox (command_id, run_id, kind, payload) VALUES ('cmd-9', 'run-9', 'lock_budget', '{}')`
	deleteRow   = `DELETE FROM outbox WHERE run_id = 'run-9'`
)

// damages are by the driver of the database, since times differ, and what a constraint is.
func damages(driver string) []damage {
	longAgo := map[string]string{"sqlite": "1000", "pgx": "'2001-01-01'", "mysql": "'2001-01-01'"}[driver]
	farAhead := map[string]string{"sqlite": "9000000000000", "pgx": "'2200-01-01'", "mysql": "'2200-01-01'"}[driver]
	twice := map[string][]string{
		// The same bytes, as a blob, are another value to SQLite's constraint and the same id to a consumer.
		"sqlite": {strings.Replace(insertRow, "'cmd-9'", "CAST('cmd-9' AS BLOB)", 1)},
		"pgx":    {`ALTER TABLE outbox DROP CONSTRAINT outbox_pkey`, insertRow},
		"mysql":  {`ALTER TABLE outbox DROP PRIMARY KEY`, insertRow},
	}[driver]
	return []damage{
		{
			law: "events", do: []string{insertEvent}, undo: []string{deleteEvent},
			broken: []string{"events", "conservation"}, ids: []string{"cmd-9"},
		},
		{law: "origin", do: []string{insertRow}, undo: []string{deleteRow}, broken: []string{"origin"}, ids: []string{"cmd-9"}},
		{
			law: "receipts", do: []string{`INSERT INTO connectd_receipt (command_id) VALUES ('cmd-9')`},
			undo: []string{`DELETE FROM connectd_receipt WHERE command_id = 'cmd-9'`}, broken: []string{"receipts"}, ids: []string{"cmd-9"},
		},
		{
			law: "completion", do: []string{insertEvent, insertRow, `UPDATE outbox SET state = 'published', deliveries = 1, published_at = ` + longAgo + ` WHERE command_id = 'cmd-9'`},
			undo: []string{deleteEvent, deleteRow}, broken: []string{"completion"}, ids: []string{"cmd-9"},
		},
		{
			law: "conservation", do: []string{`UPDATE connectd_ledger SET count = count - 1`},
			undo: []string{`UPDATE connectd_ledger SET count = count + 1`}, broken: []string{"conservation"},
		},
		{
			law: "leases", do: []string{`UPDATE connectd_lease SET owner = 'nobody', lease_until = ` + farAhead},
			undo: []string{`UPDATE connectd_lease SET owner = NULL, lease_until = ` + longAgo}, broken: []string{"leases"}, ids: []string{"partition 0, held by nobody"},
		},
		{
			law: "identity", do: append([]string{insertEvent, insertRow}, twice...),
			undo: []string{deleteEvent, deleteRow}, broken: []string{"events", "identity"}, ids: []string{"cmd-9"},
		},
	}
}

// breakLaws wants the audit to be red for each law that is broken, by its name, and green again when it is mended. It returns
// what the audit told people.
func breakLaws(t *testing.T, b books, driver string) (printed string) {
	db, err := sql.Open(driver, b.dsn)
	if err != nil {
		t.Fatal("the database's address is not what the driver wants") // the error may show it
	}
	defer db.Close()
	run := func(statements []string) {
		t.Helper()
		for _, s := range statements {
			if _, err := db.ExecContext(t.Context(), s); err != nil {
				t.Fatalf("%s: %v", s, err)
			}
		}
	}
	if laws := b.broken(t); len(laws) > 0 {
		t.Fatalf("the books do not balance before: %v", laws)
	}
	for _, d := range damages(driver) {
		run(d.do)
		laws := b.broken(t)
		names := []string{}
		for _, l := range laws {
			names = append(names, l.Law)
			if l.Law == d.law && !slices.Equal(l.Findings[0].IDs, d.ids) {
				t.Errorf("%s names %q, want %q", l.Law, l.Findings[0].IDs, d.ids)
			}
		}
		if !slices.Equal(names, d.broken) {
			t.Errorf("to break %s breaks %v, want %v", d.law, names, d.broken)
		}
		text, _ := b.audit(t)
		printed += text
		run(d.undo)
		if laws := b.broken(t); len(laws) > 0 {
			t.Fatalf("%s is mended, and the books do not balance: %+v", d.law, laws)
		}
	}
	return printed
}

type law struct {
	Law         string
	OK, Checked bool
	Findings    []struct {
		Total int
		IDs   []string
		Say   string
		Do    string
	}
}

// broken lists the laws that are broken. All seven must have been checked, and the exit code be right.
func (b books) broken(t *testing.T) (laws []law) {
	t.Helper()
	text, code := b.audit(t, "--json")
	var answer struct {
		Connectors []struct {
			OK   bool
			Laws []law
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Connectors) != 1 || len(answer.Connectors[0].Laws) != 7 {
		t.Fatalf("%v: %s", err, text)
	}
	for _, l := range answer.Connectors[0].Laws {
		if !l.Checked {
			t.Errorf("%s was not checked", l.Law)
		}
		if !l.OK {
			laws = append(laws, l)
		}
	}
	if red := code == 1; red != (len(laws) > 0) || red == answer.Connectors[0].OK {
		t.Errorf("exit code %d with %d laws broken", code, len(laws))
	}
	return laws
}

// audit runs the command.
func (b books) audit(t *testing.T, args ...string) (printed string, code int) {
	t.Helper()
	cmd := b.connectd(append([]string{"audit"}, args...)...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// connectd is a command of the program.
func (b books) connectd(args ...string) *exec.Cmd {
	cmd := exec.Command(b.program, args...)
	cmd.Dir, cmd.Env = b.dir, append(os.Environ(), "TRIPS_DSN="+b.dsn, "BUDGET_URL=http://127.0.0.1:9/commands")
	return cmd
}
