package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/connectd/connectd/core"
)

// Apply carries out a plan in one transaction, creating the file if need be. Steps that somebody else has done since
// are left out; when the plan no longer fits the file, nothing is changed.
func Apply(ctx context.Context, cfg Config, plan core.Plan) error {
	if len(plan.Steps) == 0 {
		return nil
	}
	if _, err := cfg.resolve(); err != nil {
		return err
	}
	db := connect(cfg.Path, access{mode: "rwc", busy: cfg.busy()})
	defer db.Close()
	// The journal mode cannot be changed in a transaction, and changing it twice does no harm.
	if slices.ContainsFunc(plan.Steps, func(s core.PlanStep) bool { return s.SQL == setWAL }) {
		if err := enterWAL(ctx, db, cfg.busy()); err != nil {
			return fmt.Errorf("apply: %w", err)
		}
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("apply: lock the file: %w", err)
	}
	defer tx.Rollback()
	if err := applyIn(ctx, tx, cfg, plan); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	return nil
}

func applyIn(ctx context.Context, tx *sql.Tx, cfg Config, plan core.Plan) error {
	s, err := inspect(ctx, tx, cfg)
	if err != nil {
		return err
	}
	// What is to be done now is known but for the answer the plan was made with: it holds for either or for none.
	needed := map[string]bool{}
	fits := false
	planned := map[string]bool{}
	for _, step := range plan.Steps {
		planned[step.SQL] = true
	}
	for _, existing := range []string{"", "pending", "published"} {
		steps, err := s.plan(InitOptions{Existing: existing})
		if err != nil {
			continue
		}
		all := true
		for _, step := range steps {
			needed[step.SQL] = true
			all = all && (planned[step.SQL] || step.SQL == setWAL)
		}
		fits = fits || all
	}
	if !fits {
		return fmt.Errorf("table %s has changed since the plan was made: plan again", cfg.Table)
	}
	for _, step := range plan.Steps {
		if !needed[step.SQL] || step.SQL == setWAL {
			continue
		}
		if _, err := tx.ExecContext(ctx, step.SQL); err != nil {
			return fmt.Errorf("apply %q: %w", step.SQL, err)
		}
	}
	return nil
}
