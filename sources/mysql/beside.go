package mysql

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/connectd/connectd/core/layout"
)

// others calls look for each other outbox table that shares the receipts, and gives those that could not be read.
func (src *Source) others(ctx context.Context, q querier, look func(other *Source) error) (unread []layout.Unread, err error) {
	var list []layout.Neighbour
	err = collect(ctx, q, func(rows *sql.Rows) error {
		var n layout.Neighbour
		err := rows.Scan(&n.Table, &n.ID)
		list = append(list, n)
		return err
	}, src.text.fill(`SELECT tbl, COALESCE(id_column, '') FROM {outbox} WHERE tbl <> {tbl} ORDER BY tbl`))
	if err != nil {
		return nil, err
	}
	for _, n := range list {
		other, err := src.beside(ctx, q, n)
		if err == nil {
			err = unreadable(n, look(other))
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

// beside is another table as far as the ids of its rows are concerned.
func (src *Source) beside(ctx context.Context, q querier, n layout.Neighbour) (*Source, error) {
	if err := n.Check(); err != nil {
		return nil, err
	}
	s := &schema{table: tableName{src.s.table.database, n.Table}, cols: layout.Columns{ID: n.ID}, exists: true, found: map[string]column{}}
	if err := s.readColumns(ctx, q); err != nil {
		return nil, unreadable(n, err)
	}
	switch id, there := s.found[strings.ToLower(n.ID)]; {
	case !there:
		return nil, layout.Unread{Table: n.Table, Why: "no column " + n.ID + " of it can be seen"}
	case !id.canIdentify():
		return nil, layout.Unread{Table: n.Table, Why: "its column " + n.ID + " is " + id.full}
	}
	return &Source{s: s, text: s.texts()}, nil
}

// unreadable makes an error an Unread if it is because of the table, or since others have it locked.
func unreadable(n layout.Neighbour, err error) error {
	var from *mysql.MySQLError
	if !errors.As(err, &from) || !slices.Contains([]uint16{databaseDenied, tableDenied, columnDenied, noSuchTable, noSuchColumn, invalidView, lockWaitTimeout, definitionChanged}, from.Number) {
		return err
	}
	return layout.Unread{Table: n.Table, Why: account.ReplaceAllString(from.Message, "***")}
}
