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

// others calls look for each other outbox table that shares the receipts, and gives those that could not be read: which does
// no harm to the transaction. A lock that somebody has on a table is not waited for, and a policy that would hide rows is an
// error.
func (src *Source) others(ctx context.Context, tx pgx.Tx, look func(tx pgx.Tx, other *Source) error) (unread []layout.Unread, err error) {
	rows, err := tx.Query(ctx, src.text.fill(`SELECT tbl, coalesce(id_column, '') FROM {connectd_outbox} WHERE tbl <> {tbl} ORDER BY tbl`))
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[layout.Neighbour])
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '1s'; SET LOCAL row_security = off`); err != nil {
		return nil, err
	}
	for _, n := range list {
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			other, err := src.beside(ctx, tx, n)
			if err != nil {
				return err
			}
			return unreadable(n, look(tx, other))
		})
		var u layout.Unread
		switch {
		case errors.As(err, &u):
			unread = append(unread, u)
		case err != nil:
			return nil, err
		}
	}
	_, err = tx.Exec(ctx, `SET LOCAL lock_timeout TO DEFAULT; SET LOCAL row_security TO DEFAULT`)
	return unread, err
}

// beside is another table as far as the ids of its rows are concerned.
func (src *Source) beside(ctx context.Context, q querier, n layout.Neighbour) (*Source, error) {
	if err := n.Check(); err != nil {
		return nil, err
	}
	s := &schema{table: tableName{src.s.table.schema, n.Table}, cols: layout.Columns{ID: n.ID}, found: map[string]column{}}
	if err := s.readColumns(ctx, q); err != nil {
		return nil, unreadable(n, err)
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
