package exampletest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
)

// PostgresDatabase makes a database on the server of the URL, for this test alone, and returns its URL.
func PostgresDatabase(t *testing.T, server string) string {
	t.Helper()
	at, err := url.Parse(server)
	if err != nil {
		t.Fatal("the server's address is no URL") // the error shows it
	}
	at.Path = "/" + database(t, "pgx", server, " WITH (FORCE)")
	return at.String()
}

// MySQLDatabase makes a database on the server of the DSN, which may be MariaDB, for this test alone, and returns its DSN.
func MySQLDatabase(t *testing.T, server string) string {
	t.Helper()
	return server[:strings.LastIndexByte(server, '/')+1] + database(t, "mysql", server, "")
}

// database makes one that is dropped when the test ends, and returns its name.
func database(t *testing.T, driver, server, drop string) (name string) {
	t.Helper()
	db, err := sql.Open(driver, server)
	if err != nil {
		t.Fatal("the server's address is not what the driver wants") // the error may show it
	}
	t.Cleanup(func() { _ = db.Close() })
	name = "connectd_example_" + strings.ToLower(rand.Text())
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.WithoutCancel(t.Context()), "DROP DATABASE "+name+drop); err != nil {
			t.Error(err)
		}
	})
	return name
}
