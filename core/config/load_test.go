package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core/config"
	"github.com/connectd/connectd/core/settings"
)

// write puts files, given as name and content in turn, into a directory and makes it the working directory.
func write(t *testing.T, nameAndContent ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(nameAndContent); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, nameAndContent[i]), []byte(nameAndContent[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	return dir
}

// env answers like os.LookupEnv from name and value in turn.
func env(nameAndValue ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(nameAndValue); i += 2 {
			if nameAndValue[i] == name {
				return nameAndValue[i+1], true
			}
		}
		return "", false
	}
}

// problems returns the lines of Load's error for one file c.yaml.
func problems(t *testing.T, yaml string, lookup func(string) (string, bool)) []string {
	t.Helper()
	write(t, "c.yaml", yaml)
	_, err := config.Load([]string{"c.yaml"}, lookup)
	if err == nil {
		return nil
	}
	var all config.Problems
	if !errors.As(err, &all) || len(all) == 0 {
		t.Fatalf("the error is no Problems: %v", err)
	}
	return strings.Split(err.Error(), "\n")
}

func load(t *testing.T, yaml string, lookup func(string) (string, bool)) *config.Config {
	t.Helper()
	write(t, "c.yaml", yaml)
	cfg, err := config.Load([]string{"c.yaml"}, lookup)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

const full = `# connectd.yaml
daemon:
  http: 127.0.0.1:8084        # API, metrics, health, console
  plugin_dir: /opt/plugins
  token: ${TOKEN}
connectors:
  orders:                      # name
    source:
      plugin: postgres         # postgres | mysql | sqlite
      dsn: ${ORDERS_DSN}
      table: shop.outbox
      columns: {id: command_id, key: run_id, type: kind, route: null}
      poll: {min: 10ms, max: 1s}
    sink:
      plugin: kafka
      brokers: [localhost:9092]
      topic: "orders.{type}"
    process:
      start_timeout: 20s
      sha256: "` + digest + `"
      env: [SSL_CERT_FILE]
    delivery:
      ordering: none
      batch: {max_records: 50, max_bytes: 64KiB}
      in_flight: 3
      timeout: 31s
      lease: 32s
      drain: 16s
      retry: {initial: 1s, max: 6m, give_up_after: 7d, max_attempts: 9}
      on_dead: block
      on_uncertain: hold
    audit:
      events: {table: shop.events, key: id, where: "kind <> 'noise' -- ours", command: "'cmd-' || id"}
      receipt_within: 2h
      timeout: 5m
      every: 1d
    retention: {published: 0s, require_receipt: true, dead: keep, skipped: 7d, receipts: keep}
`

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789ABCDEF"

const least = `connectors:
  shop:
    source: {plugin: sqlite, path: ./shop.db}
    sink: {plugin: file, path: "-"}
`

func TestLoadReadsEverySetting(t *testing.T) {
	cfg := load(t, full, env("TOKEN", "t0ken", "ORDERS_DSN", "postgres://u:p@db/shop"))
	if d := cfg.Daemon; d.HTTP != "127.0.0.1:8084" || d.PluginDir != "/opt/plugins" || d.Token.Reveal() != "t0ken" {
		t.Errorf("daemon is %+v", d)
	}
	if len(cfg.Connectors) != 1 {
		t.Fatalf("%d connectors", len(cfg.Connectors))
	}
	c := cfg.Connectors[0]
	if c.Name != "orders" || c.Pos != (config.Pos{File: "c.yaml", Line: 7, Column: 3}) {
		t.Errorf("%s at %s", c.Name, c.Pos)
	}
	s := c.Source
	if s.Plugin != "postgres" || s.DSN.Reveal() != "postgres://u:p@db/shop" || s.Table != "shop.outbox" ||
		s.Poll != (config.Poll{Min: 10e6, Max: 1e9}) {
		t.Errorf("source is %+v", s)
	}
	if route, there := s.Columns["route"]; !there || route != nil || *s.Columns["id"] != "command_id" {
		t.Errorf("columns are %v", s.Columns)
	}
	if got := string(c.Sink.Settings); c.Sink.Plugin != "kafka" || got != `{"brokers":["localhost:9092"],"topic":"orders.{type}"}` {
		t.Errorf("sink is %s %s", c.Sink.Plugin, got)
	}
	if p := c.Process; p.StartTimeout != 20e9 || p.SHA256 != digest || len(p.Env) != 1 || p.Env[0] != "SSL_CERT_FILE" {
		t.Errorf("process is %+v", p)
	}
	if c.Delivery != (config.Delivery{
		Ordering: "none", Batch: config.Batch{MaxRecords: 50, MaxBytes: 64 << 10}, InFlight: 3,
		Timeout: 31e9, Lease: 32e9, Drain: 16e9,
		Retry:  config.Retry{Initial: 1e9, Max: 360e9, GiveUpAfter: settings.Duration(168 * time.Hour), MaxAttempts: 9},
		OnDead: "block", OnUncertain: "hold",
	}) {
		t.Errorf("delivery is %+v", c.Delivery)
	}
	if c.Retention != (config.Retention{RequireReceipt: true, Dead: config.Keep{Forever: true}, Skipped: config.Keep{For: 168 * time.Hour}, Receipts: config.Keep{Forever: true}}) {
		t.Errorf("retention is %+v", c.Retention)
	}
	if a := c.Audit; a.Events == nil || *a.Events != (config.Events{Table: "shop.events", Key: "id", Where: "kind <> 'noise' -- ours", Command: "'cmd-' || id"}) ||
		a.ReceiptWithin != 7200e9 || a.Timeout != 300e9 || a.Every != settings.Duration(24*time.Hour) {
		t.Errorf("audit is %+v", a)
	}
}

func TestLoadDefaults(t *testing.T) {
	cfg := load(t, least, env())
	if d := cfg.Daemon; d.HTTP != "127.0.0.1:8083" || d.PluginDir != "/usr/lib/connectd/plugins" || d.Token.Reveal() != "" {
		t.Errorf("daemon is %+v", d)
	}
	c := cfg.Connectors[0]
	if c.Source.Table != "outbox" || c.Source.Path != "./shop.db" || c.Source.Poll != (config.Poll{Min: 20e6, Max: 500e6}) {
		t.Errorf("source is %+v", c.Source)
	}
	if c.Process.StartTimeout != 10e9 {
		t.Errorf("process is %+v", c.Process)
	}
	if c.Delivery != (config.Delivery{
		Ordering: "key", Batch: config.Batch{MaxBytes: 1 << 20},
		Timeout: 30e9, Lease: 30e9, Drain: 15e9,
		Retry:  config.Retry{Initial: 500e6, Max: 300e9, GiveUpAfter: settings.Duration(24 * time.Hour)},
		OnDead: "continue", OnUncertain: "redeliver",
	}) {
		t.Errorf("delivery is %+v", c.Delivery)
	}
	if c.Retention != (config.Retention{Published: config.Keep{For: 24 * time.Hour}, Dead: config.Keep{Forever: true}, Skipped: config.Keep{Forever: true}, Receipts: config.Keep{For: 720 * time.Hour}}) {
		t.Errorf("retention is %+v", c.Retention)
	}
	if c.Audit != (config.Audit{Timeout: 600e9}) {
		t.Errorf("audit is %+v", c.Audit)
	}
}

func TestSinkSettingsKeepWhatWasWritten(t *testing.T) {
	cfg := load(t, least+`      # the map above is closed; a second connector has the cases
  b:
    source: {plugin: sqlite, path: b.db}
    sink:
      big: 12345678901234567890123
      exact: 9007199254740993
      money: 1.10
      half: .5
      tiny: -1.e-3
      hex: 0x1F
      octal: 0o17
      zeros: 017
      split: 1_000
      country: no
      answer: yes
      day: 2020-01-02
      on: true
      empty: null
      quoted: "5"
      text: |
        two
        lines
      list: [a, [1, {x: y}], "${N}"]
      plain: ${N}
      plugin: file
      é<>&: "\u2028"
`, env("N", "5"))
	want := `{"big":12345678901234567890123,"exact":9007199254740993,"money":1.10,"half":0.5,"tiny":-1.0e-3,"hex":31,` +
		`"octal":15,"zeros":"017","split":"1_000","country":"no","answer":"yes","day":"2020-01-02","on":true,"empty":null,` +
		`"quoted":"5","text":"two\nlines\n","list":["a",[1,{"x":"y"}],"5"],"plain":"5","é\u003c\u003e\u0026":"\u2028"}`
	if got := string(cfg.Connectors[1].Sink.Settings); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLocate(t *testing.T) {
	cfg := load(t, `connectors:
  a:
    source: {plugin: sqlite, path: x}
    sink:
      plugin: webhook
      "a/b~c": 1
      headers:
        # of every request
        X-One: "1"
      list:
        - x: 1
        -
          y: 2
      flow: [1, {z: 3}]
`, env())
	for pointer, want := range map[string]string{
		"": "c.yaml:4:5", "/plugin": "c.yaml:5:7", "/a~1b~0c": "c.yaml:6:7", "/headers/X-One": "c.yaml:9:9",
		"/headers/X-Two": "c.yaml:7:7", "/list/0/x": "c.yaml:11:11", "/list/1/y": "c.yaml:13:11", "/list/7": "c.yaml:10:7",
		"/flow/1/z": "c.yaml:14:18", "/flow/0": "c.yaml:14:14", "/nothing/at/all": "c.yaml:4:5", "/list/-1": "c.yaml:10:7",
	} {
		if got := cfg.Locate("a", pointer); got != want {
			t.Errorf("%q is at %s, want %s", pointer, got, want)
		}
	}
	if got := cfg.Locate("nobody", ""); got != "" {
		t.Errorf("a connector that is not there is at %q", got)
	}
}

func TestFilesAndDirectories(t *testing.T) {
	connector := func(name string) string {
		return "connectors:\n  " + name + ":\n    source: {plugin: sqlite, path: " + name + ".db}\n    sink: {plugin: file}\n"
	}
	dir := write(t, "b.yml", connector("b"), "a.yaml", connector("a"), ".hidden.yaml", "][", "x.json", "][", "z.yaml", connector("z"))
	if err := os.MkdirAll(filepath.Join(dir, "c.yaml", "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("z.yaml", "link.yaml"); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load([]string{"z.yaml", ".", dir}, env())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range cfg.Connectors {
		names = append(names, c.Name+" "+c.Pos.String())
	}
	if got := strings.Join(names, ", "); got != "z z.yaml:2:3, a a.yaml:2:3, b b.yml:2:3" {
		t.Errorf("connectors are %s", got)
	}
}
