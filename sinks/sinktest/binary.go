package sinktest

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/connectd/connectd/plugins/host"
)

// Program is what serves a sink as a process of its own.
type Program struct {
	Path string
	Args []string
	Env  []string // "NAME=value", besides the few variables that every sink's process gets
}

// Build compiles a command, given as for `go build`, and returns it as a program.
func Build(t testing.TB, pkg string) Program {
	t.Helper()
	path := filepath.Join(t.TempDir(), "connectd-sink-under-test")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return Program{Path: path}
}

// Binary tests a sink's program: everything Run tests, through the daemon's own plugin host, and what only a process
// can do wrong.
func Binary(t *testing.T, p Program, start func(t testing.TB) Harness) {
	Run(t, func(t testing.TB) Harness { return p.harness(t, start(t)) })
	for _, c := range processChecks() {
		t.Run(c.name, func(t *testing.T) { c.run(&process{newTrial(t, p.harness(t, start(t))), p}) })
	}
}

// harness puts the process into the place of the harness's sink.
func (p Program) harness(t testing.TB, h Harness) Harness {
	t.Helper()
	h.Sink = host.Start(host.Spec{
		Connector: "sinktest", Plugin: filepath.Base(p.Path),
		Path: p.Path, Args: p.Args, Env: p.Env, RuntimeDir: shortDir(t),
	}, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})))
	return h
}

// shortDir is a directory with a path short enough for a socket in it; that of t.TempDir grows with the test's name.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sinktest") //nolint:usetesting // t.TempDir is too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the runtime directory: %v", err)
		}
	})
	return dir
}
