package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAStandstillIsNobodysCrash: a daemon that is stopped with its sink in mid-call, as when their machine is paused, wakes
// to a deadline that has passed and a sink that is well. Six times that would bury a row of a sink that hangs; this one
// is delivered in the end, uncharged.
func TestAStandstillIsNobodysCrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	installTorture(t, dir)
	config := tortureConfig(", pause: 1500ms, path: "+filepath.Join(dir, "out.jsonl"), ", timeout: 3s")
	write(t, dir, "connectd.yaml", strings.Replace(config, "lease: 2s", "lease: 30s", 1)) // the lease is not what this is about
	connectd(t, dir, "init").want(t, 0)
	s := openShop(t, dir)
	s.insert(1, 1)
	d := startDaemon(t, dir)
	stops := 0
	for stops < 6 {
		d.eventually("the sink has the row", func() (bool, string) {
			got := len(arrivals(t, dir))
			return got > stops || s.count("published") > 0, fmt.Sprint(got)
		})
		if s.count("published") > 0 {
			break // this test was too slow to stop them in mid-call
		}
		stops++
		sink, err := os.FindProcess(d.sinkPID())
		if err != nil {
			t.Fatal(err)
		}
		d.signal(syscall.SIGSTOP)
		_ = sink.Signal(syscall.SIGSTOP)
		time.Sleep(3500 * time.Millisecond) // longer than the call may take
		_ = sink.Signal(syscall.SIGCONT)
		d.signal(syscall.SIGCONT)
	}
	s.published(1)
	t.Logf("stopped %d times", stops)
	var crashes, attempts int
	if err := s.db.QueryRow("SELECT crashes, attempts FROM outbox").Scan(&crashes, &attempts); err != nil || crashes != 0 || attempts != 0 {
		t.Errorf("the row was charged %d crashes and %d attempts, %v", crashes, attempts, err)
	}
	connectd(t, dir, "rows", "show", "id-000001").want(t, 0, "this process stood still for")
	audit(t, dir, 1)
}
