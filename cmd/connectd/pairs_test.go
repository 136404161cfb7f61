package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Pairs in one daemon have nothing in common: what one read is settled where it came from, though the other's table has the
// same name and rows with the same ids, in another file or in the same one. If it were settled elsewhere, or nowhere, rows
// would be sent again after the restart. (https://github.com/JasperFx/wolverine/issues/4417,
// https://github.com/JasperFx/wolverine/issues/2361)
func TestPairsInOneDaemonAreApart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pair := func(name, file, table string) string {
		return `  ` + name + `:
    source: {plugin: sqlite, path: ./` + file + `/shop.db, table: ` + table + `}
    sink: {plugin: file, path: ./` + name + `/out.jsonl}
    delivery: {batch: {max_records: 20}}
`
	}
	for _, name := range []string{"one", "two", "three"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "connectd.yaml", "connectors:\n"+pair("one", "one", "outbox")+pair("two", "two", "outbox")+pair("three", "two", "other"))
	connectd(t, dir, "init").want(t, 0)
	one, two := openShop(t, filepath.Join(dir, "one")), openShop(t, filepath.Join(dir, "two"))
	one.insert(200, 7)
	two.insert(300, 7)
	two.exec(`INSERT INTO other (id, aggregateid, type, payload) SELECT id, aggregateid, type, payload FROM outbox WHERE seq <= 100`)
	run := func(rowsOfOne, rowsOfTwo int) {
		t.Helper()
		d := startDaemon(t, dir)
		one.published(rowsOfOne)
		two.published(rowsOfTwo)
		d.eventually("the third pair's rows are published", func() (bool, string) {
			n := two.of(`SELECT count(*) FROM other WHERE state = 'published'`)
			return n == "100", n
		})
		d.signal(syscall.SIGTERM)
		if code := d.wait(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if log := d.log.String(); strings.Contains(log, "lease_not_owned") {
			t.Error("a settlement was refused")
		}
	}
	run(200, 300)
	two.insert(50, 7)
	run(200, 350)
	for name, rows := range map[string]int{"one": 200, "two": 350, "three": 100} {
		if n := audit(t, filepath.Join(dir, name), rows); n != 0 {
			t.Errorf("%s: %d rows came again", name, n)
		}
	}
	for _, s := range []*shop{one, two} {
		if n := s.of(`SELECT count(*) FROM outbox WHERE deliveries <> 1`) + s.of(`SELECT count(*) FROM connectd_inflight`); n != "00" {
			t.Errorf("rows that were not sent once, and inflight rows: %s", n)
		}
	}
}
