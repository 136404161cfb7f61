package mysqlfile

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
)

// TestRun runs the example as its reader does, on a database of its own on each kind of server.
func TestRun(t *testing.T) {
	for kind, variable := range map[string]string{"mysql": "CONNECTD_TEST_MYSQL_DSN", "mariadb": "CONNECTD_TEST_MARIADB_DSN"} {
		t.Run(kind, func(t *testing.T) { run(t, kind, database(t, variable)) })
	}
}

func run(t *testing.T, kind, dsn string) {
	before := names(t)
	out := script(t, kind, "FLOW_DSN="+dsn)
	for _, want := range []string{"commands: ok", "ADD COLUMN `state`", "have not been sent", "reserve of r3: rolled back", "running"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	arrived := map[string][]string{}
	for line := range strings.Lines(out) {
		var command struct {
			ID, Key string
			Payload struct{ Run string }
			Created time.Time `json:"created_at"`
		}
		if !strings.HasPrefix(line, `{"id":`) {
			continue
		}
		if err := json.Unmarshal([]byte(line), &command); err != nil {
			t.Errorf("%v in %s", err, line)
		}
		if command.Payload.Run != command.Key || time.Since(command.Created) > time.Hour {
			t.Errorf("a line is not as the row was: %s", line)
		}
		arrived[command.Key] = append(arrived[command.Key], command.ID)
	}
	for key, want := range map[string][]string{
		"r1": {"r1-ship"}, // the others had been sent before
		"r2": {"r2-reserve", "r2-charge", "r2-ship"},
		"r3": nil, // never committed
	} {
		if !slices.Equal(arrived[key], want) {
			t.Errorf("of %s arrived %v, want %v\n%s", key, arrived[key], want, out)
		}
	}
	if after := names(t); !slices.Equal(before, after) {
		t.Errorf("the example left files behind: %v, was %v", after, before)
	}
}

// database makes one on a server of the tests, for this test alone, and returns its DSN.
func database(t *testing.T, variable string) string {
	t.Helper()
	dsn := os.Getenv(variable)
	switch {
	case dsn != "":
	case os.Getenv("CONNECTD_TEST_SERVICES") == "1":
		t.Fatalf("%s is not set, and CONNECTD_TEST_SERVICES=1 demands the server", variable)
	default:
		t.Skipf("needs a server: %s is not set (run.sh alone starts one, make test as well)", variable)
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(variable + " is no DSN")
	}
	t.Cleanup(func() { _ = db.Close() })
	name := "connectd_example_" + strings.ToLower(rand.Text())
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.WithoutCancel(t.Context()), "DROP DATABASE "+name); err != nil {
			t.Error(err)
		}
	})
	return dsn[:strings.LastIndexByte(dsn, '/')+1] + name
}

// script runs run.sh and fails when it fails or leaves processes behind.
func script(t *testing.T, kind string, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // it builds the programs
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", "run.sh", kind)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = append(os.Environ(), env...), &out, &out, 10*time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := cmd.Run()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what a script that failed has left
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	return out.String()
}

func names(t *testing.T) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}
