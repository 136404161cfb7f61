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

// killable is slowShop with a runtime directory of its own.
func killable(t *testing.T) (dir, runtime string, s *shop) {
	t.Helper()
	dir, s = slowShop(t, "")
	runtime = t.TempDir()
	config, err := os.ReadFile(filepath.Join(dir, "connectd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "connectd.yaml", strings.Replace(string(config), "daemon: {", "daemon: {runtime_dir: "+runtime+", ", 1))
	return dir, runtime, s
}

// sinksOf lists the processes whose program is in the directory.
func sinksOf(t *testing.T, dir string) (pids []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if program, err := os.Readlink(link); err == nil && strings.HasPrefix(program, dir+"/") {
			pids = append(pids, filepath.Base(filepath.Dir(link)))
		}
	}
	return pids
}

// TestKill9OfTheDaemonLosesNothing: no loss, order kept, repeats marked and no more than what was in flight. Its sink, in
// mid-call and with nobody left to read what it logs, ends at once, and what it left in the runtime directory goes with the
// next start: https://github.com/JasperFx/wolverine/issues/565, https://github.com/hashicorp/go-plugin/issues/114
func TestKill9OfTheDaemonLosesNothing(t *testing.T) {
	t.Parallel()
	dir, runtime, s := killable(t)
	s.insert(400, 20)
	d := startDaemon(t, dir)
	midBatch(d, dir)
	if len(sinksOf(t, dir)) != 1 {
		t.Fatalf("processes %v, want the sink's", sinksOf(t, dir))
	}
	d.signal(syscall.SIGKILL)
	killed := time.Now()
	d.wait()
	for sink := d.sinkPID(); running(sink); time.Sleep(5 * time.Millisecond) {
		if time.Since(killed) > time.Second {
			t.Fatal("the sink's process outlives its daemon by a second")
		}
	}
	if left := sinksOf(t, dir); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	if s.count("pending") == 0 {
		t.Fatal("everything was sent before the kill; the test shows nothing")
	}
	remains := listDir(t, runtime)
	if len(remains) != 1 {
		t.Fatalf("in the runtime directory: %v, want what the daemon could not remove any more", remains)
	}
	d = startDaemon(t, dir)
	d.ready()
	if now := listDir(t, runtime); len(now) != 1 || now[0] == remains[0] {
		t.Errorf("in the runtime directory: %v; %v was to be swept", now, remains)
	}
	s.published(400)
	if n := audit(t, dir, 400); n > 20 {
		t.Errorf("%d repeats, and 20 rows were in flight at most", n)
	}
	stopsWithoutTraces(d, dir, runtime)
}

// TestKill9OfThePluginLosesNothing: it is started again, by another client than the one whose process is gone, and the
// daemon goes on; nothing of the dead one is left: https://github.com/hashicorp/go-plugin/issues/31,
// https://github.com/raystack/optimus/issues/603, https://github.com/hashicorp/go-plugin/issues/305
func TestKill9OfThePluginLosesNothing(t *testing.T) {
	t.Parallel()
	dir, runtime, s := killable(t)
	s.insert(400, 20)
	d := startDaemon(t, dir)
	midBatch(d, dir)
	first, remains := d.sinkPID(), listDir(t, runtime)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.published(400)
	if n := audit(t, dir, 400); n > 20 {
		t.Errorf("%d repeats, and 20 rows were in flight at most", n)
	}
	if d.sinkPID() == first {
		t.Error("no new process was started")
	}
	if pids := sinksOf(t, dir); len(pids) != 1 || pids[0] != fmt.Sprint(d.sinkPID()) {
		t.Errorf("processes %v, want only %d", pids, d.sinkPID())
	}
	if now := listDir(t, runtime); len(now) != 1 || now[0] == remains[0] {
		t.Errorf("in the runtime directory: %v; %v was the dead process's", now, remains)
	}
	if _, metrics := d.get("/metrics"); !strings.Contains(metrics, `connectd_plugin_restarts_total{connector="orders"} 1`) {
		t.Error("the metrics do not count the restart")
	}
	stopsWithoutTraces(d, dir, runtime)
}

// stopsWithoutTraces ends the daemon and looks for what it left behind.
func stopsWithoutTraces(d *daemonProcess, dir, runtime string) {
	d.t.Helper()
	d.signal(syscall.SIGTERM)
	if code := d.wait(); code != 0 {
		d.t.Errorf("exit code %d", code)
	}
	if left := append(listDir(d.t, runtime), sinksOf(d.t, dir)...); len(left) > 0 {
		d.t.Errorf("left behind: %v", left)
	}
}
