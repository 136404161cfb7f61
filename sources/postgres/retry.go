package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connectd/connectd/core"
)

// repeats is how often a transaction that the server rolled back for the sake of another is tried again.
const repeats = 5

// The errors that are told apart, by SQLSTATE: texts are translated.
// https://www.postgresql.org/docs/current/errcodes-appendix.html
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	featureNotSupported  = "0A000" // a cached plan must not change its result type
	noSuchStatement      = "26000" // a prepared statement is gone: a pooler gave us another session
	duplicateStatement   = "42P05" // or one that has it already
	readOnly             = "25006"
	lockNotAvailable     = "55P03"
	queryCanceled        = "57014" // it took too long
	invalidText          = "22P02" // no value of its type
	outOfRange           = "22003"
	undefinedTable       = "42P01"
	invalidBytes         = "22021" // no text
	untranslatable       = "22P05" // no text in the database's encoding
	protocolViolation    = "08P01" // also what a pooler says when it lost its server, and nobody knows what was done
)

// sqlState is the server's code for an error, "" for one that does not come from it.
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// querier is a pool, a connection or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// try runs f, which is one statement or one transaction. f is run again when the server is known to have done nothing,
// and for no other reason: whoever calls decides what an unknown outcome means.
func (src *Source) try(ctx context.Context, what string, f func() error) error {
	fresh := false
	for n := 0; ; n++ {
		err := f()
		if err == nil || isAnswer(err) {
			return err
		}
		switch sqlState(err) {
		case serializationFailure, deadlockDetected:
			if n < repeats && pause(ctx, rand.N(time.Duration(n+1)*10*time.Millisecond)) == nil {
				continue
			}
		case featureNotSupported, noSuchStatement, duplicateStatement:
			// The table changed under a prepared statement: those of all connections go.
			if src.reset(); !fresh && ctx.Err() == nil {
				fresh = true
				continue
			}
		case readOnly:
			// The server became a standby, which no connection to it survives, though each answers.
			src.reset()
		}
		return fmt.Errorf("postgres: %s: %w", what, discreet(err))
	}
}

// isAnswer tells results from failures.
func isAnswer(err error) bool {
	var state *core.StateError
	var content *core.ContentError
	return errors.Is(err, core.ErrLeaseNotOwned) || errors.Is(err, core.ErrNoRow) || errors.As(err, &state) || errors.As(err, &content)
}

// reset closes all connections, those in use when they come back.
func (src *Source) reset() {
	src.work.Reset()
	src.keep.Reset()
}

// begin pins what our statements rely on, whatever the session has: each sees what was committed before it began, the
// planner keeps to the indexes, bytes come as the client reads them, and a worker that vanishes does not keep its
// locks.
const begin = `BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off;
	SET LOCAL bytea_output = 'hex'; SET LOCAL idle_in_transaction_session_timeout = '10s'`

// durable makes the transaction it is part of outlive a crash of the server, also where a role or database does
// without: an announcement that is lost would be sent again without the mark. As a setting of the transaction it works
// through a pooler, and being read at the commit it may come at any place.
const durable = "CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END"

// run runs one statement, as often as try finds right. Behind a pooler, where the session has no settings of ours, it
// is in a transaction that has them.
func (src *Source) run(ctx context.Context, pool *pgxpool.Pool, what string, f func(q querier) error) error {
	return src.try(ctx, what, func() error {
		if src.pooled {
			return inTx(ctx, pool, func(tx pgx.Tx) error { return f(tx) })
		}
		return f(pool)
	})
}

// transact runs f in a transaction, as often as try finds right.
func (src *Source) transact(ctx context.Context, pool *pgxpool.Pool, what string, f func(tx pgx.Tx) error) error {
	return src.try(ctx, what, func() error { return inTx(ctx, pool, f) })
}

func inTx(ctx context.Context, pool *pgxpool.Pool, f func(tx pgx.Tx) error) error {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin})
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		tx.Rollback(ctx)
		return err
	}
	return tx.Commit(ctx)
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
