// Package inbox runs a command's effect once, however often the command is delivered. It is for consumers whose effects are
// in the database that has the table connectd_receipt: the effect and the receipt commit together or not at all.
//
//	billing, err := inbox.New(inbox.PostgreSQL, "billing", inbox.Options{})
//	...
//	receipt, err := billing.Do(ctx, db, message.ID, func(ctx context.Context, tx *sql.Tx) (string, error) {
//		_, err := tx.ExecContext(ctx, "UPDATE budgets SET locked = locked + 900 WHERE trip = $1", trip)
//		return "", err
//	})
//	... // without an error: acknowledge the message, whether or not it was a repeat
//
// A receipt is unique by command and consumer. Done is final: every later call returns that receipt and runs nothing. A
// failed one is no completion: a later call runs the effect again.
//
// Two calls for one command at the same time: the second waits for the first, for as long as its context and the database's
// lock time-out allow, and then finds a receipt or runs the effect itself.
//
// The package imports no driver. [Inbox.Do] is for database/sql with whatever driver, [DoPgx] for pgx.
package inbox

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Dialect is a kind of database, named as a source's plugin.
type Dialect string

// The databases that have sources. MySQL is MariaDB too. SQLite must be 3.35 or later, for RETURNING.
const (
	PostgreSQL Dialect = "postgres"
	MySQL      Dialect = "mysql"
	SQLite     Dialect = "sqlite"
)

// Status is what a receipt says of its command.
type Status string

// The statuses of receipts that are committed.
const (
	Done   Status = "done"
	Failed Status = "failed"
)

// started is the status while an effect runs. It is not committed, unless the effect commits, which it must not: then
// nobody knows how much of the effect there is, and the effect is not run again.
const started = "started"

// Receipt is one row of connectd_receipt.
type Receipt struct {
	CommandID, Consumer string
	Status              Status
	// Result is what the effect returned, or the reason of the failure.
	Result string
	// At is the database's time, UTC.
	At time.Time
	// Repeat says that the receipt was there before: the effect was not run.
	Repeat bool
}

// Failure is an effect's error that shall be in a receipt with status failed: everybody can see that the command was tried
// and why it is not done. Other errors leave no receipt. In either case nothing of the effect is kept, and the command may
// be tried again.
type Failure struct {
	// Reason is for people. It is kept without control characters and cut to 1024 bytes.
	Reason string
}

func (f *Failure) Error() string { return f.Reason }

// Options say where the receipts are.
type Options struct {
	// Schema is that of connectd_receipt (in MySQL its database, in SQLite the name of an attached one): the outbox
	// table's. "" leaves it to the connection.
	Schema string
}

// Inbox is one consumer's. It does not change and may be used by all goroutines.
type Inbox struct {
	dialect  Dialect
	consumer string
	text     statements
}

// Bounds of what is stored, in characters, as the columns have them that `connectd init` makes in MySQL; and so everywhere,
// since a receipt may be sent to connectd as well.
const (
	maxName   = 255
	maxResult = 1024
)

// New refuses a name that cannot be stored. consumer tells apart those who each complete the same command; with one only it
// may be "". The database is not asked.
func New(dialect Dialect, consumer string, o Options) (*Inbox, error) {
	if dialect != PostgreSQL && dialect != MySQL && dialect != SQLite {
		return nil, fmt.Errorf("inbox: no dialect is named %q", dialect)
	}
	in := &Inbox{dialect: dialect, consumer: consumer}
	if err := in.checkName(consumer); err != nil {
		return nil, fmt.Errorf("inbox: consumer %q: %w", consumer, err)
	}
	if !storable(o.Schema) {
		return nil, fmt.Errorf("inbox: schema %q is not UTF-8 without NUL", o.Schema)
	}
	in.text = dialect.statements(o.Schema)
	return in, nil
}

func (in *Inbox) checkCommand(id string) error {
	if id == "" {
		return errors.New("inbox: the command has no id")
	}
	if err := in.checkName(id); err != nil {
		return fmt.Errorf("inbox: command %q: %w", id, err)
	}
	return nil
}

func (in *Inbox) checkName(name string) error {
	switch {
	case !storable(name):
		return errors.New("it is not UTF-8 without NUL")
	case utf8.RuneCountInString(name) > maxName:
		return fmt.Errorf("it has %d characters, at most %d are allowed", utf8.RuneCountInString(name), maxName)
	case in.dialect == MySQL && strings.HasSuffix(name, " "):
		// A receipt for "a" would be taken for one of "a ".
		return errors.New("it ends with a blank, which MySQL does not see")
	}
	return nil
}

func checkResult(result string) error {
	switch {
	case !storable(result):
		return errors.New("the result is not UTF-8 without NUL")
	case utf8.RuneCountInString(result) > maxResult:
		return fmt.Errorf("the result has %d characters, at most %d are allowed: return a reference to it", utf8.RuneCountInString(result), maxResult)
	}
	return nil
}

func storable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }
