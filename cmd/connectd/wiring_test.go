package main

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/connectd/connectd/core/config"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/layout"
)

// load reads a configuration without problems.
func load(t *testing.T, yaml string) config.Connector {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "connectd.yaml", yaml)
	cfg, err := config.Load([]string{filepath.Join(dir, "connectd.yaml")}, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Connectors[0]
}

// TestDefaultsAreOne: the YAML's defaults and the engine's are the same, so documentation of either is true.
func TestDefaultsAreOne(t *testing.T) {
	t.Parallel()
	c := load(t, `connectors: {orders: {source: {plugin: sqlite, path: ./shop.db}, sink: {plugin: file}}}`)
	if got := policy(c); got != engine.DefaultPolicy() {
		t.Errorf("policy without a delivery section:\n%+v, the engine's default is\n%+v", got, engine.DefaultPolicy())
	}
	if sqliteConfig(c).DeletePublished {
		t.Error("published rows are deleted by default")
	}
}

// TestHeaderColumnsReachTheSource: of each kind, in the order of the headers' names.
func TestHeaderColumnsReachTheSource(t *testing.T) {
	t.Parallel()
	for _, plugin := range []string{"sqlite, path: ./shop.db", "postgres, dsn: 'postgres://a:b@localhost/c'", "mysql, dsn: 'a:b@tcp(localhost)/c'"} {
		c := load(t, `connectors: {orders: {source: {plugin: `+plugin+`, header_columns: {b: x, a: y}}, sink: {plugin: file}}}`)
		got := map[string][]layout.HeaderColumn{
			"sqlite": sqliteConfig(c).HeaderColumns, "postgres": postgresConfig(c, nil).HeaderColumns, "mysql": mysqlConfig(c).HeaderColumns,
		}[c.Source.Plugin]
		if want := []layout.HeaderColumn{{Header: "a", Column: "y"}, {Header: "b", Column: "x"}}; !slices.Equal(got, want) {
			t.Errorf("%s: %v", c.Source.Plugin, got)
		}
	}
}

// TestEverySettingReachesTheEngine: each field differs from its default and from the others of its type.
func TestEverySettingReachesTheEngine(t *testing.T) {
	t.Parallel()
	c := load(t, `connectors:
  orders:
    source: {plugin: sqlite, path: ./shop.db, table: mails, columns: {key: run_id, route: null}, poll: {min: 1ms, max: 2ms}}
    sink: {plugin: file, path: ./out}
    delivery:
      ordering: none
      batch: {max_records: 3, max_bytes: 4KiB}
      in_flight: 5
      timeout: 6s
      lease: 7s
      drain: 8s
      retry: {initial: 9ms, max: 10s, give_up_after: 11h, max_attempts: 12}
      on_dead: block
      on_uncertain: hold
    retention: {published: 0s}
`)
	want := engine.Policy{
		Ordered: false, MaxRecords: 3, MaxBytes: 4 << 10, InFlight: 5, Timeout: 6 * time.Second, Lease: 7 * time.Second,
		Drain: 8 * time.Second, PollMin: time.Millisecond, PollMax: 2 * time.Millisecond,
		Retry:       engine.Retry{Initial: 9 * time.Millisecond, Max: 10 * time.Second, GiveUpAfter: 11 * time.Hour, MaxAttempts: 12},
		BlockOnDead: true, HoldUncertain: true,
	}
	if got := policy(c); got != want {
		t.Errorf("policy\n%+v, want\n%+v", got, want)
	}
	s := sqliteConfig(c)
	if s.Table != "mails" || !s.DeletePublished || *s.Columns["key"] != "run_id" || s.Columns["route"] != nil || len(s.Columns) != 2 {
		t.Errorf("source %+v", s)
	}
}
