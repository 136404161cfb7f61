//go:build linux

package bench

import (
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
