package sqlite

import (
	"context"
	"errors"

	"github.com/connectd/connectd/core/layout"
)

// others calls look for each other outbox table that shares the receipts, and gives those that could not be read.
func (src *Source) others(ctx context.Context, q asker, look func(other *Source) error) (unread []layout.Unread, err error) {
	list, err := src.neighbours(ctx, q)
	if err != nil {
		return nil, err
	}
	for _, n := range list {
		err := n.Check()
		if err == nil {
			s := &schema{table: n.Table, cols: layout.Columns{ID: n.ID}}
			err = unreadable(n, look(&Source{s: s, text: s.texts()}))
		}
		var u layout.Unread
		switch {
		case errors.As(err, &u):
			unread = append(unread, u)
		case err != nil:
			return nil, err
		}
	}
	return unread, nil
}

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
