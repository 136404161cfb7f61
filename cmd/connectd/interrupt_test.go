package main

import (
	"syscall"
	"testing"
)

// TestCtrlCDrains: SIGINT, which a terminal sends to the whole group, ends the daemon as SIGTERM does. Its sink works on
// until the last answer, nothing is sent twice, and no process is left: https://github.com/ConduitIO/conduit/issues/2519,
// https://github.com/hashicorp/go-plugin/issues/10
func TestCtrlCDrains(t *testing.T) {
	t.Parallel()
	dir, s := slowShop(t, "")
	s.insert(500, 20)
	d := startDaemon(t, dir)
	midBatch(d, dir)
	sink := d.sinkPID()
	if err := syscall.Kill(-d.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := d.wait(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if running(sink) {
		t.Error("the sink's process outlived the daemon")
	}
	if s.count("pending") == 0 {
		t.Fatal("everything was sent before the signal; the test shows nothing")
	}
	if published, came := s.count("published"), len(arrivals(t, dir)); published != came {
		t.Errorf("%d rows arrived and %d are published", came, published)
	}
	startDaemon(t, dir)
	s.published(500)
	if n := audit(t, dir, 500); n != 0 {
		t.Errorf("%d rows were sent twice", n)
	}
}
