//go:build linux

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// process is what /proc/PID/stat says of one.
type process struct {
	parent     int
	own, ended time.Duration // processor time of its own, and of its children that have ended
}

func statOf(pid int) (process, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	var p process
	var state string
	var skip, user, system, endedUser, endedSystem int64
	if _, err := fmt.Sscan(after, &state, &p.parent, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip,
		&user, &system, &endedUser, &endedSystem); err != nil {
		return process{}, fmt.Errorf("stat of process %d, %s: %w", pid, stat, err)
	}
	const tick = 10 * time.Millisecond
	p.own, p.ended = time.Duration(user+system)*tick, time.Duration(endedUser+endedSystem)*tick
	return p, nil
}

// cpuTime is the processor time a process has used, in hundredths of a second.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	p, err := statOf(pid)
	if err != nil {
		b.Fatal(err)
	}
	return p.own
}

// children are the processes that a process has started and that run.
func children(b *testing.B, parent int) map[int]process {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		b.Fatal(err)
	}
	found := map[int]process{}
	for _, dir := range dirs {
		var pid int
		if _, err := fmt.Sscan(filepath.Base(dir), &pid); err != nil {
			b.Fatal(err)
		}
		if p, err := statOf(pid); err == nil && p.parent == parent { // others end meanwhile
			found[pid] = p
		}
	}
	return found
}

// status is a number that /proc/PID/status has.
func status(b *testing.B, pid int, name string) float64 { return procNumber(b, pid, "status", name) }

// pss is a process's proportional share of the memory it uses, in megabytes of a million bytes: pages that several
// processes share are divided among them.
func pss(b *testing.B, pid int) float64 {
	return procNumber(b, pid, "smaps_rollup", "Pss") * 1024 / 1e6
}

// procNumber is the number after a name in a file of /proc/PID.
func procNumber(b *testing.B, pid int, file, name string) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			var number float64
			if _, err := fmt.Sscan(value, &number); err != nil {
				b.Fatal(err)
			}
			return number
		}
	}
	b.Fatalf("no %s in %s", name, text)
	return 0
}

// findParent finds PostgreSQL's first process, if it runs on this machine.
func (s *server) findParent(b *testing.B) {
	conn, err := s.db.Conn(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	var pid int
	if err := conn.QueryRowContext(b.Context(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		b.Fatal(err)
	}
	if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.TrimSpace(string(name)) != "postgres" {
		return
	}
	backend, err := statOf(pid)
	if err != nil {
		b.Fatal(err)
	}
	s.parent = backend.parent
}

// serverTime is the processor time of all of PostgreSQL's processes, also of those that have ended.
func (s *server) serverTime(b *testing.B) time.Duration {
	if s.parent == 0 {
		return 0
	}
	parent, err := statOf(s.parent)
	if err != nil {
		b.Fatal(err)
	}
	sum := parent.own + parent.ended
	for _, each := range children(b, s.parent) {
		sum += each.own
	}
	return sum
}
