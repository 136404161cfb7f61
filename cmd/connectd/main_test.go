package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/connectd/connectd/plugins/host"
)

// TestMain lets this test binary be the program under test, run as a real process, and the sink plugins that some
// tests put into a plugin directory.
func TestMain(m *testing.M) {
	switch name := filepath.Base(os.Args[0]); {
	case strings.HasPrefix(name, host.Prefix):
		serveTorture()
	case name == "curl":
		if err := curl(os.Args[1:]); err != nil {
			fmt.Fprintf(os.Stderr, "curl: %v\n", err)
			os.Exit(1)
		}
	case name == "sqlite3" || name == "sleep":
		if err := standIn(name, os.Args[1:]); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
	case len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test."):
		main()
	default:
		goleak.VerifyTestMain(m)
	}
}

// result is what a command left.
type result struct {
	code           int
	stdout, stderr string
}

// connectd runs a command in this process, with the configuration of the directory.
func connectd(t *testing.T, dir string, args ...string) result {
	t.Helper()
	return connectdWith(t, dir, "", nil, args...)
}

// connectdWith is connectd with a stdin and an environment.
func connectdWith(t *testing.T, dir, stdin string, env map[string]string, args ...string) result {
	t.Helper()
	lookup := func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), patience) // a daemon that should not have started ends
	defer cancel()
	code := run(ctx, configured(dir, args), strings.NewReader(stdin), &stdout, &stderr, lookup)
	return result{code, stdout.String(), stderr.String()}
}

// configured adds the directory's configuration to a command that takes one and names none. Tests run beside each other
// and share one working directory.
func configured(dir string, args []string) []string {
	words := 1
	if len(args) > 0 && (args[0] == "rows" || args[0] == "plugins") {
		words = 2
	}
	if len(args) < words || slices.Contains(args, "-c") ||
		!slices.Contains([]string{"run", "check", "init", "doctor", "status", "rows", "audit", "plugins", "schema"}, args[0]) {
		return args
	}
	return slices.Insert(slices.Clone(args), words, "-c", filepath.Join(dir, "connectd.yaml"))
}

// want fails the test unless the command ended with this code and said these words, on either stream.
func (r result) want(t *testing.T, code int, words ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.stdout, r.stderr)
	}
	for _, w := range words {
		if !strings.Contains(r.stdout+r.stderr, w) {
			t.Errorf("%q is missing in\nstdout: %s\nstderr: %s", w, r.stdout, r.stderr)
		}
	}
}

// quickstart is the configuration most tests use.
const quickstart = `connectors:
  orders:
    source: {plugin: sqlite, path: ./shop.db, table: outbox}
    sink: {plugin: file, path: ./out.jsonl}
    delivery: {lease: 2s}
`

// write puts a file into the directory. "./" in it becomes the directory.
func write(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(content, "./", dir+"/")), 0o644); err != nil {
		t.Fatal(err)
	}
}

// shopDir returns a directory with the configuration, initialised.
func shopDir(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "connectd.yaml", config)
	connectd(t, dir, "init").want(t, 0)
	return dir
}
