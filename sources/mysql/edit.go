package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-sql-driver/mysql"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// Edit gives a dead row other content and makes it pending.
func (src *Source) Edit(ctx context.Context, act core.Act, edit core.Edit) error {
	if err := edit.Check(act.ID); err != nil {
		return err
	}
	return src.change(ctx, act, "edit", again, func(tx *sql.Tx, seq int64) error {
		if err := src.keepRevision(ctx, tx, seq, act); err != nil {
			return err
		}
		return layout.SetContent(&src.s.cols, act.ID, edit, func(column, what string, content []byte) error {
			return src.setContent(ctx, tx, act.ID, column, what, seq, content)
		})
	}, core.Dead)
}

// refusals are the errors with which a table refuses a value, of https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html
// and https://mariadb.com/kb/en/mariadb-error-code-reference/: NULL, a duplicate, out of range, no number, another character
// set (two), too long (two), no JSON (two), and a CHECK in either server.
var refusals = []uint16{1048, 1062, 1264, 1265, 1366, 3988, 1406, 1153, 3140, 3141, 3819, 4025}

// setContent sets a row's column. What the table refuses is the content's fault.
func (src *Source) setContent(ctx context.Context, tx *sql.Tx, id, column, what string, seq int64, content []byte) error {
	c := src.s.found[strings.ToLower(column)]
	var value any = content
	if content != nil && (c.charset != "" || c.kind == "json") {
		if !utf8.Valid(content) { // of which the server may make something else
			return &core.ContentError{ID: id, Why: fmt.Sprintf("column %s takes text, and the %s is not UTF-8", column, what)}
		}
		value = string(content) // as bytes it would not be taken for text
	}
	_, err := tx.ExecContext(ctx, src.text.fill(`UPDATE `+bySeq+` SET `+quote(c.name)+` = ?{keep} WHERE {order} = ?`), value, seq)
	var refused *mysql.MySQLError
	if errors.As(err, &refused) && slices.Contains(refusals, refused.Number) {
		return layout.Refused(id, column, what, refused.Message)
	}
	return err
}

func (src *Source) keepRevision(ctx context.Context, tx *sql.Tx, seq int64, act core.Act) error {
	var n int
	if err := tx.QueryRowContext(ctx, src.text.fill(`SELECT COUNT(*) FROM {revision} WHERE tbl = ? AND seq = ?`), src.s.table.name, seq).Scan(&n); err != nil {
		return fmt.Errorf("count the row's revisions: %w", orInit(err))
	}
	if n >= core.MaxRevisions {
		return core.TooManyRevisions(act.ID)
	}
	var payload blob
	var headers layout.Text
	if err := tx.QueryRowContext(ctx, src.text.fill(`SELECT {payload.text}, {headers.text} FROM `+bySeq+` WHERE {order} = ?`), seq).Scan(&payload, &headers); err != nil {
		return fmt.Errorf("read what the row is: %w", err)
	}
	_, err := tx.ExecContext(ctx, src.text.fill(`INSERT INTO {revision} (tbl, seq, n, at, `+"`by`"+`, why, payload, headers) VALUES (?, ?, ?, {now}, ?, ?, ?, ?)`),
		src.s.table.name, seq, n+1, core.CleanText(act.By), core.CleanText(act.Why), []byte(payload), sql.NullString(headers))
	if err != nil {
		return fmt.Errorf("keep what the row is: %w", err)
	}
	return nil
}

// orInit says of an error that a table is not there what is to be done about it.
func orInit(err error) error {
	if number(err) == noSuchTable {
		return fmt.Errorf("%w: %w", core.ErrNotInitialised, err)
	}
	return err
}

// Revisions returns what a row was before its edits, oldest first.
func (src *Source) Revisions(ctx context.Context, id string) ([]core.Revision, error) {
	var list []core.Revision
	err := src.try(ctx, "revisions", func() error {
		list = nil
		var row core.RowInfo
		found, err := src.one(ctx, src.work, id, "", "", func(scan func(...any) error) error {
			var err error
			row, err = scanInfo(scan)
			return err
		})
		if err != nil {
			return err
		}
		if !found || row.ID != id {
			return core.ErrNoRow
		}
		return orInit(collect(ctx, src.work, func(rows *sql.Rows) error {
			var r core.Revision
			var at instant
			var payload blob
			var headers layout.Text
			if err := rows.Scan(&at, &r.By, &r.Why, &payload, &headers); err != nil {
				return err
			}
			r.At, r.Payload, r.Headers = at.t, payload, headers.String
			list = append(list, r)
			return nil
		}, src.text.fill("SELECT at, `by`, why, payload, headers FROM {revision} WHERE tbl = ? AND seq = ? ORDER BY n"), src.s.table.name, row.Seq))
	})
	return list, err
}
