package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/connectd/connectd/core/inbox"
	"github.com/connectd/connectd/scripts/services/prepared"
)

// What the page grants is enough for the page's SQL, and without DELETE for package inbox.
func TestDocumentedRights(t *testing.T) {
	prepared.Each(t, func(t *testing.T, db prepared.Database) {
		if db.Dialect == "sqlite" {
			return // it has no rights
		}
		w := newWorld(t, db)
		w.Exec(t, budgets, "INSERT INTO budgets VALUES ('ada', 0, 5000)")
		grants := statements(t, "grant")
		if !strings.HasPrefix(grants[1], "GRANT SELECT, INSERT, UPDATE, DELETE ON connectd_receipt TO") {
			t.Fatal(grants)
		}
		user := w.consumer(t, grants)
		mark := "sql"
		if db.Dialect == "mysql" {
			mark = "sql mysql"
		}
		user.plainSQL(t, statements(t, mark))
		w.Exec(t, w.as(t, "REVOKE DELETE ON connectd_receipt FROM billing"))
		effect := func(err error) func(context.Context, *sql.Tx) (string, error) {
			return func(ctx context.Context, tx *sql.Tx) (string, error) {
				_, failed := tx.ExecContext(ctx, leave("a"))
				return "", errors.Join(failed, err)
			}
		}
		in := newInbox(t, db.Dialect, "billing")
		if r, err := in.Do(t.Context(), user.DB, "a", effect(&inbox.Failure{Reason: "mine"})); r.Status != inbox.Failed {
			t.Error(err)
		}
		for _, repeat := range []bool{false, true} {
			if r, err := in.Do(t.Context(), user.DB, "a", effect(nil)); err != nil || r.Repeat != repeat {
				t.Error(err)
			}
		}
		w.want(t, "a", "1")
	})
}

// as makes a statement about billing one about a user of the test's own.
func (w world) as(t *testing.T, statement string) string {
	if w.Dialect == "postgres" {
		return strings.ReplaceAll(statement, "billing", w.Ask(t, "SELECT current_database()"))
	}
	return strings.ReplaceAll(statement, "billing", "'"+w.Ask(t, "SELECT database()")+"'")
}

// consumer is the same database, opened by a user who has been granted this and the use of the test's tables.
func (w world) consumer(t *testing.T, grants []string) world {
	t.Helper()
	own := []string{"GRANT INSERT ON effects TO billing", "GRANT SELECT, UPDATE ON budgets TO billing"}
	var dsn string
	if w.Dialect == "postgres" {
		w.Exec(t, w.as(t, "CREATE ROLE billing LOGIN PASSWORD 'secret'"))
		u, err := url.Parse(w.DSN)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(w.as(t, "billing"), "secret")
		dsn = u.String()
		t.Cleanup(func() {
			w.DB.ExecContext(context.Background(), "DROP OWNED BY "+u.User.Username())
			w.DB.ExecContext(context.Background(), "DROP ROLE "+u.User.Username())
		})
	} else {
		grants = grants[1:] // without USAGE
		w.Exec(t, w.as(t, "CREATE USER billing IDENTIFIED BY 'secret'"))
		c, err := mysql.ParseDSN(w.DSN)
		if err != nil {
			t.Fatal(err)
		}
		c.User, c.Passwd = c.DBName, "secret"
		dsn = c.FormatDSN()
		t.Cleanup(func() { w.DB.ExecContext(context.Background(), "DROP USER '"+c.User+"'") })
	}
	for _, grant := range append(own, grants...) {
		w.Exec(t, w.as(t, grant))
	}
	db, err := sql.Open(w.Driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	w.DB = db
	return w
}
