package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/connectd/connectd/core"
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
	srv, conn, err := reach(ctx, cfg)
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
	if err := lockOut(ctx, guard); err != nil {
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
		if err := runStep(ctx, conn, step.SQL); err != nil {
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
func lockOut(ctx context.Context, conn *pgx.Conn) error {
	for {
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
