package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBadConfigurationStartsNothing: each mistake is an error with its place and exit code 1, for check and for run,
// and neither a database nor a sink is touched.
func TestBadConfigurationStartsNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		yaml  string
		words []string
	}{
		"unreadable YAML": {"connectors:\n  orders: [\n", []string{"connectd.yaml:2:11: the YAML cannot be read"}},
		"a quote too few": {strings.Replace(quickstart, "path: ./shop.db", `path: "./shop.db`, 1),
			[]string{"connectd.yaml:3:36: the YAML cannot be read"}},
		"a tab": {strings.Replace(quickstart, "  orders", "\torders", 1), []string{"connectd.yaml:2:1: the YAML cannot be read"}},
		"unknown key": {strings.Replace(quickstart, "lease: 2s", "lease: 2s, in_flihgt: 2", 1),
			[]string{"connectd.yaml:5:", `"in_flight"`}},
		"unset variable": {strings.Replace(quickstart, "./shop.db", `"${SHOP_DB}"`, 1), []string{"connectd.yaml:3:", "SHOP_DB"}},
		"wrong type":     {strings.Replace(quickstart, "lease: 2s", "in_flight: many", 1), []string{"connectd.yaml:5:", "in_flight"}},
		"bare duration":  {strings.Replace(quickstart, "lease: 2s", "lease: 600", 1), []string{"connectd.yaml:5:", "lease"}},
		"two connectors on one table": {quickstart + strings.TrimPrefix(strings.Replace(quickstart, "orders", "again", 1), "connectors:\n"),
			[]string{`connectd.yaml:2:3: connector "orders": source.table is the one that connector "again" reads`,
				`connectd.yaml:6:3: connector "again": source.table is the one that connector "orders" reads, at `, "connectd.yaml:2:3;"}},
		"one of two is good": {quickstart + strings.NewReplacer("connectors:\n", "", "orders", "mails", "outbox", "mails", "lease", "laese").Replace(quickstart),
			[]string{"connectd.yaml:9:", `"mails"`, `"lease"`}},
		"unknown source": {strings.Replace(quickstart, "plugin: sqlite", "plugin: sqllite", 1), []string{"connectd.yaml:3:", "sqlite"}},
		"a DSN that is none": {strings.Replace(quickstart, "sqlite, path: ./shop.db", "postgres, dsn: hunter2", 1),
			[]string{"connectd.yaml:2:3:", "dsn is no connection string"}},
		"a setting of another source": {strings.Replace(quickstart, "path: ./shop.db", "path: ./shop.db, notify: trigger", 1),
			[]string{"connectd.yaml:3:", "source.notify is for postgres"}},
		"database in memory": {strings.Replace(quickstart, "./shop.db", `":memory:"`, 1), []string{"connectd.yaml:2:3:", "path"}},
		"wrong setting":      {strings.Replace(quickstart, "path: ./out.jsonl", "pth: ./out.jsonl", 1), []string{"connectd.yaml:4:", `"path"`}},
		"missing setting":    {strings.Replace(quickstart, ", path: ./out.jsonl", "", 1), []string{"connectd.yaml:4:", "path"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "connectd.yaml", c.yaml)
			connectd(t, dir, "check").want(t, 1, c.words...)
			if !strings.Contains(name, "setting") { // these only the sink knows
				r := connectd(t, dir, "run", "--http", "127.0.0.1:0")
				if r.want(t, 1, c.words...); strings.Contains(r.stderr, "level=") {
					t.Errorf("something was started:\n%s", r.stderr)
				}
			}
			if left := listDir(t, dir); len(left) != 1 {
				t.Errorf("something was started: %v", left)
			}
		})
	}
}

func listDir(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestCheckSaysOK(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "connectd.yaml", quickstart)
	r := connectd(t, dir, "check")
	r.want(t, 0)
	if !strings.HasPrefix(r.stdout, "orders: ok (sqlite "+dir+"/shop.db outbox to file") || r.stderr != "" {
		t.Errorf("%+v", r)
	}
	if left := listDir(t, dir); len(left) != 1 {
		t.Errorf("check left something behind: %v", left)
	}
}

