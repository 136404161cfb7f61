//go:build unix

package file

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/connectd/connectd/core"
)

// lock takes the file for this sink alone, until it is closed or its process ends.
func lock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("%w (%s)", core.ErrInUse, holder(f))
		default:
			return err
		}
	}
}

// holder says as well as it can who has the file's lock.
func holder(f *os.File) string {
	info, err := f.Stat()
	if err != nil {
		return "unknown process"
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "unknown process"
	}
	device := uint64(stat.Dev) //nolint:unconvert // its type differs between systems
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(device), unix.Minor(device), stat.Ino)
	locks, err := os.ReadFile("/proc/locks") // Linux only
	if err != nil {
		return "unknown process"
	}
	for line := range strings.Lines(string(locks)) {
		// 1: FLOCK ADVISORY WRITE pid major:minor:inode start end
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] != "FLOCK" || fields[5] != file {
			continue
		}
		name, err := os.ReadFile("/proc/" + fields[4] + "/comm")
		if err != nil {
			return "process " + fields[4]
		}
		return "process " + fields[4] + ", " + strings.TrimSpace(string(name))
	}
	return "unknown process"
}

// unlinked reports whether the open file has no name any more, so that what is in it ends with its last reader.
func unlinked(f *os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Nlink == 0
}
