package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestARollingRestartRepeatsNothing (J1, J2, J3, A25): three daemons are replaced one after the other while producers
// commit: every row arrives once, in the order of its key.
func TestARollingRestartRepeatsNothing(t *testing.T) {
	onEach(t, ", batch: {max_records: 5}", func(t *testing.T, f *fleet) {
		f.slow.Store(int64(20 * time.Millisecond))
		daemons := []*daemonProcess{f.start(), f.start(), f.start()}
		f.evenWithin(patience, 3, "the start")
		p := produce(t, f.server)
		for n, old := range daemons {
			f.arriving(100)
			f.stop(old)
			daemons[n] = f.start()
			daemons[n].ready()
			f.evenWithin(2*fleetLease+grain, 3, "one is replaced")
		}
		f.arriving(100)
		f.once(p.end())
	})
}

// once waits until everything has arrived, and fails the test for a row that came twice.
func (f *fleet) once(committed map[string]bool) {
	f.t.Helper()
	f.slow.Store(0)
	f.arrived(committed)
	if n := checkArrivals(f.t, f.to.arrived(), committed); n > 0 {
		f.t.Errorf("%d rows were sent more than once, and nobody was killed", n)
	}
}

// nextSchema changes a file of the source into that of a later connectd: schema version 2 has a column and an index more,
// on PostgreSQL, as one may add; version 3 only says so.
var nextSchema = map[string][][2]string{
	"2": {
		{"const schemaVersion = 1", "const schemaVersion = 2"},
		{`{c.PublishedAt, "timestamp with time zone", ""},`, `{c.PublishedAt, "timestamp with time zone", ""}, {"tenant", "text", "'-'"},`},
		{"	if !s.trigger {\n		return list\n	}", "	list = append(list, object{\"index\", s.objectName(\"tenant\"), \"CREATE INDEX CONCURRENTLY IF NOT EXISTS \" + quote(s.objectName(\"tenant\")) + \" ON \" + t + \" (tenant)\", \"by tenant\"})\n	if !s.trigger {\n		return list\n	}"},
	},
	"3": {{"const schemaVersion = 1", "const schemaVersion = 3"}},
}

// later builds connectd as it will be with that version of the schema.
func later(t *testing.T, version string) (program string) {
	t.Helper()
	dir := t.TempDir()
	overlay := map[string]string{}
	changed := 0
	for _, name := range []string{"inspect.go", "tables.go"} {
		path, err := filepath.Abs(filepath.Join("../../sources/postgres", name))
		if err != nil {
			t.Fatal(err)
		}
		code, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := string(code)
		for _, change := range nextSchema[version] {
			if strings.Contains(text, change[0]) {
				changed++
				text = strings.Replace(text, change[0], change[1], 1)
			}
		}
		overlay[path] = filepath.Join(dir, name)
		if err := os.WriteFile(overlay[path], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if changed != len(nextSchema[version]) {
		t.Fatalf("the source has changed: %d of %d replacements were found", changed, len(nextSchema[version]))
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o600); err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "connectd")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-ldflags", "-X main.version=schema-"+version, "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// startProgram starts another program's daemon.
func (f *fleet) startProgram(program string) *daemonProcess {
	f.t.Helper()
	return launch(f.t, f.dir, exec.Command(program, "run", "-c", filepath.Join(f.dir, "connectd.yaml"), "--http", "127.0.0.1:0"), "SHOP_DSN="+f.server.dsn)
}

// init runs another program's init.
func (f *fleet) init(program string) string {
	f.t.Helper()
	cmd := exec.CommandContext(f.t.Context(), program, "init", "-c", filepath.Join(f.dir, "connectd.yaml"))
	cmd.Env = append(os.Environ(), "SHOP_DSN="+f.server.dsn)
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestARollingUpgradeBetweenTwoSchemaVersions: the next version's init runs beside three daemons of this one, which are then
// replaced one by one, and one goes back: every row arrives once, in the order of its key. When a version too far ahead
// prepares the table, a daemon of this one stops at its next heartbeat, says why, and changes nothing, while the others
// go on. See package layout.
func TestARollingUpgradeBetweenTwoSchemaVersions(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "postgres", ", batch: {max_records: 5}")
	next, far := later(t, "2"), later(t, "3")
	f.slow.Store(int64(20 * time.Millisecond))
	daemons := []*daemonProcess{f.start(), f.start(), f.start()}
	f.evenWithin(patience, 3, "the start")
	early := f.startProgram(next)
	early.eventually("a newer daemon waits for its init", func() (bool, string) {
		_, body := early.get("/readyz")
		return strings.Contains(body, "connectd init"), body
	})
	f.stop(early)
	p := produce(t, f.server)
	f.arriving(100)
	if said := f.init(next); !strings.Contains(said, "version 2 from now on") {
		t.Errorf("init says: %s", said)
	}
	f.arriving(100)
	f.command("init").want(t, 0, "nothing to do") // an older one's takes nothing back
	for n, old := range daemons {
		f.stop(old)
		daemons[n] = f.startProgram(next)
		daemons[n].ready()
		f.evenWithin(2*fleetLease+grain, 3, "one is replaced")
		f.arriving(100)
	}
	f.stop(daemons[0])
	daemons[0] = f.start()
	daemons[0].ready()
	f.evenWithin(2*fleetLease+grain, 3, "one went back")
	back := f.worker(daemons[0])
	if n := f.number(`SELECT version FROM connectd_outbox`); n != 2 {
		t.Errorf("the schema's version is %d", n)
	}
	f.command("doctor").want(t, 0, "upgrade connectd here too")

	f.init(far)
	daemons[0].eventually("it stands by", func() (bool, string) {
		_, body := daemons[0].get("/readyz")
		return strings.Contains(body, "it was prepared by a newer connectd (schema version 3, this one knows 1 to 2): upgrade connectd here"), body
	})
	f.evenWithin(2*fleetLease+grain, 2, "two are left")
	if _, there := f.shares()[back.Owner]; there {
		t.Error("it still has partitions")
	}
	f.command("status").want(t, 1, "newer connectd")
	f.command("init").want(t, 1, "newer connectd")
	f.arriving(100)
	f.once(p.end())
	for _, d := range daemons {
		f.stop(d)
	}
}
