package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
)

// Bounds of one INSERT. The rows keep the number of its parameters below what any SQLite takes (999); a statement has at
// least one row, however large that is.
const (
	maxRows  = 100
	maxBytes = 1 << 20
)

// Tx is what is needed of a transaction: *sql.Tx, or what embeds one. A *sql.DB is none.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	Rollback() error
}

// PgxTx is what is needed of a pgx.Tx. Tag is pgconn.CommandTag; the compiler finds that by itself. A pool is no PgxTx.
type PgxTx[Tag any] interface {
	Exec(ctx context.Context, query string, args ...any) (Tag, error)
	Rollback(ctx context.Context) error
}

// Enqueue inserts the messages in this order, up to a hundred with one INSERT. They are sent when, and only when, the
// transaction commits.
//
// A *MessageError, or a *DuplicateError about two of these messages, comes before anything is sent to the database, and
// the transaction goes on as if there had been no call. Any other error, a *DuplicateError of the database included,
// leaves some messages inserted or none: roll back. PostgreSQL insists on it, since its transaction is aborted and
// refuses every other statement; MySQL and SQLite would commit the half.
func (t *Table) Enqueue(ctx context.Context, tx Tx, messages ...Message) error {
	return t.enqueue(ctx, sqlTx{tx}, messages)
}

// EnqueuePgx is Enqueue for a transaction of pgx, in each of its query modes. The table's dialect must be PostgreSQL.
func EnqueuePgx[Tag any](ctx context.Context, t *Table, tx PgxTx[Tag], messages ...Message) error {
	if t.dialect != PostgreSQL {
		return fmt.Errorf("outbox: pgx does not speak the dialect %s", t.dialect)
	}
	return t.enqueue(ctx, pgxTx[Tag]{tx}, messages)
}

type session interface {
	exec(ctx context.Context, query string, args []any) error
	// look reads one value, where a failed statement does not end the transaction.
	look(ctx context.Context, query string, args []any) (string, error)
}

type sqlTx struct{ Tx }

func (s sqlTx) exec(ctx context.Context, query string, args []any) error {
	_, err := s.ExecContext(ctx, query, args...)
	return err
}

func (s sqlTx) look(ctx context.Context, query string, args []any) (value string, err error) {
	err = s.QueryRowContext(ctx, query, args...).Scan(&value)
	return value, err
}

type pgxTx[Tag any] struct{ PgxTx[Tag] }

func (s pgxTx[Tag]) exec(ctx context.Context, query string, args []any) error {
	_, err := s.Exec(ctx, query, args...)
	return err
}

func (s pgxTx[Tag]) look(context.Context, string, []any) (string, error) { return "", nil }

func (t *Table) enqueue(ctx context.Context, s session, messages []Message) error {
	rows, err := t.rows(messages)
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	columns := t.needed(rows)
	for len(rows) > 0 {
		n, bytes := 1, rows[0].size
		for n < len(rows) && n < maxRows && bytes+rows[n].size <= maxBytes {
			bytes += rows[n].size
			n++
		}
		query, args := t.insert(columns, rows[:n])
		if err := s.exec(ctx, query, args); err != nil {
			return fmt.Errorf("outbox: insert into %s: %w", t.bare, t.judge(ctx, s, err, rows[:n]))
		}
		rows = rows[n:]
	}
	return nil
}

// column is one that the INSERT names.
type column struct {
	name  string
	value func(row) any
}

// needed are the columns that some row has a value for; a table may lack the others.
func (t *Table) needed(rows []row) []column {
	text := func(of func(row) string) func(row) any {
		return func(r row) any {
			if of(r) == "" {
				return nil
			}
			return of(r)
		}
	}
	list := []column{{t.columns.ID, func(r row) any { return r.ID }}, {t.columns.Payload, t.payloadOf}}
	for _, c := range []column{
		{t.columns.Key, text(func(r row) string { return r.Key })},
		{t.columns.Route, text(func(r row) string { return r.Route })},
		{t.columns.Type, text(func(r row) string { return r.Type })},
		{t.columns.Headers, text(func(r row) string { return r.headers })},
	} {
		for _, r := range rows {
			if c.value(r) != nil {
				list = append(list, c)
				break
			}
		}
	}
	return list
}

// payloadOf: drivers tell the database that bytes are bytes, which a column of text or JSON need not take.
func (t *Table) payloadOf(r row) any {
	switch {
	case r.Payload == nil:
		return nil
	case t.payload == Bytes:
		return r.Payload
	default:
		return string(r.Payload)
	}
}

func (t *Table) insert(columns []column, rows []row) (string, []any) {
	var q strings.Builder
	q.WriteString("INSERT INTO " + t.name + " (")
	for i, c := range columns {
		if i > 0 {
			q.WriteString(", ")
		}
		q.WriteString(t.dialect.quote(c.name))
	}
	q.WriteString(") VALUES ")
	args := make([]any, 0, len(columns)*len(rows))
	for i, r := range rows {
		if i > 0 {
			q.WriteString(", ")
		}
		for j, c := range columns {
			args = append(args, c.value(r))
			q.WriteString([]string{"(", ", "}[min(j, 1)] + t.dialect.parameter(len(args)))
		}
		q.WriteString(")")
	}
	return q.String(), args
}

func (d Dialect) parameter(n int) string {
	if d == PostgreSQL {
		return "$" + strconv.Itoa(n)
	}
	return "?"
}
