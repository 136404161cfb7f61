package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// lockPause is how long to wait before asking again for a lock that somebody else has.
const lockPause = 500 * time.Millisecond

// ddlSetup: a statement that changes the table waits for the transactions that use it, and whoever comes after it waits as
// well. So it gives up soon, and is tried again.
const ddlSetup = `SET lock_wait_timeout = 2`

// takeTime lets statements take as long as they do, whatever the server or the DSN has: all rows of a large table are read,
// and indexes are made of them.
const takeTime = `SET autocommit = 1 /*M! , max_statement_time = 0 */ /*!80000 , max_execution_time = 0 */`

// rowVersionsExhausted is MySQL's answer when too many columns were added at once since the table was built.
const rowVersionsExhausted = 4092

// Apply carries out a plan. Steps that somebody else has done since are left out; when the plan no longer fits the database,
// nothing is changed. These servers commit each change of a table by itself, so a failure half-way leaves some steps done:
// the next plan has the others. opt must be what the plan was made with. One Apply at a time works on a table, also from
// several machines.
func Apply(ctx context.Context, cfg Config, opt InitOptions, plan core.Plan) error {
	if len(plan.Steps) == 0 {
		return nil
	}
	err := atLeisure(ctx, cfg, func(conn *sql.Conn) error { return apply(ctx, conn, cfg, opt, plan) })
	if err != nil {
		return fmt.Errorf("mysql: apply: %w", discreet(err))
	}
	return nil
}

// atLeisure runs f on a connection of its own whose statements may take their time.
func atLeisure(ctx context.Context, cfg Config, f func(conn *sql.Conn) error) error {
	return withConn(ctx, cfg, func(conn *sql.Conn) error {
		if _, err := conn.ExecContext(ctx, takeTime); err != nil {
			return err
		}
		return f(conn)
	})
}

func apply(ctx context.Context, conn *sql.Conn, cfg Config, opt InitOptions, plan core.Plan) error {
	if _, err := conn.ExecContext(ctx, ddlSetup); err != nil {
		return err
	}
	if err := lockOut(ctx, conn, cfg, opt.Tell); err != nil { // the lock ends with the connection
		return err
	}
	steps, err := stepsNow(ctx, conn, cfg, opt, plan)
	if err != nil {
		return err
	}
	for _, step := range steps {
		say := func(context.Context) string { return "still at it: " + layout.Brief(step.Why) }
		err := layout.Watch(ctx, opt.Tell, say, func() error { return runStep(ctx, conn, step, opt.Tell) })
		if err != nil {
			return fmt.Errorf("%s: %w", step.SQL, err)
		}
	}
	return nil
}

// lockOut waits until no other Apply works on the table. Locks by name are the server's, not the database's.
func lockOut(ctx context.Context, conn *sql.Conn, cfg Config, tell func(string)) error {
	var database string
	if err := conn.QueryRowContext(ctx, `SELECT database()`).Scan(&database); err != nil {
		return err
	}
	table, _, err := cfg.resolve()
	if err != nil {
		return err
	}
	if table.database == "" {
		table.database = database
	}
	sum := sha256.Sum256([]byte(strings.ToLower(table.quoted())))
	name := "connectd init " + hex.EncodeToString(sum[:16])
	for {
		var got sql.NullBool
		if err := conn.QueryRowContext(ctx, `SELECT GET_LOCK(?, 2)`, name).Scan(&got); err != nil {
			return fmt.Errorf("lock out other inits: %w", err)
		}
		if got.Bool {
			return nil
		}
		if tell != nil {
			tell("waits for another init to end" + who(ctx, conn, `SELECT IS_USED_LOCK(?), NULL`, name))
			tell = nil
		}
		if err := pause(ctx, lockPause); err != nil {
			return fmt.Errorf("another init is at work: %w", err)
		}
	}
}

// stepsNow is what is still to be done of a plan.
func stepsNow(ctx context.Context, q querier, cfg Config, opt InitOptions, plan core.Plan) ([]core.PlanStep, error) {
	steps, err := planOn(ctx, q, cfg, opt)
	if err != nil {
		return nil, err
	}
	for _, step := range steps {
		if !slices.ContainsFunc(plan.Steps, func(s core.PlanStep) bool { return s.SQL == step.SQL }) {
			return nil, fmt.Errorf("table %s has changed since the plan was made: plan again", cfg.Table)
		}
	}
	return steps, nil
}

// oldestTransaction is all that is known of who may hold a lock on the table; it takes the PROCESS privilege.
const oldestTransaction = `SELECT trx_mysql_thread_id, DATE_FORMAT(CONVERT_TZ(trx_started, @@global.time_zone, '+00:00'), '%Y-%m-%d %H:%i:%sZ')
	FROM information_schema.innodb_trx WHERE trx_mysql_thread_id <> CONNECTION_ID() ORDER BY trx_started LIMIT 1`

// who names a connection that a query finds, and since when it does what it does; "" when the server does not tell.
func who(ctx context.Context, conn *sql.Conn, query string, args ...any) string {
	var id sql.NullInt64
	var since sql.NullString
	if err := conn.QueryRowContext(ctx, query, args...).Scan(&id, &since); err != nil || !id.Valid {
		return ""
	}
	text := fmt.Sprintf(" (connection %d", id.Int64)
	if since.Valid {
		text += ", since " + since.String
	}
	return text + ")"
}

// runStep runs one step, again and again while it does not get its lock.
func runStep(ctx context.Context, conn *sql.Conn, step core.PlanStep, tell func(string)) error {
	for {
		_, err := conn.ExecContext(ctx, step.SQL)
		switch number(err) {
		case lockWaitTimeout:
			if tell != nil {
				tell("waits for transactions that use the table" + who(ctx, conn, oldestTransaction) + ": " + layout.Brief(step.Why))
				tell = nil
			}
			if pauseErr := pause(ctx, lockPause); pauseErr != nil {
				return errors.Join(pauseErr, err)
			}
			continue
		case instantUnsupported, onlineUnsupported, rowVersionsExhausted:
			return fmt.Errorf("the server cannot do this while others write to the table (%w): run it without its ALGORITHM and LOCK when they can wait as long as it takes to copy the table, then init again", err)
		}
		return err
	}
}
