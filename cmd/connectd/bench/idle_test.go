//go:build linux

package bench

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// settleTime is how long a daemon has been idle when its memory is looked at.
const settleTime = 6 * time.Second

// benchmarkIdle weighs a daemon and its one plugin, the file sink, with an empty table and nothing to do.
func benchmarkIdle(b *testing.B, p programs, r *report) {
	for b.Loop() {
		s := newSetup(b, p, fileSinkYAML, "")
		s.init(b)
		d := s.run(b)
		d.await(connectorRuns, 0)
		time.Sleep(settleTime)
		daemon, plugin := pss(b, d.cmd.Process.Pid), pss(b, d.sinkPID())
		r.add("idle memory (PSS), daemon and plugin", "", "MB", atMost(60), daemon+plugin)
		r.add("  of it the daemon", "", "MB", goal{}, daemon)
		d.stop()
	}
}

// cpuTime is the processor time a process has used, in hundredths of a second.
func cpuTime(b *testing.B, pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		b.Fatalf("stat of process %d: %s", pid, stat)
	}
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		b.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// pss is a process's proportional share of the memory it uses, in megabytes of a million bytes: pages that several
// processes share are divided among them.
func pss(b *testing.B, pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "Pss:"); found {
			var kib float64
			if _, err := fmt.Sscan(value, &kib); err != nil {
				b.Fatal(err)
			}
			return kib * 1024 / 1e6
		}
	}
	b.Fatalf("no Pss in %s", text)
	return 0
}
