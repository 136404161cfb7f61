package sqlite

import (
	"context"
	"errors"

	"github.com/connectd/connectd/core/layout"
)

// neighbours are the other outbox tables that share the receipts.
func (src *Source) neighbours(ctx context.Context, q asker) ([]layout.Neighbour, error) {
	rows, err := q.QueryContext(ctx, `SELECT tbl, coalesce(id_column, '') FROM connectd_outbox WHERE tbl <> ? ORDER BY tbl`, src.s.table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []layout.Neighbour
	for rows.Next() {
		var n layout.Neighbour
		if err := rows.Scan(&n.Table, &n.ID); err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, rows.Err()
}

// lookInto has another table looked into.
func lookInto(n layout.Neighbour, look func(other *Source) error) error {
	if err := n.Check(); err != nil {
		return err
	}
	s := &schema{table: n.Table, cols: layout.Columns{ID: n.ID}}
	return unreadable(n, look(&Source{s: s, text: s.texts()}))
}

// unreadable makes an error an Unread if it is because of the statement's names: the table or its column is not there.
func unreadable(n layout.Neighbour, err error) error {
	var code interface{ Code() int }
	if errors.As(err, &code) && code.Code() == errorCode {
		return layout.Unread{Table: n.Table, Why: err.Error()}
	}
	return err
}

// errorCode is SQLITE_ERROR.
const errorCode = 1
