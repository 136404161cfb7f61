package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A start directory is private to one process of one start: it holds the socket and is the process's working and
// temporary directory. While its daemon lives, the daemon holds a lock on the file in it, which is how others know that
// it is in use.
type startDir struct {
	path string
	lock *os.File
}

const (
	lockName  = "lock"
	usedName  = "sink-" // of a directory whose lock is or was held
	rawName   = ".new-" // of one whose lock is not held yet
	rawMaxAge = time.Hour
	// socketName is the longest name go-plugin gives a socket: "plugin" and a random number of 32 bits.
	socketName = len("/plugin4294967295")
	// maxSocketPath is what sockaddr_un holds on the platform, without the NUL: 107 on Linux, 103 elsewhere.
	maxSocketPath = len(unix.RawSockaddrUnix{}.Path) - 1
)

// newStartDir makes a directory under base, which is made too if necessary.
func newStartDir(base string) (*startDir, error) {
	base, err := filepath.Abs(base)
	if err != nil {
		return nil, fmt.Errorf("runtime directory: %w", err)
	}
	if err := checkBase(base); err != nil {
		return nil, err
	}
	raw, err := os.MkdirTemp(base, rawName)
	if err != nil {
		return nil, fmt.Errorf("making a start directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(raw, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	path := filepath.Join(base, usedName+strings.TrimPrefix(filepath.Base(raw), rawName))
	if err == nil {
		err = os.Rename(raw, path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making a start directory: %w", err), lock.Close(), os.RemoveAll(raw))
	}
	return &startDir{path: path, lock: lock}, nil
}

// checkBase makes base if it is missing and refuses one that others may write, or whose path is too long for sockets.
func checkBase(base string) error {
	longest := len(base) + len("/"+usedName) + len("4294967295") + socketName
	if longest > maxSocketPath {
		return fmt.Errorf("the runtime directory %s is too long: a socket in it has a path of up to %d bytes, and the system's limit is %d; choose one at least %d bytes shorter",
			base, longest, maxSocketPath, longest-maxSocketPath)
	}
	if err := os.MkdirAll(base, 0o700); err != nil {
		return fmt.Errorf("making the runtime directory: %w", err)
	}
	info, err := os.Lstat(base)
	if err != nil {
		return fmt.Errorf("looking at the runtime directory: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("the runtime directory %s is not a directory", base)
	case !ok || int(owner.Uid) != os.Geteuid():
		return fmt.Errorf("the runtime directory %s belongs to another user", base)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("the runtime directory %s may be written by its group or by everybody (mode %v): chmod go-w it", base, info.Mode())
	}
	return nil
}

// remove deletes the directory and gives up the lock. More than once does no harm.
func (d *startDir) remove() error {
	err := os.RemoveAll(d.path)
	if closeErr := d.lock.Close(); closeErr != nil && !errors.Is(closeErr, fs.ErrClosed) {
		err = errors.Join(err, closeErr)
	}
	if err != nil {
		return fmt.Errorf("removing the start directory: %w", err)
	}
	return nil
}

// sweep removes the start directories of daemons that are dead: those whose lock nobody holds. It answers how many.
func sweep(base string) (int, error) {
	entries, err := os.ReadDir(base)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("sweeping the runtime directory: %w", err)
	}
	swept := 0
	var errs []error
	for _, e := range entries {
		path := filepath.Join(base, e.Name())
		if !e.IsDir() || !abandoned(path, e) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			errs = append(errs, fmt.Errorf("sweeping the runtime directory: %w", err))
			continue
		}
		swept++
	}
	return swept, errors.Join(errs...)
}

func abandoned(path string, e fs.DirEntry) bool {
	if strings.HasPrefix(e.Name(), rawName) { // a daemon that died while it made it, or one that is making it now
		info, err := e.Info()
		return err == nil && time.Since(info.ModTime()) > rawMaxAge
	}
	if !strings.HasPrefix(e.Name(), usedName) {
		return false // not ours
	}
	lock, err := os.Open(filepath.Join(path, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		return true // its owner or another sweep is removing it
	}
	if err != nil {
		return false
	}
	defer func() { _ = lock.Close() }()
	return unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}
