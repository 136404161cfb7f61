package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/connectd/connectd/core"
)

// repeats is how often a transaction that the server rolled back for the sake of another is tried again.
const repeats = 5

// The errors that are told apart, by number: texts are translated.
// https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html
// https://mariadb.com/kb/en/mariadb-error-code-reference/
const (
	recordChanged      = 1020 // MariaDB, under snapshot isolation
	accessDenied       = 1227
	noSuchColumn       = 1054
	noSuchTable        = 1146
	lockWaitTimeout    = 1205 // the statement alone is undone
	deadlock           = 1213 // the whole transaction is
	invalidView        = 1356
	definitionChanged  = 1412 // since the transaction's snapshot
	optionPrevents     = 1290 // --read-only, --super-read-only
	needReprepare      = 1615
	readOnlyTx         = 1792
	readOnlyMode       = 1836
	instantUnsupported = 1845
	onlineUnsupported  = 1846
)

var errReadOnly = errors.New("the server is read-only: it is a replica, or a former primary; reads and writes must both go to the primary")

// number is the server's code for an error, 0 for one that does not come from it.
func number(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// querier is a pool, a connection or a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// try runs f, which is one statement or one transaction. f is run again when the server is known to have undone all of it,
// and for no other reason: whoever calls decides what an unknown outcome means.
func (src *Source) try(ctx context.Context, what string, f func() error) error {
	for n := 0; ; n++ {
		err := f()
		if err == nil || isAnswer(err) {
			return err
		}
		switch number(err) {
		case deadlock, lockWaitTimeout, needReprepare, recordChanged:
			if n < repeats && pause(ctx, rand.N(time.Duration(n+1)*10*time.Millisecond)) == nil {
				src.repeated.Add(1)
				continue
			}
		case optionPrevents, readOnlyTx, readOnlyMode:
			// The server became a replica, which no connection to it survives, though each answers.
			src.from.doubts.Add(1)
			err = fmt.Errorf("%w: %w", errReadOnly, err)
		}
		return fmt.Errorf("mysql: %s: %w", what, discreet(err))
	}
}

// isAnswer tells results from failures.
func isAnswer(err error) bool {
	var state *core.StateError
	var content *core.ContentError
	return errors.Is(err, core.ErrLeaseNotOwned) || errors.Is(err, core.ErrNoRow) || errors.Is(err, core.ErrLocked) || errors.As(err, &state) || errors.As(err, &content)
}

// transact runs f in a transaction, as often as try finds right.
func (src *Source) transact(ctx context.Context, pool *sql.DB, what string, f func(tx *sql.Tx) error) error {
	return src.try(ctx, what, func() error {
		tx, err := pool.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := f(tx); err != nil {
			tx.Rollback()
			return err
		}
		return tx.Commit()
	})
}

// collect runs a query and scans each of its rows.
func collect(ctx context.Context, q querier, scan func(rows *sql.Rows) error, query string, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// pause waits d.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
