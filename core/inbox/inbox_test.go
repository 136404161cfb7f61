package inbox_test

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/connectd/connectd/core/inbox"
)

func TestMain(m *testing.M) {
	if os.Getenv(victimDriver) != "" {
		victim()
		return
	}
	goleak.VerifyTestMain(m)
}

func newInbox(t testing.TB, dialect, consumer string) *inbox.Inbox {
	t.Helper()
	in, err := inbox.New(inbox.Dialect(dialect), consumer, inbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		dialect          inbox.Dialect
		consumer, schema string
		want             string
	}{
		{"oracle", "", "", `inbox: no dialect is named "oracle"`},
		{inbox.SQLite, "\xff", "", `inbox: consumer "\xff": it is not UTF-8 without NUL`},
		{inbox.SQLite, strings.Repeat("é", 256), "", "it has 256 characters, at most 255 are allowed"},
		{inbox.MySQL, "a ", "", `inbox: consumer "a ": it ends with a blank, which MySQL does not see`},
		{inbox.PostgreSQL, "a ", "\x00", `inbox: schema "\x00" is not UTF-8 without NUL`},
	} {
		if _, err := inbox.New(c.dialect, c.consumer, inbox.Options{Schema: c.schema}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// What no receipt can name is refused before the database is asked: there is none in this test.
func TestCommandsThatAreRefused(t *testing.T) {
	for _, c := range []struct{ dialect, id, want string }{
		{"sqlite", "", "inbox: the command has no id"},
		{"sqlite", "a\x00", `inbox: command "a\x00": it is not UTF-8 without NUL`},
		{"postgres", strings.Repeat("é", 256), "it has 256 characters"},
		{"mysql", "a ", "it ends with a blank"},
	} {
		_, err := newInbox(t, c.dialect, "").DoTx(t.Context(), nil, c.id, func(context.Context, *sql.Tx) (string, error) {
			t.Error("the effect ran")
			return "", nil
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}