func TestNoConfiguration(t *testing.T) {
	t.Parallel()
	connectd(t, t.TempDir(), "run", "--http", "off").want(t, 1, "connectd.yaml")
	connectd(t, t.TempDir(), "status", "-c", "elsewhere.yaml").want(t, 1, "elsewhere.yaml")
}

// TestSinksSettingsRefusedByThePlugin: what only the sink's program knows is shown at its place in the YAML, and a
// daemon whose only connector is refused ends.
func TestSinksSettingsRefusedByThePlugin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	installTorture(t, dir)
	write(t, dir, "connectd.yaml", tortureConfig(", refuse: true", ""))
	connectd(t, dir, "check").want(t, 1, "connectd.yaml:5:29", "sink.refuse must not be true")
	write(t, dir, "connectd.yaml", tortureConfig("", ""))
	connectd(t, dir, "init").want(t, 0)
	write(t, dir, "connectd.yaml", tortureConfig(", refuse: true", ""))
	d := startDaemon(t, dir)
	if code := d.wait(); code != 1 || !strings.Contains(d.log.String(), `connectd.yaml:5:29: connector "orders": sink.refuse must not be true`) {
		t.Errorf("exit code %d, log:\n%s", code, d.log.String())
	}
}

// TestRunRefusesTheFileSinksSettings: only the sink's process can tell, so it is asked; then the daemon ends, and nothing
// has happened to the table or in the directory.
func TestRunRefusesTheFileSinksSettings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ sink, words string }{
		"missing": {"{plugin: file}", `connectd.yaml:4:5: connector "orders": sink.path is required`},
		"unknown": {"{plugin: file, pth: ./out.jsonl}", `connectd.yaml:4:26: connector "orders": sink.pth is not a known setting; did you mean "path"?`},
		"refused": {`{plugin: file, path: ./out.jsonl, mode: "0440"}`, `connector "orders": sink.mode must let the owner write`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := shopDir(t, quickstart)
			openShop(t, dir).insert(2, 1)
			write(t, dir, "connectd.yaml", strings.Replace(quickstart, "{plugin: file, path: ./out.jsonl}", c.sink, 1))
			connectd(t, dir, "check").want(t, 1, c.words)
			d := startDaemon(t, dir)
			code, log := d.wait(), d.log.String()
			if code != 1 || !strings.Contains(log, "connectd.yaml:4:") || !strings.Contains(log, c.words) {
				t.Errorf("exit code %d, log:\n%s", code, log)
			}
			if strings.Contains(log, "partition acquired") {
				t.Error("the engine was started")
			}
			if _, err := os.Stat(filepath.Join(dir, "out.jsonl")); err == nil {
				t.Error("the sink opened its file")
			}
			if n := openShop(t, dir).count("pending"); n != 2 {
				t.Errorf("%d rows are pending, want 2", n)
			}
		})
	}
}

// TestOneBadConnectorOfADirectoryDoesNotStopTheOthers, but check fails: https://github.com/sequinstream/sequin/issues/2154
func TestOneBadConnectorOfADirectoryDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "conf/good.yaml", quickstart)
	write(t, dir, "conf/bad.yaml", strings.NewReplacer("orders", "mails", "outbox", "mails", "lease: 2s", "laese: 2s").Replace(quickstart))
	r := connectd(t, dir, "check", "-c", filepath.Join(dir, "conf"))
	r.want(t, 1, "orders: ok", "bad.yaml:5:", `"lease"`)
	connectd(t, dir, "init", "-c", filepath.Join(dir, "conf"), "--connector", "orders").want(t, 0)
	s := openShop(t, dir)
	s.insert(3, 1)
	d := startDaemonWith(t, dir, []string{"-c", filepath.Join(dir, "conf")})
	s.published(3)
	if !strings.Contains(d.log.String(), "bad.yaml:5:") {
		t.Error("the bad connector is not shown")
	}
	connectd(t, dir, "status", "-c", filepath.Join(dir, "conf"), "--connector", "orders").want(t, 0, "running")
	connectd(t, dir, "status", "-c", filepath.Join(dir, "conf"), "--connector", "mails").want(t, 1, "bad.yaml:5:")
	connectd(t, dir, "status", "-c", filepath.Join(dir, "conf"), "--connector", "ordrs").want(t, 1, `did you mean "orders"?`)
	connectd(t, dir, "status", "-c", filepath.Join(dir, "conf")).want(t, 1, "running", "bad.yaml:5:")
}

