package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/connectd/connectd/plugins/host"
)

// tortured is an initialised directory whose sink is the torture plugin.
func tortured(t *testing.T, delivery string) (dir string, s *shop) {
	t.Helper()
	dir = t.TempDir()
	installTorture(t, dir)
	write(t, dir, "connectd.yaml", tortureConfig(", path: "+filepath.Join(dir, "out.jsonl"), delivery))
	connectd(t, dir, "init").want(t, 0)
	return dir, openShop(t, dir)
}

// TestPluginThatCannotStart: each fault is named, by check and by the daemon, which does not hang.
func TestPluginThatCannotStart(t *testing.T) {
	t.Parallel()
	program := filepath.Join("plugins", host.Prefix+"torture")
	for name, c := range map[string]struct {
		mode  string
		spoil func(path string) error
		words []string
		ends  bool // the only connector cannot work: the daemon ends with 1
	}{
		"missing":        {"", os.Remove, []string{"no file connectd-sink-torture"}, true},
		"not executable": {"", func(p string) error { return replace(p, 0o644) }, []string{"not executable", "chmod +x"}, true},
		"prints first":   {"prints", nil, []string{"hello, I am a plugin"}, false},
		"other version":  {"version", nil, []string{"99", "1"}, true},
		"hangs":          {"hangs", nil, []string{"2s"}, false},
		"crashes":        {"crashes", nil, []string{"no licence found", "3"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, _ := tortured(t, "")
			if c.spoil != nil {
				if err := c.spoil(filepath.Join(dir, program)); err != nil {
					t.Fatal(err)
				}
			}
			env := tortureMode + "=" + c.mode
			connectdProcess(t, dir, env, "check").want(t, 1, append(c.words, "connectd.yaml:5:")...)
			d := startDaemon(t, dir, env)
			if c.ends {
				if code := d.wait(); code != 1 {
					t.Errorf("exit code %d", code)
				}
				for _, w := range c.words {
					if !strings.Contains(d.log.String(), w) {
						t.Errorf("%q is not in the log:\n%s", w, d.log.String())
					}
				}
				return
			}
			d.eventually("readiness gives the reason", func() (bool, string) {
				code, body := d.get("/readyz")
				ok := code == 503
				for _, w := range c.words {
					ok = ok && strings.Contains(body, w)
				}
				return ok, body
			})
			d.signal(syscall.SIGTERM)
			if code := d.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestPluginThatPrintsBeforeTheHandshake works all the same, and what it printed is in the log as text of its own.
func TestPluginThatPrintsBeforeTheHandshake(t *testing.T) {
	t.Parallel()
	dir, s := tortured(t, "")
	s.insert(20, 5)
	env := tortureMode + "=greets"
	connectdProcess(t, dir, env, "check").want(t, 0, "orders: ok")
	d := startDaemon(t, dir, env)
	s.published(20)
	audit(t, dir, 20)
	d.eventually("the line is in the log", func() (bool, string) {
		log := d.log.String()
		return strings.Contains(log, `level=INFO msg="good \"morning\" level=ERROR" connector=orders plugin=torture`) &&
			strings.Contains(log, "stream=stdout"), log
	})
	if d.ready(); d.sinkPID() == 0 {
		t.Error("no sink")
	}
}

// replace puts another file in the place of path; the file itself may be a link to this test binary.
func replace(path string, mode os.FileMode) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.WriteFile(path, []byte("#!/bin/sh\n"), mode)
}

// TestRecordThatCrashesThePluginIsBuriedAlone: it dies with the reason crash and its neighbours are delivered.
func TestRecordThatCrashesThePluginIsBuriedAlone(t *testing.T) {
	t.Parallel()
	dir, s := tortured(t, "")
	s.insert(20, 5)
	s.exec("UPDATE outbox SET type = 'crash' WHERE id = 'id-000007'")
	d := startDaemon(t, dir)
	d.eventually("one dead, the others published", func() (bool, string) {
		dead, published := s.count("dead"), s.count("published")
		return dead == 1 && published == 19, fmt.Sprint(dead, published)
	})
	connectd(t, dir, "rows", "explain", "id-000007").want(t, 0, "crash")
	connectd(t, dir, "rows", "show", "id-000007").want(t, 0, "crashes      6 of 6")
}

// TestRecordOnWhichTheSinkPanicsIsBuriedAlone: a programming error in Deliver is no outage that lasts for ever.
func TestRecordOnWhichTheSinkPanicsIsBuriedAlone(t *testing.T) {
	t.Parallel()
	dir, s := tortured(t, "")
	s.insert(20, 5)
	s.exec("UPDATE outbox SET type = 'panic' WHERE id = 'id-000007'")
	d := startDaemon(t, dir)
	d.eventually("one dead, the others published", func() (bool, string) {
		dead, published := s.count("dead"), s.count("published")
		return dead == 1 && published == 19, fmt.Sprint(dead, published)
	})
	connectd(t, dir, "rows", "explain", "id-000007").want(t, 0, "crash")
}

// TestRecordThatHangsIsBuriedAlone: the others are delivered beside it, and it is dead when it has hung six times.
func TestRecordThatHangsIsBuriedAlone(t *testing.T) {
	t.Parallel()
	dir, s := tortured(t, ", timeout: 200ms, batch: {max_records: 1}")
	s.insert(10, 10)
	s.exec("UPDATE outbox SET type = 'hang' WHERE id = 'id-000003'")
	d := startDaemon(t, dir)
	d.eventually("the others are published", func() (bool, string) {
		n := s.count("published")
		return n == 9, fmt.Sprint(n)
	})
	d.eventually("it is dead", func() (bool, string) {
		return s.count("dead") == 1, connectd(t, dir, "rows", "explain", "id-000003").stdout
	})
}

// TestWrongNumberOfOutcomesIsNoDelivery: nothing of the call is taken for published.
func TestWrongNumberOfOutcomesIsNoDelivery(t *testing.T) {
	t.Parallel()
	dir, s := tortured(t, "")
	s.exec("INSERT INTO outbox (id, type) VALUES ('few', 'count')")
	d := startDaemon(t, dir)
	d.eventually("the call failed", func() (bool, string) {
		_, metrics := d.get("/metrics")
		return !strings.Contains(metrics, `connectd_outcomes_total{connector="orders",outcome="call_failed"} 0`), "no failed call"
	})
	if n := s.count("published"); n != 0 {
		t.Errorf("%d rows are published", n)
	}
	d.eventually("readiness gives the reason", func() (bool, string) {
		code, body := d.get("/readyz")
		return code == 503 && strings.Contains(body, "outcome"), body
	})
}

// TestMegabyteOnStdoutDoesNoHarm.
func TestMegabyteOnStdoutDoesNoHarm(t *testing.T) {
	t.Parallel()
	dir, s := tortured(t, "")
	s.insert(20, 5)
	s.exec("UPDATE outbox SET type = 'shout' WHERE id = 'id-000004'")
	d := startDaemon(t, dir)
	s.published(20)
	audit(t, dir, 20)
	if n := len(d.log.String()); n > 512<<10 {
		t.Errorf("%d bytes of log; the log of a plugin is bounded", n)
	}
}

// TestRefusedRecordIsDeadAndItsKeyGoesOn, and a retry that is refused again is dead again.
func TestRefusedRecordIsDeadAndItsKeyGoesOn(t *testing.T) {
	t.Parallel()
	dir, s := tortured(t, "")
	s.insert(10, 1)
	s.exec("UPDATE outbox SET type = 'refuse' WHERE id = 'id-000002'")
	d := startDaemon(t, dir)
	s.published(9)
	connectd(t, dir, "rows", "explain", "id-000002").want(t, 0, "invalid", "the destination will never take it")
	s.exec("UPDATE outbox SET type = 'mended' WHERE id = 'id-000002'")
	connectd(t, dir, "rows", "retry", "id-000002").want(t, 0)
	s.published(10)
	if _, metrics := d.get("/metrics"); !strings.Contains(metrics, `connectd_dead_rows_total{connector="orders",reason="invalid"} 1`) {
		t.Error("the metrics do not count the dead row")
	}
}
