package config_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/connectd/connectd/core/config"
)

func TestTwoConnectorsOnOneTable(t *testing.T) {
	write(t, "c.yaml", "")
	if err := os.Mkdir("data", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("data", "link"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"plugin: sqlite, path: data/x.db", "plugin: sqlite, path: ./data/../data/x.db", true},
		{"plugin: sqlite, path: data/x.db", "plugin: sqlite, path: link/x.db, table: Outbox", true},
		{"plugin: sqlite, path: data/x.db", "plugin: sqlite, path: data/y.db", false},
		{"plugin: sqlite, path: data/x.db", "plugin: sqlite, path: data/x.db, table: other", false},
		{"plugin: postgres, dsn: 'postgres://a:b@db:5432/x'", "plugin: postgres, dsn: 'postgresql://c@DB/x?sslmode=disable', table: public.outbox", true},
		{"plugin: postgres, dsn: 'postgres://a@db/x', table: 'public.\"my \"\"out\"\".box\"'", "plugin: postgres, dsn: 'postgres://a@db/x', table: '\"my \"\"out\"\".box\"'", true},
		{"plugin: postgres, dsn: 'postgres://a@db/x', table: '\"a.outbox\"'", "plugin: postgres, dsn: 'postgres://a@db/x', table: a.outbox", false},
		{"plugin: mysql, dsn: 'u@tcp(db)/x', table: '`my outbox`'", "plugin: mysql, dsn: 'u@tcp(db)/x', table: My Outbox", true},
		{"plugin: postgres, dsn: 'postgres://a:b@127.0.0.1/x'", "plugin: postgres, dsn: 'host=localhost user=z dbname=x'", true},
		{"plugin: postgres, dsn: 'postgres://u@h'", "plugin: postgres, dsn: 'user=u host=h dbname=u'", true},
		{"plugin: postgres, dsn: 'postgres://a@db/x'", "plugin: postgres, dsn: 'postgres://a@db/y'", false},
		{"plugin: postgres, dsn: 'postgres://a@db/x'", "plugin: postgres, dsn: 'postgres://a@db:5433/x'", false},
		{"plugin: postgres, dsn: 'postgres://a@db/x'", "plugin: postgres, dsn: 'postgres://a@db/x', table: shop.outbox", false},
		{"plugin: mysql, dsn: 'u:p@/w@tcp(db:3306)/x?parseTime=true'", "plugin: mysql, dsn: 'v@tcp(db)/x'", true},
		{"plugin: mysql, dsn: 'u@tcp([::1]:3306)/x'", "plugin: mysql, dsn: 'u@/x'", true},
		{"plugin: mysql, dsn: 'u@tcp(db)/x'", "plugin: postgres, dsn: 'postgres://db:3306/x'", false},
	} {
		yaml := fmt.Sprintf("connectors:\n  a:\n    source: {%s}\n    sink: {plugin: file}\n  b:\n    source: {%s}\n    sink: {plugin: file}\n", c.a, c.b)
		if err := os.WriteFile("c.yaml", []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load([]string{"c.yaml"}, env())
		if !c.same {
			if err != nil {
				t.Errorf("%s\nand %s: %v", c.a, c.b, err)
			}
			continue
		}
		want := `c.yaml:2:3: connector "a": source.table is the one that connector "b" reads, at c.yaml:5:3; an outbox table feeds one connector
c.yaml:5:3: connector "b": source.table is the one that connector "a" reads, at c.yaml:2:3; an outbox table feeds one connector`
		if err == nil || err.Error() != want {
			t.Errorf("%s\nand %s\ngot %v", c.a, c.b, err)
		} else if len(cfg.Connectors) > 0 {
			t.Errorf("%s\nand %s: either would get half of the rows, but %d may run", c.a, c.b, len(cfg.Connectors))
		}
	}
}
