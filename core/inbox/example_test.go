package inbox_test

import (
	"context"
	"database/sql"
	"log"

	"github.com/connectd/connectd/core/inbox"
)

type Trip struct {
	Owner string
	Price int
}

func lockBudget(ctx context.Context, db *sql.DB, billing *inbox.Inbox, id string, trip Trip) error {
	receipt, err := billing.Do(ctx, db, id, func(ctx context.Context, tx *sql.Tx) (string, error) {
		locked, err := tx.ExecContext(ctx, "UPDATE budgets SET locked = locked + $1 WHERE owner = $2 AND locked + $1 <= total", trip.Price, trip.Owner)
		if err != nil {
			return "", err
		}
		n, err := locked.RowsAffected()
		if err == nil && n == 0 {
			err = &inbox.Failure{Reason: "the budget does not suffice"}
		}
		return "budgets/" + trip.Owner, err
	})
	if err != nil {
		return err // do not acknowledge, or reject
	}
	log.Printf("%s is %s since %s, repeat: %v", id, receipt.Status, receipt.At, receipt.Repeat)
	return nil // acknowledge
}
