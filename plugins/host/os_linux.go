package host

import (
	"bytes"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// pinnedPath is how the child, which has the descriptor as its number fd, runs it.
func pinnedPath(_ string, fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// childAttributes puts the child into a process group of its own, so that signals for the daemon's group do not reach
// it and its own children can be ended with it, and has it killed when the thread that started it ends.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns when the child has ended, and leaves it a zombie: its number and its group's stay taken.
func awaitExit(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			return
		}
	}
}

// checkPeer refuses a socket at whose other end is not the process group we started, under our user.
func checkPeer(conn net.Conn, group int) error {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("not a Unix socket: %T", conn)
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return fmt.Errorf("asking who serves the socket: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return fmt.Errorf("asking who serves the socket: %w", err)
	}
	if credErr != nil {
		return fmt.Errorf("asking who serves the socket: %w", credErr)
	}
	peerGroup, err := unix.Getpgid(int(cred.Pid))
	if err != nil || peerGroup != group || int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("process %d of user %d serves the socket, and it is not the one that was started (%d)", cred.Pid, cred.Uid, group)
	}
	return nil
}

// cpuTicks is the processor time a process has used, in clock ticks; ok is false when that can't be read.
func cpuTicks(pid int) (ticks uint64, ok bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// The name, in parentheses, may hold anything; the fields after it are numbers. utime and stime are the 14th and
	// 15th of all.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, false
	}
	user, err1 := strconv.ParseUint(string(fields[11]), 10, 64)
	system, err2 := strconv.ParseUint(string(fields[12]), 10, 64)
	return user + system, err1 == nil && err2 == nil
}

func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
