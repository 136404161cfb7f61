package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// notReady waits until readiness is red for a reason with these words, and until the connector's metric says so too.
func (d *daemonProcess) notReady(words ...string) {
	d.t.Helper()
	d.eventually("readiness gives the reason", func() (bool, string) {
		code, body := d.get("/readyz")
		var answer struct {
			Ready      bool
			Connectors []struct {
				Name, Reason string
				Ready        bool
			}
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || len(answer.Connectors) != 1 {
			return false, body
		}
		c := answer.Connectors[0]
		ok := code == 503 && !answer.Ready && !c.Ready && c.Name == "orders"
		for _, w := range words {
			ok = ok && strings.Contains(c.Reason, w)
		}
		return ok, body
	})
	if _, metrics := d.get("/metrics"); !strings.Contains(metrics, `connectd_connector_ready{connector="orders"} 0`) {
		d.t.Error("the metrics call it ready")
	}
	if code, body := d.get("/healthz"); code != 200 {
		d.t.Errorf("healthz: %d %s; a restart would not help", code, body)
	}
}

// TestNotReadyWhileTheSourceFails: the table is taken away under the running daemon, and comes back.
func TestNotReadyWhileTheSourceFails(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart)
	s := openShop(t, dir)
	d := startDaemon(t, dir)
	d.ready()
	s.exec("ALTER TABLE outbox RENAME TO elsewhere")
	d.notReady("source: ", "no such table", "outbox")
	s.exec("ALTER TABLE elsewhere RENAME TO outbox")
	d.ready()
	s.insert(3, 1)
	s.published(3)
}

// TestNotReadyWhileThePluginIsQuarantined: it ended again and again before it could serve.
func TestNotReadyWhileThePluginIsQuarantined(t *testing.T) {
	t.Parallel()
	dir, _ := tortured(t, "")
	d := startDaemon(t, dir, tortureMode+"=crashes")
	d.notReady("sink: the process is ", "quarantined: ", "no licence found")
	if n := strings.Count(d.log.String(), "ends again and again: quarantined"); n != 1 {
		t.Errorf("the log says so %d times", n)
	}
	if _, metrics := d.get("/metrics"); !strings.Contains(metrics, `connectd_plugin_up{connector="orders"} 0`) {
		t.Error("the metrics call the plugin up")
	}
}

// TestNotReadyWhileTheSinkDiesOnEveryRecord: its process is quarantined, and the table is not buried meanwhile.
func TestNotReadyWhileTheSinkDiesOnEveryRecord(t *testing.T) {
	t.Parallel()
	dir, s := tortured(t, "")
	s.insert(6, 6)
	s.exec("UPDATE outbox SET type = 'crash'")
	d := startDaemon(t, dir)
	d.notReady("sink: the process is ", "quarantined: the sink's process ended: exit status 9")
	if dead := s.count("dead"); dead > 1 {
		t.Errorf("%d rows are dead", dead)
	}
	d.eventually("the status says so", func() (bool, string) {
		c := statusOf(t, dir)
		return c.State == "waiting" && strings.Contains(c.Reason, "quarantined"), fmt.Sprintf("%+v", c)
	})
}

// TestStandbyIsReady: the second daemon has no lease because the first one lives, and would take it over.
func TestStandbyIsReady(t *testing.T) {
	t.Parallel()
	dir, s := tortured(t, "")
	first := startDaemon(t, dir)
	first.eventually("the first one has the lease", func() (bool, string) {
		return strings.Contains(first.log.String(), "partition acquired"), ""
	})
	first.ready()
	second := startDaemon(t, dir)
	second.ready()
	second.eventually("both live, and the first one has the lease", func() (bool, string) {
		c := statusOf(t, dir)
		return len(c.Workers) == 2 && c.Workers[0].Leases+c.Workers[1].Leases == 1 && c.State == "running", fmt.Sprintf("%+v", c)
	})
	s.insert(5, 1)
	s.published(5)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) { // two leases and a look at them
		if code, body := second.get("/readyz"); code != 200 {
			t.Fatalf("a daemon that stands by is not ready: %s", body)
		}
	}
	if _, metrics := second.get("/metrics"); !strings.Contains(metrics, `connectd_leases_held{connector="orders"} 0`) {
		t.Error("the second daemon has the lease; the test shows nothing")
	}
	first.signal(syscall.SIGTERM)
	first.wait()
	second.eventually("the second one takes over", func() (bool, string) {
		_, metrics := second.get("/metrics")
		return strings.Contains(metrics, `connectd_leases_held{connector="orders"} 1`), ""
	})
	second.ready()
}
