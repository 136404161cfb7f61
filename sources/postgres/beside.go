package postgres

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/connectd/connectd/core/layout"
)

// neighbours are the other outbox tables that share the receipts.
func (src *Source) neighbours(ctx context.Context, tx pgx.Tx) ([]layout.Neighbour, error) {
	rows, err := tx.Query(ctx, src.text.fill(`SELECT tbl, coalesce(id_column, '') FROM {connectd_outbox} WHERE tbl <> {tbl} ORDER BY tbl`))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[layout.Neighbour])
}

// lookInto has another table looked into. That it cannot be read does no harm to the transaction; a lock that somebody has on it
// is not waited for, and a policy that would hide rows is an error.
func (src *Source) lookInto(ctx context.Context, tx pgx.Tx, n layout.Neighbour, look func(tx pgx.Tx, other *Source) error) error {
	if err := n.Check(); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '1s'; SET LOCAL row_security = off`); err != nil {
			return err
		}
		other, err := src.beside(ctx, tx, n)
		if err == nil {
			err = look(tx, other)
		}
		if err != nil {
			return unreadable(n, err)
		}
		_, err = tx.Exec(ctx, `SET LOCAL lock_timeout TO DEFAULT; SET LOCAL row_security TO DEFAULT`)
		return err
	})
}

// beside is another table as far as the ids of its rows are concerned.
func (src *Source) beside(ctx context.Context, q querier, n layout.Neighbour) (*Source, error) {
	s := &schema{table: tableName{src.s.table.schema, n.Table}, cols: layout.Columns{ID: n.ID}, found: map[string]column{}}
	if err := s.readColumns(ctx, q); err != nil {
		return nil, err
	}
	switch id, there := s.found[n.ID]; {
	case len(s.found) == 0:
		return nil, layout.Unread{Table: n.Table, Why: "it is not there"}
	case !there:
		return nil, layout.Unread{Table: n.Table, Why: "it has no column " + n.ID}
	case !slices.Contains(plainKinds, id.kind):
		return nil, layout.Unread{Table: n.Table, Why: "its column " + n.ID + " is of type " + id.kind}
	}
	return &Source{s: s, text: s.texts()}, nil
}

// unreadable makes an error an Unread if it is because of the table: of class 42, or since others have it locked.
func unreadable(n layout.Neighbour, err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code == duplicateStatement {
		return err
	}
	if strings.HasPrefix(pg.Code, "42") || pg.Code == lockNotAvailable || pg.Code == queryCanceled {
		return layout.Unread{Table: n.Table, Why: pg.Message}
	}
	return err
}
