package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// rollbackTime bounds a rollback after the caller's context has ended.
const rollbackTime = 5 * time.Second

// Do runs the effect in a transaction of its own and writes the receipt in it, unless there is a receipt that says done: then
// it returns that one. The isolation level is READ COMMITTED; in SQLite the transaction has the write lock before the
// effect begins.
//
// The effect works with tx alone and does not commit or roll back; in MySQL statements that commit by themselves (DDL) are
// such. What it does elsewhere, such as a call to another service, is not undone and may be done more than once. It returns
// a reference to its result, at most 1024 characters, or an error: then nothing of it is kept. A *Failure among its errors
// is stored as a receipt, which is returned beside the error.
//
// The effect must return the first error that tx gives it, and do nothing with tx after that. There are errors with which a
// database ends the transaction. PostgreSQL then refuses what comes after them; in MySQL it is rolled back too, since
// autocommit is off while Do has the connection. In SQLite (after INSERT OR ROLLBACK, RAISE(ROLLBACK), a full disk, an
// interrupted statement) each statement that comes after them is committed by itself: Do finds out and returns an error, but
// what was written so is kept, and is written once more when the command is tried again.
//
// After any error the command may be tried again; nothing is tried again here. An error of the commit leaves open whether
// it took place, and trying again finds out.
func (in *Inbox) Do(ctx context.Context, db *sql.DB, id string, effect func(ctx context.Context, tx *sql.Tx) (result string, err error)) (Receipt, error) {
	o := &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	if in.dialect == SQLite {
		o = nil // SQLite has one level
	}
	begin := db.BeginTx
	if in.dialect == MySQL {
		conn, err := withoutAutocommit(ctx, db)
		if err != nil {
			return Receipt{}, fmt.Errorf("inbox: command %q: begin: %w", id, err)
		}
		defer giveBack(ctx, conn)
		begin = conn.BeginTx
	}
	tx, err := begin(ctx, o)
	if err != nil {
		return Receipt{}, fmt.Errorf("inbox: command %q: begin: %w", id, err)
	}
	defer tx.Rollback()
	receipt, err := in.DoTx(ctx, tx, id, effect)
	return in.end(receipt, err, tx.Commit)
}

// DoTx is Do in a transaction that is there, which the caller ends. After an error that comes with a receipt (a *Failure) it
// may be committed, and must be for the receipt to count; after any other error roll it back. An effect's error takes back
// what was done within this call only.
//
// What Do says of errors that end the transaction holds for MySQL as for SQLite, unless autocommit is off for the connection
// (SET autocommit = 0).
//
// In SQLite the transaction must have been begun with BEGIN IMMEDIATE, or this call be the first thing in it: one that has
// only read cannot wait for another that writes.
func (in *Inbox) DoTx(ctx context.Context, tx *sql.Tx, id string, effect func(ctx context.Context, tx *sql.Tx) (result string, err error)) (Receipt, error) {
	return in.run(ctx, sqlTx{tx}, id, func() (string, error) { return effect(ctx, tx) })
}

// PgxTx is what is needed of a pgx.Tx. Tag is pgconn.CommandTag and Row is pgx.Row; the compiler finds them by itself.
type PgxTx[Tag any, Row interface{ Scan(into ...any) error }] interface {
	Exec(ctx context.Context, query string, args ...any) (Tag, error)
	QueryRow(ctx context.Context, query string, args ...any) Row
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// DoPgx is [Inbox.Do] with a pool or a connection of pgx. T is pgx.Tx. The inbox's dialect must be PostgreSQL.
func DoPgx[T PgxTx[Tag, Row], Tag any, Row interface{ Scan(into ...any) error }](
	ctx context.Context, in *Inbox, db interface {
		Begin(ctx context.Context) (T, error)
	}, id string, effect func(ctx context.Context, tx T) (result string, err error),
) (Receipt, error) {
	tx, err := db.Begin(ctx)
	if err != nil {
		return Receipt{}, fmt.Errorf("inbox: command %q: begin: %w", id, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
		defer cancel()
		tx.Rollback(ctx) //nolint:errcheck // the connection is closed when it fails
	}()
	if _, err := tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"); err != nil {
		return Receipt{}, fmt.Errorf("inbox: command %q: begin: %w", id, err)
	}
	receipt, err := DoPgxTx(ctx, in, tx, id, effect)
	return in.end(receipt, err, func() error { return tx.Commit(ctx) })
}

// DoPgxTx is [Inbox.DoTx] for a transaction of pgx.
func DoPgxTx[T PgxTx[Tag, Row], Tag any, Row interface{ Scan(into ...any) error }](
	ctx context.Context, in *Inbox, tx T, id string, effect func(ctx context.Context, tx T) (result string, err error),
) (Receipt, error) {
	if in.dialect != PostgreSQL {
		return Receipt{}, fmt.Errorf("inbox: pgx does not speak the dialect %s", in.dialect)
	}
	return in.run(ctx, pgxTx[Tag, Row]{tx}, id, func() (string, error) { return effect(ctx, tx) })
}

// end commits when there is a receipt.
func (in *Inbox) end(receipt Receipt, err error, commit func() error) (Receipt, error) {
	if receipt.Status == "" {
		return Receipt{}, err
	}
	if failed := commit(); failed != nil {
		return Receipt{}, errors.Join(fmt.Errorf("inbox: command %q: commit: %w", receipt.CommandID, failed), err)
	}
	return receipt, err
}

type sqlTx struct{ *sql.Tx }

func (s sqlTx) exec(ctx context.Context, query string, args ...any) error {
	_, err := s.ExecContext(ctx, query, args...)
	return err
}

func (s sqlTx) read(ctx context.Context, query string, args []any, into ...any) error {
	return s.QueryRowContext(ctx, query, args...).Scan(into...)
}

type pgxTx[Tag any, Row interface{ Scan(into ...any) error }] struct{ PgxTx[Tag, Row] }

func (s pgxTx[Tag, Row]) exec(ctx context.Context, query string, args ...any) error {
	_, err := s.Exec(ctx, query, args...)
	return err
}

func (s pgxTx[Tag, Row]) read(ctx context.Context, query string, args []any, into ...any) error {
	return s.QueryRow(ctx, query, args...).Scan(into...)
}
