//go:build linux

package chaos

import (
	"database/sql"
	"database/sql/driver"
	"io"
	"log"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/connectd/connectd/scripts/services"
)

func openDatabase(t *testing.T, p pair, dir string) *database {
	t.Helper()
	d := &database{version: "SELECT version()", clock: p.clock}
	switch p.source {
	case "sqlite":
		path := filepath.Join(dir, "outbox.db")
		d.dsn = func(string) string { return path }
		d.version = "SELECT 'SQLite ' || sqlite_version()"
		d.open(t, "sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	case "postgres":
		d.server, d.servers, d.dollar = "postgres", own(t, p.clock, "postgres"), true
		u, err := url.Parse(d.servers.Postgres())
		if err != nil {
			t.Fatal("the address of PostgreSQL is no URL")
		}
		d.address = u.Host
		d.dsn = func(address string) string {
			through := *u
			through.Host = address
			return through.String()
		}
		d.open(t, "pgx", u.String())
	case "mysql":
		d.server, d.servers = "mysql", own(t, p.clock, "mysql")
		d.openMySQL(t, d.servers.MySQL())
	case "mariadb":
		d.server, d.servers = "mariadb", own(t, p.clock, "mariadb")
		d.version = "SELECT concat('MariaDB ', version())"
		d.openMySQL(t, d.servers.MariaDB())
	default:
		t.Fatalf("there is no source %s", p.source)
	}
	d.db.SetMaxOpenConns(16)
	return d
}

// own starts a server, with its own clock where that is off.
func own(t *testing.T, off time.Duration, server string) *services.Servers {
	t.Helper()
	if off == 0 {
		return services.Own(t, server)
	}
	return services.OwnClock(t, off, server)
}

func (d *database) open(t *testing.T, driver, dsn string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	d.db = db
	t.Cleanup(func() { _ = db.Close() })
}

func (d *database) openMySQL(t *testing.T, dsn string) {
	t.Helper()
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal("the address of the server is no data source name")
	}
	d.address = c.Addr
	d.dsn = func(address string) string {
		through := c.Clone()
		through.Addr = address
		return through.FormatDSN()
	}
	if d.version == "SELECT version()" {
		d.version = "SELECT concat('MySQL ', version())"
	}
	own := c.Clone()
	own.Logger = log.New(io.Discard, "", 0) // it says of each connection that the server was killed
	var connector driver.Connector
	if connector, err = mysql.NewConnector(own); err != nil {
		t.Fatal(err)
	}
	d.db = sql.OpenDB(connector)
	t.Cleanup(func() { _ = d.db.Close() })
}