// TestMissingTableNamesInit: the daemon waits for it, says so, and works when it is there.
func TestMissingTableNamesInit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "connectd.yaml", quickstart)
	connectd(t, dir, "status").want(t, 1, "shop.db", "connectd init")
	connectd(t, dir, "rows", "list").want(t, 1, "shop.db", "connectd init")
	d := startDaemon(t, dir)
	d.eventually("readiness names it", func() (bool, string) {
		code, body := d.get("/readyz")
		return code == 503 && strings.Contains(body, "connectd init") && strings.Contains(body, `"orders"`), body
	})
	if code, body := d.get("/healthz"); code != 200 {
		t.Errorf("healthz: %d %s", code, body)
	}
	if _, err := os.Stat(filepath.Join(dir, "shop.db")); err == nil {
		t.Error("run created the database file")
	}
	connectd(t, dir, "init").want(t, 0)
	s := openShop(t, dir)
	s.insert(1, 1)
	s.published(1)
	d.ready()
	s.exec("DROP TABLE outbox")
	connectd(t, dir, "status").want(t, 1, "outbox", "connectd init")
}

func TestInit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "connectd.yaml", quickstart)
	printed := connectd(t, dir, "init", "--print")
	printed.want(t, 0, "CREATE TABLE", "-- orders (sqlite "+dir+"/shop.db outbox)")
	if _, err := os.Stat(filepath.Join(dir, "shop.db")); err == nil {
		t.Error("--print created the file")
	}
	did := connectd(t, dir, "init")
	did.want(t, 0, "orders: done")
	if did.stdout != printed.stdout {
		t.Error("init did not say what --print said")
	}
	again := connectd(t, dir, "init")
	if again.want(t, 0, "orders: nothing to do"); again.stdout != "" {
		t.Errorf("printed: %s", again.stdout)
	}
	connectd(t, dir, "init", "--connector", "ordres").want(t, 1, `did you mean "orders"?`)
}

// TestInitAdoptsAFilledTableOnlyWhenTold what its rows are.
func TestInitAdoptsAFilledTableOnlyWhenTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "connectd.yaml", quickstart)
	s := openShop(t, dir)
	s.exec("CREATE TABLE outbox (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, aggregateid TEXT, type TEXT, payload BLOB)")
	s.insert(3, 1)
	connectd(t, dir, "init").want(t, 1, "--existing pending")
	connectd(t, dir, "init", "--existing", "published").want(t, 0)
	if n := s.count("published"); n != 3 {
		t.Errorf("%d rows are published, want 3", n)
	}
}

func TestSchemaAndPlugins(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	installTorture(t, dir)
	write(t, dir, "connectd.yaml", tortureConfig("", ""))
	connectd(t, dir, "schema").want(t, 0, "$schema", "torture", `"path"`, "on_uncertain")
	connectd(t, dir, "plugins", "list").want(t, 0, "file", "(bundled)", "torture", "0.1", "connectd-sink-torture")
	connectd(t, dir, "plugins", "list", "--json", "--dir", filepath.Join(dir, "none")).want(t, 0, `"file"`)
	write(t, dir, "plugins/connectd-sink-broken", "no program")
	connectd(t, dir, "plugins", "list").want(t, 1, "plugins/connectd-sink-broken", "chmod +x", "torture")
	connectd(t, dir, "schema").want(t, 0, "broken is left out")

	// A connector whose secrets are not at hand is no reason to leave the sinks out, nor is a missing file to complain.
	write(t, dir, "connectd.yaml", tortureConfig(`, password: "${NO_SUCH_SECRET}"`, ""))
	for _, args := range [][]string{{"plugins", "list"}, {"schema"}} {
		if r := connectd(t, dir, args...); !strings.Contains(r.stdout, "torture") || strings.Contains(r.stderr, "NO_SUCH_SECRET") {
			t.Errorf("%v: %s%s", args, r.stdout, r.stderr)
		}
	}
	var stdout, stderr bytes.Buffer
	noEnv := func(string) (string, bool) { return "", false }
	args := []string{"plugins", "list", "--dir", filepath.Join(dir, "none")} // there is no connectd.yaml beside the tests
	if code := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr, noEnv); code != 0 || stderr.Len() > 0 {
		t.Errorf("without a configuration: exit code %d, %s", code, &stderr)
	}
	connectd(t, dir, "plugins", "list", "-c", "none.yaml").want(t, 0, "none.yaml", "(bundled)")
}

