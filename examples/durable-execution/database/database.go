// Package database opens the database that the example's programs share.
package database

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"strings"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"
)

// DB is a database and its kind: sqlite, postgres or mysql, which MariaDB is too.
type DB struct {
	*sql.DB
	Kind string
}

// Open opens what TRIPS_KIND and TRIPS_DSN say. For SQLite the latter is a path.
func Open() (DB, error) {
	kind, dsn := os.Getenv("TRIPS_KIND"), os.Getenv("TRIPS_DSN")
	driver, known := map[string]string{"sqlite": "sqlite", "postgres": "pgx", "mysql": "mysql"}[kind]
	if !known {
		return DB{}, fmt.Errorf("TRIPS_KIND is %q, must be sqlite, postgres or mysql", kind)
	}
	if kind == "sqlite" {
		dsn = "file:" + dsn + "?_txlock=immediate&_pragma=busy_timeout(10000)"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return DB{}, fmt.Errorf("TRIPS_DSN is not what the driver %s wants", driver) // the error may show a password
	}
	return DB{db, kind}, nil
}

// SQL writes a statement's parameters, which are question marks, as the database has them.
func (db DB) SQL(statement string) string {
	if db.Kind != "postgres" {
		return statement
	}
	var text strings.Builder
	for i, part := range strings.Split(statement, "?") {
		if i > 0 {
			text.WriteString("$" + strconv.Itoa(i))
		}
		text.WriteString(part)
	}
	return text.String()
}

// Run runs statements without parameters.
func (db DB) Run(ctx context.Context, statements ...string) error {
	for _, s := range statements {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%.40s…: %w", s, err)
		}
	}
	return nil
}
