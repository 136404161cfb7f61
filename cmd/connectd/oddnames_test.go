package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"
)

// TestOddNames: what a database takes as a name can be configured, and is used as it is.
func TestOddNames(t *testing.T) {
	kinds := map[string]func(t *testing.T) server{"sqlite": func(t *testing.T) server {
		path := filepath.Join(t.TempDir(), "shop.db")
		return server{plugin: "sqlite", dsn: path, db: openSQL(t, "sqlite", path)}
	}}
	for name, kind := range serverKinds {
		kinds[name] = kind
	}
	for kind, make := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := make(t)
			quote, where := `"`, "dsn"
			switch s.plugin {
			case "mysql":
				quote = "`"
			case "sqlite":
				where = "path"
			}
			quoted := func(name string) string { return quote + strings.ReplaceAll(name, quote, quote+quote) + quote }
			const table, id, payload = "my 'out`box\"; --", `com mand"id`, "pay`load {id}"
			dir := t.TempDir()
			write(t, dir, "connectd.yaml", fmt.Sprintf("connectors:\n  shop:\n    source: {plugin: %s, %s: %q, table: %q, columns: {id: %q, payload: %q}}\n    sink: {plugin: file, path: out.jsonl}\n",
				s.plugin, where, s.dsn, table, id, payload))
			connectd(t, dir, "init").want(t, 0)
			executeOn(t, s.db, fmt.Sprintf("INSERT INTO %s (%s, %s) VALUES ('order-1', 'x')", quoted(table), quoted(id), quoted(payload)))
			connectd(t, dir, "rows", "list").want(t, 0, "order-1")
		})
	}
}