// TestPortInUse: nothing is started.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart)
	d := startDaemon(t, dir)
	address := strings.TrimPrefix(d.url(), "http://")
	began := time.Now()
	connectd(t, dir, "run", "--http", address).want(t, 1, address, "--http")
	connectd(t, dir, "run", "--http", "0.0.0.0:0").want(t, 1, "daemon.token")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("after %v", took)
	}
}

// TestSecretsStayInside the daemon and the sink: no command line, environment, log or answer has them.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	const password, token = "hunter2-in-the-settings", "hunter2-of-the-daemon"
	dir := t.TempDir()
	installTorture(t, dir)
	config := tortureConfig(", password: \"${SINK_PASSWORD}\", path: "+filepath.Join(dir, "out.jsonl"), "")
	write(t, dir, "token", token+"\n")
	write(t, dir, "connectd.yaml", strings.Replace(config, "daemon: {", "daemon: {token: \"${file:./token}\", ", 1))
	connectdWith(t, dir, "", map[string]string{"SINK_PASSWORD": password}, "init").want(t, 0)
	s := openShop(t, dir)
	s.insert(1, 1)
	d := startDaemon(t, dir, "SINK_PASSWORD="+password)
	s.published(1)
	texts := map[string]string{"log": d.log.String()}
	for _, pid := range []int{d.sinkPID(), d.cmd.Process.Pid} {
		for _, name := range []string{"cmdline", "environ"} {
			data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
			if err != nil {
				t.Fatal(err)
			}
			if pid == d.cmd.Process.Pid && name == "environ" {
				continue // its owner put it there
			}
			texts[fmt.Sprint(name, " of ", pid)] = string(data)
		}
	}
	for _, path := range []string{"/readyz", "/healthz", "/metrics", "/"} {
		_, texts[path] = d.get(path)
	}
	for _, args := range []string{"status --json", "rows show id-000001 --json", "check", "schema", "plugins list"} {
		r := connectdWith(t, dir, "", map[string]string{"SINK_PASSWORD": password}, strings.Fields(args)...)
		texts[args] = r.stdout + r.stderr
	}
	for where, text := range texts {
		if strings.Contains(text, "hunter2") {
			t.Errorf("a secret is in %s", where)
		}
	}
	if code, _ := d.get("/metrics"); code != 401 {
		t.Errorf("metrics without the token: %d", code)
	}
}

// TestRelativePaths are relative to the daemon's working directory, though sinks' processes have others.
func TestRelativePaths(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	installTorture(t, dir)
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "connectd.yaml", `daemon: {plugin_dir: plugins, runtime_dir: run}
connectors:
  orders:
    source: {plugin: sqlite, path: shop.db, table: outbox}
    sink: {plugin: file, path: out.jsonl}
  mails:
    source: {plugin: sqlite, path: shop.db, table: mails}
    sink: {plugin: torture, path: `+filepath.Join(dir, "mails.jsonl")+`}
`)
	connectdProcess(t, dir, "", "check").want(t, 0, "orders: ok", "mails: ok")
	connectdProcess(t, dir, "", "init").want(t, 0)
	s := openShop(t, dir)
	d := startDaemon(t, dir)
	d.ready()
	s.insert(2, 1)
	s.published(2)
	audit(t, dir, 2)
}
