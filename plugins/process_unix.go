//go:build unix

package plugins

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// divertStdout makes descriptor 1 another name of stderr, for this process, its C libraries and its children, and
// returns a file for the real stdout, on which the daemon waits for the handshake line and nothing else.
func divertStdout() (*os.File, error) {
	fd, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("duplicating descriptor 1: %w", err)
	}
	if err := unix.Dup2(2, 1); err != nil {
		return nil, fmt.Errorf("pointing descriptor 1 at stderr: %w", err)
	}
	return os.NewFile(uintptr(fd), "handshake"), nil
}

// restrict makes what the process creates its user's own, the socket above all, and keeps its memory, which holds the
// settings' secrets, out of core dumps.
func restrict() error {
	unix.Umask(0o077)
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbidding core dumps: %w", err)
	}
	return nil
}
