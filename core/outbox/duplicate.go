package outbox

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// ErrDuplicate is what every *DuplicateError is, for errors.Is.
var ErrDuplicate = errors.New("outbox: duplicate id")

// DuplicateError says that the table, or the same call, has a message with this id already.
//
// It is the unique constraint that refuses, so two transactions that insert one id at the same time cannot both commit: the
// second waits for the first. The transaction's state afterwards: see [Table.Enqueue].
type DuplicateError struct {
	// ID is the message's. It is "" where there were several messages and the server does not say which: PostgreSQL does
	// not to a role that may not SELECT the id column, and MySQL shows no more of an id than its first 56 bytes. That role
	// is not told either which unique constraint it was, so any of the table's counts as the id's.
	ID  string
	Err error // the database's; nil if two messages of one call have the id
}

func (e *DuplicateError) Error() string {
	text := "there is a message with the id of one of these"
	if e.ID != "" {
		text = fmt.Sprintf("there is a message with id %q", e.ID)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap gives the database's error.
func (e *DuplicateError) Unwrap() error { return e.Err }

// Is makes it an ErrDuplicate.
func (e *DuplicateError) Is(target error) bool { return target == ErrDuplicate }

// judge makes a *DuplicateError of an error that says so of the id, and leaves others as they are: a table may have more
// unique constraints.
func (t *Table) judge(ctx context.Context, s session, err error, rows []row) error {
	var id string
	is := false
	switch t.dialect {
	case PostgreSQL:
		id, is = t.duplicateInPostgres(err, rows)
	case MySQL:
		id, is = duplicateInMySQL(err, rows)
	case SQLite:
		if is = t.duplicateInSQLite(err); is {
			id = t.lookFor(ctx, s, rows)
		}
	}
	if !is {
		return err
	}
	if id == "" && len(rows) == 1 {
		id = rows[0].ID
	}
	return &DuplicateError{id, err}
}

// duplicateInPostgres knows the errors of pgx and lib/pq by what both have: a method SQLState and a field Detail, "Key
// (id)=(order-1) already exists." in the server's language.
func (t *Table) duplicateInPostgres(err error, rows []row) (string, bool) {
	var of interface {
		error
		SQLState() string
	}
	if !errors.As(err, &of) || of.SQLState() != "23505" {
		return "", false
	}
	detail := strings.ToLower(textField(of, "Detail")) // a uuid is shown as the server writes it
	if detail == "" {
		return "", true
	}
	column := strings.ToLower(t.columns.ID)
	return matching(rows, func(id string) bool {
		value := ")=(" + strings.ToLower(id) + ")"
		return strings.Contains(detail, "("+column+value) || strings.Contains(detail, "("+PostgreSQL.quote(column)+value)
	})
}

// duplicateInMySQL knows the error of go-sql-driver by its number (ER_DUP_ENTRY). Its text shows the value between quotes,
// whatever the server's language.
func duplicateInMySQL(err error, rows []row) (string, bool) {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if numberField(e, "Number") == 1062 {
			return matching(rows, func(id string) bool { return strings.Contains(e.Error(), shownByMySQL(id)) })
		}
	}
	return "", false
}

// shownByMySQL is how the server shows a value at least: in its own character set of three bytes, and cut to 64 bytes, of
// which MariaDB takes some for dots.
func shownByMySQL(id string) string {
	const sure = 56
	shown := strings.Map(func(r rune) rune {
		if r > 0xFFFF {
			return '?'
		}
		return r
	}, id)
	if len(shown) <= sure {
		return "'" + shown + "'"
	}
	n := sure
	for !utf8.RuneStart(shown[n]) {
		n--
	}
	return "'" + shown[:n]
}

// duplicateInSQLite goes by SQLite's own text, which is the same with every driver and names the column; some add a code
// in parentheses.
func (t *Table) duplicateInSQLite(err error) bool {
	_, rest, found := strings.Cut(strings.ToLower(err.Error()), strings.ToLower("UNIQUE constraint failed: "+t.bare+"."+t.columns.ID))
	return found && (rest == "" || strings.HasPrefix(rest, " ("))
}

// lookFor finds the first id that is in the table. It is read in the transaction that inserted none of the rows.
func (t *Table) lookFor(ctx context.Context, s session, rows []row) string {
	for _, r := range rows {
		id, err := s.look(ctx, "SELECT "+t.dialect.quote(t.columns.ID)+" FROM "+t.name+" WHERE "+t.dialect.quote(t.columns.ID)+" = ?", []any{r.ID})
		if err == nil && id != "" {
			return r.ID
		}
	}
	return ""
}

// matching finds the one row that it can be; there is no id when several can.
func matching(rows []row, is func(id string) bool) (id string, found bool) {
	for _, r := range rows {
		switch {
		case !is(r.ID):
		case found:
			return "", true
		default:
			id, found = r.ID, true
		}
	}
	return id, found
}

func textField(err error, name string) string {
	if f := fieldOf(err, name); f.IsValid() && f.Kind() == reflect.String {
		return f.String()
	}
	return ""
}

func numberField(err error, name string) uint64 {
	if f := fieldOf(err, name); f.IsValid() && f.CanUint() {
		return f.Uint()
	}
	return 0
}

// fieldOf reads a public field of a driver's error, so that no driver need be imported.
func fieldOf(err error, name string) reflect.Value {
	v := reflect.Indirect(reflect.ValueOf(err))
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v.FieldByName(name)
}
