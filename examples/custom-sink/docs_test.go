package main

import (
	"bytes"
	"context"
	"go/scanner"
	"go/token"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFortyLines counts the lines of main.go that have more than a comment.
func TestFortyLines(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	file := files.AddFile("main.go", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			break
		}
		for i := range strings.Count(strings.TrimSpace(text), "\n") + 1 {
			lines[file.Line(pos)+i] = true
		}
	}
	if n := len(lines); n == 0 || n > 40 {
		t.Errorf("main.go has %d lines, at most 40 are promised", n)
	}
}

// TestRun runs the example as its reader does.
func TestRun(t *testing.T) {
	before := names(t)
	out := shell(t, "sh run.sh", os.Environ())
	for _, want := range []string{
		"line 1.0.0", "orders: ok", "order 2 of bob: rolled back", "running",
		`1 "order-1" "ada" "order.placed" "{\"order\":1,\"cents\":4200}"`, `1 "order-3" "ada"`,
	} {
		if !contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if strings.Contains(out, `"order-2"`) {
		t.Errorf("a command whose transaction was rolled back arrived:\n%s", out)
	}
	if after := names(t); !slices.Equal(before, after) {
		t.Errorf("the example left files behind: %v, was %v", after, before)
	}
}

// TestReadme runs the commands of the README, with a sleep that waits until nothing is pending.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	for i, part := range strings.Split(string(readme), "```sh\n") {
		if code, _, found := strings.Cut(part, "```"); found && i > 0 {
			script.WriteString(code)
		}
	}
	home, bin := t.TempDir(), t.TempDir()
	sleep := `#!/bin/sh
for _ in $(seq 100); do
	[ "$(connectd rows list --state pending --json)" = "[]" ] && exit
	command -p sleep 0.1
done
exit 1
`
	if err := os.WriteFile(filepath.Join(bin, "sleep"), []byte(sleep), 0o700); err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("127.0.0.1:7070", freeAddress(t), "$HOME", home)
	out := shell(t, "set -eu\n"+here.Replace(script.String()), append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH")))
	for _, want := range []string{"line 1.0.0", `"x-secret": true`, "orders: ok", "CREATE TABLE", `1 "order-3" "ada"`, "running"} {
		if !contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}

// contains reports whether out has the words, with any blanks between them: the widths of tables differ.
func contains(out, words string) bool {
	return strings.Contains(strings.Join(strings.Fields(out), " "), words)
}

// shell runs a script in this folder and fails when it fails or leaves processes behind.
func shell(t *testing.T, script string, env []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // it builds programs
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = env, &out, &out, 10*time.Second
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

// freeAddress is one nobody listens on at the moment.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
