package file

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// limitedEnv marks the process that a test of a limit runs in: the limit is the process's, and `go test` writes a file
// of its own in the process it starts.
const limitedEnv = "CONNECTD_TEST_FILE_SINK_LIMITED"

// inOwnProcess runs the calling test again in another process, or reports true when this is it.
func inOwnProcess(t *testing.T) bool {
	t.Helper()
	if os.Getenv(limitedEnv) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), limitedEnv+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// limitFiles makes the kernel cut writes at size bytes of a file, like a disk that is full, until the returned
// function is called.
func limitFiles(t *testing.T, size int64) (restore func()) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	limit := old
	limit.Cur = uint64(size)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	restore = sync.OnceFunc(func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(restore)
	return restore
}

// TestFullDisk lets the kernel take a part of a batch only: nothing of it stays, and the sink goes on by itself.
func TestFullDisk(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "out")
	s := open(t, path)
	wantDelivered(t, send(t, s, "1"))
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	restore := limitFiles(t, info.Size()*5/2)
	wantFailed(t, send(t, s, "2", "3", "4"), "write_failed", false)
	wantLines(t, path, "1")
	wantDelivered(t, send(t, s, "2")) // there is room for this one
	wantFailed(t, send(t, s, "3"), "write_failed", false)
	restore()
	wantDelivered(t, send(t, s, "3", "4"))
	wantLines(t, path, "1", "2", "3", "4")
}

// TestCannotTakeBack has a file that grows but does not shrink.
func TestCannotTakeBack(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	fd, err := unix.MemfdCreate("out", unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	memory := os.NewFile(uintptr(fd), "out")
	defer memory.Close()
	if _, err := unix.FcntlInt(memory.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	target, err := openTarget(config{Path: path, Sync: true}, nil, func(string, ...any) {})
	if err != nil {
		t.Fatal(err)
	}
	s := onto(t, path, target)
	limitFiles(t, 300)
	outcomes := send(t, s, "1", "2", "3")
	wantFailed(t, outcomes, "write_failed", true)
	if !strings.Contains(outcomes[0].Message, "take it back") {
		t.Errorf("message %q", outcomes[0].Message)
	}
}
