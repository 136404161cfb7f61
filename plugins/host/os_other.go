//go:build unix && !linux

package host

import (
	"io/fs"
	"net"
	"syscall"
)

// Linux is the platform. Elsewhere the plugin's own watch on its stdin must do for what is missing here: no signal at
// the daemon's death, no exec of a descriptor, no look at who serves the socket.

func pinnedPath(path string, _ int) string { return path }

func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func awaitExit(int) {}

func checkPeer(net.Conn, int) error { return nil }

func cpuTicks(int) (uint64, bool) { return 0, false }

func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
