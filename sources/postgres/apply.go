package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// lockPause is how long to wait before asking again for a lock that somebody else has.
const lockPause = 500 * time.Millisecond

// initLock is the advisory lock of whoever applies a plan.
const initLock = int64(0x636f6e6e65637464)

// numberLock is the advisory lock of the session that numbers rows.
const numberLock = initLock + 1

// Apply carries out a plan. Steps that somebody else has done since are left out; when the plan no longer fits the
// database, nothing is changed. Making an index beside running applications cannot be part of a transaction, so a
// failure half-way leaves some steps done: the next plan has the others. opt must be what the plan was made with. One
// Apply at a time works on a database.
func Apply(ctx context.Context, cfg Config, opt InitOptions, plan core.Plan) error {
	if len(plan.Steps) == 0 {
		return nil
	}
	if err := apply(ctx, cfg, opt, plan); err != nil {
		return fmt.Errorf("postgres: apply: %w", err)
	}
	return nil
}

func apply(ctx context.Context, cfg Config, opt InitOptions, plan core.Plan) error {
	srv, conn, err := reachTelling(ctx, cfg, opt.Tell)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	// A session's lock would not survive a pooler, so a transaction on a connection of its own holds it. It is idle, which
	// keeps nobody from making an index.
	guard, err := srv.dial(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer guard.Close(context.WithoutCancel(ctx))
	if err := lockOut(ctx, guard, opt.Tell); err != nil {
		return err
	}
	if err := srv.takeTime(ctx, conn); err != nil {
		return err
	}
	steps, err := stepsNow(ctx, conn, cfg, opt, plan)
	if err != nil {
		return err
	}
	for _, step := range steps {
		say := func(ctx context.Context) string {
			if others := srv.blockers(ctx, conn.PgConn().PID()); others != "" {
				return "waits for a lock that others have (" + others + "): " + layout.Brief(step.Why)
			}
			return "still at it: " + layout.Brief(step.Why)
		}
		err := layout.Watch(ctx, opt.Tell, say, func() error { return runStep(ctx, conn, step.SQL) })
		if err != nil {
			return fmt.Errorf("%s: %w", step.SQL, err)
		}
	}
	return nil
}

// takeTime lets statements of a session that is ours take as long as they do: all rows of a large table are counted, and
// indexes are made of them.
func (s *server) takeTime(ctx context.Context, conn *pgx.Conn) error {
	if s.pooled {
		return nil
	}
	_, err := conn.Exec(ctx, "SET statement_timeout = 0; SET enable_seqscan = on")
	return err
}

// lockOut waits until no other Apply works on the database. It asks again and again, since a statement that waits has a
// snapshot, and the other's CREATE INDEX CONCURRENTLY waits for that.
func lockOut(ctx context.Context, conn *pgx.Conn, tell func(string)) error {
	for begun := time.Now(); ; {
		var locked bool
		_, err := conn.Exec(ctx, "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0")
		if err == nil {
			// In the other protocol the statement's portal would stay, and with it its snapshot.
			err = conn.QueryRow(ctx, fmt.Sprintf("SELECT pg_try_advisory_xact_lock(%d)", initLock), pgx.QueryExecModeSimpleProtocol).Scan(&locked)
		}
		if err == nil && !locked {
			_, err = conn.Exec(ctx, "ROLLBACK")
		}
		if err != nil {
			return fmt.Errorf("lock out other inits: %w", err)
		}
		if locked {
			return nil
		}
		if tell != nil && time.Since(begun) > lockTell {
			tell("waits for another init to end: " + named(ctx, conn, lockHolder, initLock>>32, initLock&0xffffffff))
			tell = nil
		}
		if err := pause(ctx, lockPause); err != nil {
			return fmt.Errorf("another init is at work: %w", err)
		}
	}
}

// lockTell is how long to wait for another init without a word.
const lockTell = 2 * time.Second

// session is how a row a of pg_stat_activity is named.
const session = `coalesce(string_agg(concat_ws(', ', 'process ' || a.pid, 'application ' || quote_ident(a.application_name), a.state,
	'since ' || to_char(a.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')), '; '), '')`

// lockHolder: the two halves of an advisory lock's number. blocking: a process.
const (
	lockHolder = `SELECT ` + session + ` FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.locktype = 'advisory' AND l.granted AND l.classid::bigint = $1 AND l.objid::bigint = $2 AND l.objsubid = 1`
	blocking = `SELECT ` + session + ` FROM pg_stat_activity a WHERE a.pid = ANY (pg_blocking_pids($1::int))`
)

// named asks for names of sessions. In the other protocol a portal would keep a snapshot.
func named(ctx context.Context, conn *pgx.Conn, query string, args ...any) string {
	var who string
	if err := conn.QueryRow(ctx, query, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...).Scan(&who); err != nil {
		return ""
	}
	return who
}

// blockers names those who have what a process waits for; "" when it waits for nobody, or a pooler hides its number. A step
// gives up its place after a while and comes back, so it is asked for some time.
func (s *server) blockers(ctx context.Context, pid uint32) string {
	if s.pooled {
		return ""
	}
	conn, err := s.dial(ctx)
	if err != nil {
		return ""
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for range 10 {
		if who := named(ctx, conn, blocking, int64(pid)); who != "" {
			return who
		}
		if pause(ctx, lockPause/2) != nil {
			return ""
		}
	}
	return ""
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

// runStep runs one step, again and again while it does not get its lock.
func runStep(ctx context.Context, conn *pgx.Conn, sql string) error {
	for {
		_, err := conn.Exec(ctx, sql)
		if err == nil || sqlState(err) != lockNotAvailable {
			return err
		}
		if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
			return err
		}
		if pauseErr := pause(ctx, lockPause); pauseErr != nil {
			return errors.Join(pauseErr, err)
		}
	}
}
