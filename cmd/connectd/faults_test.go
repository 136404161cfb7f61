package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// slowShop is a directory whose sink takes a while for each batch, so that a signal comes in mid-batch.
func slowShop(t *testing.T, delivery string) (dir string, s *shop) {
	t.Helper()
	dir = t.TempDir()
	installTorture(t, dir)
	write(t, dir, "connectd.yaml", tortureConfig(", pause: 20ms, path: "+filepath.Join(dir, "out.jsonl"),
		", batch: {max_records: 10}, in_flight: 2"+delivery))
	connectd(t, dir, "init").want(t, 0)
	return dir, openShop(t, dir)
}

// midBatch waits until something has arrived and much is left.
func midBatch(d *daemonProcess, dir string) {
	d.t.Helper()
	d.eventually("something arrived", func() (bool, string) {
		_, err := os.Stat(filepath.Join(dir, "out.jsonl"))
		return err == nil, ""
	})
}

// TestSIGTERMInMidBatchSendsNothingTwice: a deploy repeats nothing and exits 0:
// https://github.com/ConduitIO/conduit/issues/2519, https://github.com/pal-tamas/rask/pull/566,
// https://github.com/Trendyol/go-pq-cdc/pull/149
func TestSIGTERMInMidBatchSendsNothingTwice(t *testing.T) {
	t.Parallel()
	dir, s := slowShop(t, "")
	s.insert(500, 20)
	d := startDaemon(t, dir)
	midBatch(d, dir)
	sink := d.sinkPID()
	d.signal(syscall.SIGTERM)
	if code := d.wait(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if running(sink) {
		t.Error("the sink's process outlived the daemon")
	}
	if s.count("pending") == 0 {
		t.Fatal("everything was sent before the signal; the test shows nothing")
	}
	before := len(arrivals(t, dir))
	if published := s.count("published"); published != before {
		t.Errorf("%d rows arrived and %d are published", before, published)
	}
	startDaemon(t, dir)
	s.published(500)
	if n := audit(t, dir, 500); n != 0 {
		t.Errorf("%d rows were sent twice", n)
	}
}

// TestSecondSignalCutsTheDrainShort: what was on its way is unknown, and marked when it is sent again.
// One signal is enough to drain, two to force the end: https://github.com/ConduitIO/conduit/issues/2519
func TestSecondSignalCutsTheDrainShort(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	installTorture(t, dir)
	config := tortureConfig(", pause: 20s, path: "+filepath.Join(dir, "out.jsonl"), ", drain: 1m")
	write(t, dir, "connectd.yaml", config)
	connectd(t, dir, "init").want(t, 0)
	s := openShop(t, dir)
	s.insert(3, 3)
	d := startDaemon(t, dir)
	d.eventually("all of it is on its way", func() (bool, string) { return len(arrivals(t, dir)) == 3, "" })
	d.signal(syscall.SIGTERM)
	eventually(t, "the drain begins", func() (bool, string) { return strings.Contains(d.log.String(), "stopping"), "" })
	began := time.Now()
	d.signal(syscall.SIGTERM)
	if code := d.wait(); code != 0 || time.Since(began) > 10*time.Second {
		t.Errorf("exit code %d after %v", code, time.Since(began))
	}
	if s.count("pending") != 3 || strings.Contains(d.log.String(), "not given back") {
		t.Errorf("%d rows are pending, log:\n%s", s.count("pending"), d.log.String())
	}
	write(t, dir, "connectd.yaml", strings.Replace(config, "pause: 20s", "pause: 1ms", 1))
	startDaemon(t, dir)
	s.published(3)
	if n := audit(t, dir, 3); n != 3 {
		t.Errorf("%d rows came again, want all 3, with the mark", n)
	}
}

// TestSecondDaemonTakesOver within a lease and a poll of the first one's death.
// Rows that stay locked for hours after a kill: https://github.com/graphile/worker/issues/204,
// https://github.com/graphile/worker/pull/374, https://github.com/JasperFx/wolverine/issues/565
func TestSecondDaemonTakesOver(t *testing.T) {
	t.Parallel()
	dir, s := slowShop(t, "")
	first := startDaemon(t, dir)
	first.ready()
	second := startDaemon(t, dir)
	second.ready()
	s.insert(50, 5)
	s.published(50)
	first.signal(syscall.SIGKILL)
	first.wait()
	s.insert(50, 5)
	began := time.Now()
	s.published(100)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("taken over after %v; the lease is 2s", took)
	}
	audit(t, dir, 100)
}

// TestReadySoonAfterStart: 300 ms are promised; a busy machine is given more before this fails.
func TestReadySoonAfterStart(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart)
	began := time.Now()
	startDaemon(t, dir).ready()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("ready after %v", took)
	} else {
		t.Logf("ready after %v", took)
	}
}

// TestTwoDaemonsAndOneFile: the file lets one sink write at a time. When the other daemon's sink has got it, the leases
// follow it there.
func TestTwoDaemonsAndOneFile(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart)
	s := openShop(t, dir)
	first := startDaemon(t, dir)
	first.ready()
	second := startDaemon(t, dir)
	second.eventually("the second sink waits for the file", func() (bool, string) {
		code, body := second.get("/readyz")
		return code == 503 && strings.Contains(body, "another sink is writing to it"), body
	})
	s.insert(10, 2)
	s.published(10)
	var killed int
	second.eventually("the second sink gets the file", func() (bool, string) {
		if pid := first.sinkPID(); pid != killed {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			killed = pid
		}
		code, body := second.get("/readyz")
		return code == 200, body
	})
	s.insert(10, 2)
	s.published(20)
	audit(t, dir, 20)
	connectd(t, dir, "status").want(t, 0, "running", "1/1")
}
