package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestAnIgnoredHangupStaysIgnored: under nohup the daemon outlives its terminal and does not even speak of it.
func TestAnIgnoredHangupStaysIgnored(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d := launch(t, dir, exec.Command("/bin/sh", "-c", `trap "" HUP; exec "$@"`, "sh", self, "run", "--http", "127.0.0.1:0"))
	d.ready()
	d.signal(syscall.SIGHUP)
	s := openShop(t, dir)
	s.insert(5, 2)
	s.published(5)
	d.signal(syscall.SIGTERM)
	if code := d.wait(); code != 0 || strings.Contains(d.log.String(), "SIGHUP") {
		t.Errorf("exit code %d, log:\n%s", code, d.log.String())
	}
}

// TestSIGHUPDoesNotStopTheDaemon: it says that reloading is not there yet, and rows flow on.
func TestSIGHUPDoesNotStopTheDaemon(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart)
	s := openShop(t, dir)
	d := startDaemon(t, dir)
	d.ready()
	sink := d.sinkPID()
	d.signal(syscall.SIGHUP)
	d.eventually("it says so", func() (bool, string) {
		log := d.log.String()
		return strings.Contains(log, "level=WARN") && strings.Contains(log, "cannot reload its configuration yet") &&
			strings.Contains(log, "connectd check"), log
	})
	s.insert(5, 2)
	s.published(5)
	if audit(t, dir, 5); d.sinkPID() != sink {
		t.Error("the sink was started again")
	}
}
