package services

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Ctrl-C takes away what was started, whatever has been reached.
func TestInterrupted(t *testing.T) {
	for _, when := range []string{"set", "set/postgres/data/PG_VERSION", "set/postgres.pid", "log/postgres.log"} {
		t.Run(filepath.Base(when), func(t *testing.T) {
			cmd, dir := script(t, "up", "postgres")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			appears(t, filepath.Join(dir, when), ended)
			home, err := os.Readlink(filepath.Join(dir, "set"))
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; cmd.ProcessState.ExitCode() != 130 {
				t.Errorf("after an interrupt: %v, want exit status 130", err)
			}
			nothingLeft(t, dir, home)
		})
	}
}

// What nobody can take down any more, since its owner died, goes when the script is used again, by whomever.
func TestAbandoned(t *testing.T) {
	owner := exec.CommandContext(t.Context(), "cat")
	stdin, err := owner.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	up, dir := script(t, "up", "postgres")
	up.Env = append(up.Env, fmt.Sprintf("CONNECTD_SERVICES_OWNER=%d", owner.Process.Pid))
	if out, err := up.CombinedOutput(); err != nil {
		t.Fatalf("up: %v\n%s", err, out)
	}
	home, err := os.Readlink(filepath.Join(dir, "set"))
	if err != nil {
		t.Fatal(err)
	}
	other := func() {
		down, _ := script(t, "down")
		if out, err := down.CombinedOutput(); err != nil {
			t.Fatalf("down: %v\n%s", err, out)
		}
	}
	other()
	if _, err := os.Stat(filepath.Join(home, "postgres.pid")); err != nil {
		t.Fatalf("while the owner lives: %v", err)
	}
	stdin.Close()
	if err := owner.Wait(); err != nil {
		t.Fatal(err)
	}
	other()
	nothingLeft(t, dir, home)
}

// script is a run of the script on a set of its own, which is gone when the test ends, also a failed one.
func script(t *testing.T, args ...string) (*exec.Cmd, string) {
	t.Helper()
	program, dir := shared(t, "CONNECTD_TEST_SERVICES_SH"), t.TempDir()
	run := func(ctx context.Context, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Env = append(os.Environ(), "CONNECTD_SERVICES_DIR="+dir, fmt.Sprintf("CONNECTD_SERVICES_OWNER=%d", os.Getpid()))
		return cmd
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if out, err := run(ctx, "down").CombinedOutput(); err != nil {
			t.Errorf("down: %v\n%s", err, out)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return run(ctx, args...), dir
}

// appears waits until there is something at the path, which the script makes.
func appears(t *testing.T, path string, ended <-chan error) {
	t.Helper()
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		select {
		case err := <-ended:
			t.Fatalf("the script ended before %s appeared: %v", path, err)
		case <-time.After(time.Millisecond):
		}
	}
}

// nothingLeft checks that the set's folders are gone and that no process works in them.
func nothingLeft(t *testing.T, dir, home string) {
	t.Helper()
	for _, path := range []string{filepath.Join(dir, "set"), home} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		where, err := os.Readlink(filepath.Join(process, "cwd"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
		if strings.HasPrefix(where, home) {
			t.Errorf("%s still works in %s", process, where)
		}
	}
}
