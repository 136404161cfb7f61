package postgreswebhook

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
)

// TestRun runs the example as its reader does, on a database of its own.
func TestRun(t *testing.T) {
	dsn := database(t)
	before := names(t)
	out := script(t, "SHOP_DSN="+dsn)
	for _, want := range []string{
		"orders: ok", "running", "order eve-3: rolled back", "bob-2 (orders): dead", "headers are not a JSON object", "retried bob-2",
		`ada-1 for ada: order.placed {"order":"ada-1"}`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	arrived := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^(\S+) for (\w+): order\.placed`).FindAllStringSubmatch(out, -1) {
		arrived[m[2]] = append(arrived[m[2]], m[1])
	}
	for customer, want := range map[string][]string{
		"ada": {"ada-1", "ada-2", "ada-3", "ada-4"},
		"bob": {"bob-1", "bob-3", "bob-4", "bob-2"}, // the second was mended at last
		"eve": {"eve-1", "eve-2", "eve-4"},          // the third was never committed
	} {
		if !slices.Equal(arrived[customer], want) {
			t.Errorf("of %s arrived %v, want %v", customer, arrived[customer], want)
		}
	}
	if after := names(t); !slices.Equal(before, after) {
		t.Errorf("the example left files behind: %v, was %v", after, before)
	}
}

// database makes one on the server of the tests, for this test alone, and returns its DSN.
func database(t *testing.T) string {
	t.Helper()
	const variable = "CONNECTD_TEST_POSTGRES_DSN"
	dsn := os.Getenv(variable)
	switch {
	case dsn != "":
	case os.Getenv("CONNECTD_TEST_SERVICES") == "1":
		t.Fatalf("%s is not set, and CONNECTD_TEST_SERVICES=1 demands the server", variable)
	default:
		t.Skipf("needs a PostgreSQL: %s is not set (run.sh alone starts one, make test as well)", variable)
	}
	at, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(variable + " is no URL")
	}
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	name := "connectd_example_" + strings.ToLower(rand.Text())
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.WithoutCancel(t.Context()), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	at.Path = "/" + name
	return at.String()
}

// script runs run.sh and fails when it fails or leaves processes behind.
func script(t *testing.T, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // it builds the programs
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", "run.sh")
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
