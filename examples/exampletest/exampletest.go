// Package exampletest is for the tests of the examples beside it: they run an example as its reader does, and say what must
// come of it. It shows nothing about connectd itself.
package exampletest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Run runs the example's run.sh, in its folder, with variables that are added to the environment, and returns what it
// printed. It fails the test when the script fails or leaves processes or files behind.
func Run(t *testing.T, env []string, args ...string) (out string) {
	t.Helper()
	before := files(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // it builds the programs
	defer cancel()
	var printed bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", append([]string{"run.sh"}, args...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &printed, &printed
	cmd.WaitDelay = 10 * time.Second // for what still has its output open
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what a script that failed has left
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, &printed)
	}
	if after := files(t); !slices.Equal(before, after) {
		t.Errorf("the example left files behind: %v, was %v", after, before)
	}
	return printed.String()
}

func files(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Want fails the test for each of the words that are not in what an example printed.
func Want(t *testing.T, out string, words ...string) {
	t.Helper()
	for _, want := range words {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}
