package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/connectd/connectd/core"
)

// TestDoctor leads a SQLite set-up from nothing to soundness. Nothing is sent, and one bad connector does not hide the others.
func TestDoctor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "connectd.yaml", quickstart+`  broken:
    source: {plugin: sqlite, path: ./nothing.db}
    sink: {plugin: file, path: ./nowhere/out.jsonl}
`)
	connectd(t, dir, "doctor", "--connector", "orders").want(t, 1, "there is no file", "to do: run `connectd init`", "1 problem")
	connectd(t, dir, "init", "--connector", "orders").want(t, 0)
	connectd(t, dir, "doctor", "--connector", "orders").want(t, 0, "0 warnings, 0 problems", "the fetch is a scan of index", "no daemon runs", "it can be opened and reaches its destination")
	openShop(t, dir).insert(3, 1)
	r := connectd(t, dir, "doctor")
	r.want(t, 1, "orders: 16 ok, 0 warnings, 0 problems", "nothing.db", "the directory "+dir+"/nowhere must exist")
	if r.stderr != "" {
		t.Errorf("findings are data, and not for stderr: %s", r.stderr)
	}
	if out, err := os.ReadFile(filepath.Join(dir, "out.jsonl")); err != nil || len(out) != 0 {
		t.Errorf("doctor has sent something: %q, %v", out, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "nothing.db")); err == nil {
		t.Error("doctor has made a database")
	}
	connectd(t, dir, "status", "--connector", "orders").want(t, 0, "stopped")
	connectd(t, dir, "doctor", "extra").want(t, 2, "takes no arguments")
	connectd(t, dir, "doctor", "--connector", "ordres").want(t, 1, `did you mean "orders"?`)

	var all struct{ Connectors []connectorFindings }
	j := connectd(t, dir, "doctor", "--json")
	j.want(t, 1)
	if err := json.Unmarshal([]byte(j.stdout), &all); err != nil || len(all.Connectors) != 2 {
		t.Fatalf("%v: %s", err, j.stdout)
	}
	for _, c := range all.Connectors {
		if ill := c.Connector == "broken"; c.ill() != ill || len(c.Findings) == 0 {
			t.Errorf("%+v", c)
		}
		for _, f := range c.Findings {
			if f.Level == core.Problem && f.Do == "" {
				t.Errorf("it does not say what to do: %+v", f)
			}
		}
	}
}

// TestDoctorOfTheSink: what is wrong with it is found where it is, and said with its place in the YAML.
func TestDoctorOfTheSink(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ sink, words string }{
		"no program":  {`{plugin: nothing}`, "plugin_dir"},
		"a setting":   {`{plugin: file, pth: ./out.jsonl}`, `connectd.yaml:4:`},
		"a secret":    {`{plugin: webhook, url: "http://127.0.0.1:1/", signing: {secrets: [{value: "hunter2"}]}}`, "signing"},
		"no endpoint": {`{plugin: webhook, url: "http://127.0.0.1:1/", signing: {secrets: [{value: "` + serverSecret + `"}]}}`, "sink"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "connectd.yaml", "connectors:\n  orders:\n    source: {plugin: sqlite, path: ./shop.db}\n    sink: "+c.sink+"\n    retention: {require_receipt: true}\n")
			connectd(t, dir, "init").want(t, 0)
			r := connectd(t, dir, "doctor")
			r.want(t, r.code, c.words, "no receipt is stored")
			if name != "no endpoint" && r.code != 1 {
				t.Errorf("exit code %d: %s", r.code, r.stdout)
			}
			if strings.Contains(r.stdout+r.stderr, "hunter2") || strings.Contains(r.stdout+r.stderr, serverSecret) {
				t.Errorf("a secret is shown: %s", r.stdout)
			}
		})
	}
}

// TestDoctorBesideADaemon: it takes the daemon's word for the sink, which only one can have open, and disturbs nothing.
func TestDoctorBesideADaemon(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart)
	d := startDaemon(t, dir)
	d.ready()
	openShop(t, dir).insert(3, 1)
	eventually(t, "doctor sees the daemon", func() (bool, string) {
		r := connectd(t, dir, "doctor")
		return r.code == 0 && strings.Contains(r.stdout, "1 worker alive, with 1 of 1 partitions") &&
			strings.Contains(r.stdout, fmt.Sprintf("it is open in the daemon with pid %d", d.cmd.Process.Pid)), r.stdout + r.stderr
	})
	eventually(t, "the rows arrive", func() (bool, string) {
		out, _ := os.ReadFile(filepath.Join(dir, "out.jsonl"))
		return strings.Count(string(out), "\n") == 3, string(out)
	})
	d.signal(syscall.SIGKILL)
	d.wait()
	eventually(t, "the dead worker is noticed", func() (bool, string) {
		r := connectd(t, dir, "doctor")
		return strings.Contains(r.stdout, "no worker is alive, and 1 ended without taking leave") && strings.Contains(r.stdout, "1 lease of workers that are gone"), r.stdout + r.stderr
	})
}

// TestDoctorOfServers: each kind of server is found sound after init, and its fetch's index missed when it is gone.
func TestDoctorOfServers(t *testing.T) {
	for name, start := range serverKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			dir := t.TempDir()
			write(t, dir, "connectd.yaml", fmt.Sprintf("connectors:\n  orders:\n    source: {plugin: %s, dsn: \"${SHOP_DSN}\"}\n    sink: {plugin: file, path: ./out.jsonl}\n", s.plugin))
			env := map[string]string{"SHOP_DSN": s.dsn}
			doctor := func(args ...string) result {
				t.Helper()
				r := connectdWith(t, dir, "", env, append([]string{"doctor"}, args...)...)
				if strings.Contains(r.stdout+r.stderr, password(s.dsn)) {
					t.Errorf("a password is shown: %s%s", r.stdout, r.stderr)
				}
				return r
			}
			doctor().want(t, 1, "there is no table", "connectd init")
			connectdWith(t, dir, "", env, "init").want(t, 0)
			doctor().want(t, 0, "16 partitions", "without a sort", "may do all that a daemon does", "no daemon runs")
			drop := "DROP INDEX connectd_outbox_pending"
			if s.plugin == "mysql" {
				drop = "ALTER TABLE outbox DROP INDEX connectd_pending"
			}
			if _, err := s.db.ExecContext(t.Context(), drop); err != nil {
				t.Fatal(err)
			}
			doctor("--json").want(t, 1, "there is no index")
			connectdWith(t, dir, "", env, "init").want(t, 0)
			doctor().want(t, 0)
		})
	}
}
