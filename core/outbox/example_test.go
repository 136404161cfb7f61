package outbox_test

import (
	"context"
	"database/sql"
	"errors"

	"github.com/connectd/connectd/core/outbox"
)

type Order struct{ ID, Customer, Tenant string }

func (o Order) JSON() []byte { return []byte(`{"order":"` + o.ID + `"}`) }

func placeOrder(ctx context.Context, db *sql.DB, table *outbox.Table, order Order) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, customer) VALUES ($1, $2)", order.ID, order.Customer); err != nil {
		return err
	}
	err = table.Enqueue(ctx, tx, outbox.Message{
		ID: "order-placed-" + order.ID, Key: order.Customer, Type: "order.placed", Payload: order.JSON(),
		Headers: map[string]string{"tenant": order.Tenant},
	})
	if errors.Is(err, outbox.ErrDuplicate) {
		return nil // it has been placed; the transaction is rolled back
	}
	if err != nil {
		return err
	}
	return tx.Commit()
}
