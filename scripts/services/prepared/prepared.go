// Package prepared gives tests databases of their own that are as `connectd init` leaves them: with an empty table outbox
// and the relay's tables beside it.
package prepared

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "github.com/lib/pq"              // the driver postgres
	_ "modernc.org/sqlite"             // the driver sqlite

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
	mysqlsource "github.com/connectd/connectd/sources/mysql"
	postgressource "github.com/connectd/connectd/sources/postgres"
	sqlitesource "github.com/connectd/connectd/sources/sqlite"
)

// Database is one that a test may do anything with.
type Database struct {
	// Dialect is postgres, mysql or sqlite.
	Dialect string
	// Driver and DSN open it with database/sql; DB has done so. The DSN of PostgreSQL is a URL that pgx takes too.
	Driver, DSN string
	DB          *sql.DB
}

// Each runs a test on every kind of database, the servers' drivers included. Servers that are not there are treated as
// package services does.
func Each(t *testing.T, run func(t *testing.T, db Database)) {
	t.Helper()
	for _, kind := range []struct {
		name string
		make func(testing.TB) Database
	}{
		{"SQLite", SQLite},
		{"PostgreSQL", Postgres},
		{"PostgreSQL with pq", func(t testing.TB) Database { return open(t, "postgres", "postgres", Postgres(t).DSN) }},
		{"MySQL", func(t testing.TB) Database { return mySQL(t, services.MySQL(t)) }},
		{"MariaDB", func(t testing.TB) Database { return mySQL(t, services.MariaDB(t)) }},
	} {
		t.Run(kind.name, func(t *testing.T) { run(t, kind.make(t)) })
	}
}

var databases atomic.Int64

func newName() string { return fmt.Sprintf("connectd_app_%d_%d", os.Getpid(), databases.Add(1)) }

// Postgres is a database in PostgreSQL.
func Postgres(t testing.TB) Database {
	t.Helper()
	server, name := services.Postgres(t), newName()
	create(t, "pgx", server, "CREATE DATABASE "+name, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	cfg := postgressource.Config{DSN: u.String(), Table: "outbox"}
	initialise(t, func(ctx context.Context) (core.Plan, error) {
		return postgressource.Plan(ctx, cfg, postgressource.InitOptions{})
	}, func(ctx context.Context, plan core.Plan) error {
		return postgressource.Apply(ctx, cfg, postgressource.InitOptions{}, plan)
	})
	return open(t, "postgres", "pgx", cfg.DSN)
}

func mySQL(t testing.TB, server string) Database {
	t.Helper()
	name := newName()
	create(t, "mysql", server, "CREATE DATABASE "+name, "DROP DATABASE IF EXISTS "+name)
	c, err := mysql.ParseDSN(server)
	if err != nil {
		t.Fatal(err)
	}
	c.DBName = name
	cfg := mysqlsource.Config{DSN: c.FormatDSN(), Table: "outbox"}
	initialise(t, func(ctx context.Context) (core.Plan, error) {
		return mysqlsource.Plan(ctx, cfg, mysqlsource.InitOptions{})
	}, func(ctx context.Context, plan core.Plan) error {
		return mysqlsource.Apply(ctx, cfg, mysqlsource.InitOptions{}, plan)
	})
	return open(t, "mysql", "mysql", cfg.DSN)
}

// SQLite is a database in a file.
func SQLite(t testing.TB) Database {
	t.Helper()
	cfg := sqlitesource.Config{Path: filepath.Join(t.TempDir(), "shop.db"), Table: "outbox"}
	initialise(t, func(ctx context.Context) (core.Plan, error) {
		return sqlitesource.Plan(ctx, cfg, sqlitesource.InitOptions{})
	}, func(ctx context.Context, plan core.Plan) error { return sqlitesource.Apply(ctx, cfg, plan) })
	return open(t, "sqlite", "sqlite", "file:"+cfg.Path+"?_pragma=busy_timeout(30000)")
}

// Path is the file of a database in SQLite.
func (db Database) Path(t testing.TB) string {
	t.Helper()
	var n, name, path string
	if err := db.DB.QueryRowContext(t.Context(), "PRAGMA database_list").Scan(&n, &name, &path); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t testing.TB, dialect, driver, dsn string) Database {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return Database{dialect, driver, dsn, db}
}

// Exec runs statements.
func (db Database) Exec(t testing.TB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.DB.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// Ask reads one value as text; NULL is "NULL".
func (db Database) Ask(t testing.TB, query string) string {
	t.Helper()
	var value sql.NullString
	if err := db.DB.QueryRowContext(t.Context(), query).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	if !value.Valid {
		return "NULL"
	}
	return value.String
}

func create(t testing.TB, driver, dsn, make, drop string) {
	t.Helper()
	do := func(statement string) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		db, err := sql.Open(driver, dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		_, err = db.ExecContext(ctx, statement)
		return err
	}
	if err := do(make); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := do(drop); err != nil {
			t.Error(err)
		}
	})
}

func initialise(t testing.TB, plan func(context.Context) (core.Plan, error), apply func(context.Context, core.Plan) error) {
	t.Helper()
	p, err := plan(t.Context())
	if err == nil {
		err = apply(t.Context(), p)
	}
	if err != nil {
		t.Fatal(err)
	}
}
