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

// neighbours are the other outbox tables that share the receipts.
func (src *Source) neighbours(ctx context.Context, q querier) (list []layout.Neighbour, err error) {
	err = collect(ctx, q, func(rows *sql.Rows) error {
		var n layout.Neighbour
		err := rows.Scan(&n.Table, &n.ID)
		list = append(list, n)
		return err
	}, src.text.fill(`SELECT tbl, COALESCE(id_column, '') FROM {outbox} WHERE tbl <> {tbl} ORDER BY tbl`))
	return list, err
}

// lookInto has another table looked into.
func (src *Source) lookInto(ctx context.Context, q querier, n layout.Neighbour, look func(other *Source) error) error {
	if err := n.Check(); err != nil {
		return err
	}
	other, err := src.beside(ctx, q, n)
	if err == nil {
		err = look(other)
	}
	return unreadable(n, err)
}

// beside is another table as far as the ids of its rows are concerned.
func (src *Source) beside(ctx context.Context, q querier, n layout.Neighbour) (*Source, error) {
	s := &schema{table: tableName{src.s.table.database, n.Table}, cols: layout.Columns{ID: n.ID}, exists: true, found: map[string]column{}}
	if err := s.readColumns(ctx, q); err != nil {
		return nil, err
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
