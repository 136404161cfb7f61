package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// Edit gives a dead row other content and makes it pending. A payload that is text stays text, and a blob a blob.
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

// setContent sets a row's column. What the table refuses is the content's fault.
func (src *Source) setContent(ctx context.Context, tx *sql.Tx, id, column, what string, seq int64, content []byte) error {
	value := any(sql.NullString{String: string(content), Valid: content != nil})
	if what == "payload" {
		var err error
		if value, err = src.payloadAs(ctx, tx, id, seq, content); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, src.text.fill(`UPDATE {table} SET `+quote(column)+` = ?2 WHERE {order} = ?1`), seq, value)
	var refused interface{ Code() int }
	if errors.As(err, &refused) {
		switch refused.Code() & 0xff {
		case constraintCode, mismatchCode, tooBigCode:
			return layout.Refused(id, column, what, err.Error())
		}
	}
	return err
}

// payloadAs is a payload in the storage class of the row's own.
func (src *Source) payloadAs(ctx context.Context, tx *sql.Tx, id string, seq int64, payload []byte) (any, error) {
	var class string
	if err := tx.QueryRowContext(ctx, src.text.fill(`SELECT typeof({payload}) FROM {table} WHERE {order} = ?`), seq).Scan(&class); err != nil {
		return nil, fmt.Errorf("read what kind of payload the row has: %w", err)
	}
	isText := utf8.Valid(payload) && !bytes.Contains(payload, []byte{0})
	switch {
	case class == "text" && !isText:
		return nil, &core.ContentError{ID: id, Why: fmt.Sprintf("column %s has text, and the payload is not UTF-8 or has a NUL", src.s.cols.Payload)}
	case class != "blob" && isText:
		return string(payload), nil
	}
	return payload, nil
}

// The primary result codes of https://www.sqlite.org/rescode.html with which a table refuses a value.
const (
	tooBigCode     = 18
	constraintCode = 19
	mismatchCode   = 20
)

func (src *Source) keepRevision(ctx context.Context, tx *sql.Tx, seq int64, act core.Act) error {
	var n int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM connectd_revision WHERE tbl = ? AND seq = ?`, src.s.table, seq).Scan(&n); err != nil {
		return fmt.Errorf("count the row's revisions: %w", orInit(err))
	}
	if n >= core.MaxRevisions {
		return core.TooManyRevisions(act.ID)
	}
	_, err := tx.ExecContext(ctx, src.text.fill(`INSERT INTO connectd_revision (tbl, seq, n, at, by, why, payload, headers)
		SELECT ?1, {order}, ?3, {now}, ?4, ?5, CAST({payload} AS BLOB), CAST({headers} AS TEXT) FROM {table} WHERE {order} = ?2`),
		src.s.table, seq, n+1, core.CleanText(act.By), core.CleanText(act.Why))
	if err != nil {
		return fmt.Errorf("keep what the row is: %w", err)
	}
	return nil
}

// orInit says of an error that a table is not there what is to be done about it. SQLite has no code for it.
func orInit(err error) error {
	if strings.Contains(err.Error(), "no such table") {
		return fmt.Errorf("%w: %w", core.ErrNotInitialised, err)
	}
	return err
}

// Revisions returns what a row was before its edits, oldest first.
func (src *Source) Revisions(ctx context.Context, id string) ([]core.Revision, error) {
	list, err := src.revisions(ctx, id)
	if err != nil && !errors.Is(err, core.ErrNoRow) {
		return nil, fmt.Errorf("sqlite: revisions: %w", err)
	}
	return list, err
}

func (src *Source) revisions(ctx context.Context, id string) ([]core.Revision, error) {
	rows, err := src.read.QueryContext(ctx, src.text.fill(`SELECT r.at, r.by, r.why, r.payload, r.headers
		FROM (SELECT {order} AS connectd_seq FROM {table} WHERE `+byID(2)+`) LEFT JOIN connectd_revision r ON r.tbl = ?1 AND r.seq = connectd_seq ORDER BY r.n`), src.s.table, id)
	if err != nil {
		return nil, orInit(err)
	}
	defer rows.Close()
	there := false
	var list []core.Revision
	for rows.Next() {
		there = true
		var at instant
		var by, why, headers layout.Text
		var payload blob
		if err := rows.Scan(&at, &by, &why, &payload, &headers); err != nil {
			return nil, err
		}
		if by.Valid {
			list = append(list, core.Revision{At: at.t, By: by.String, Why: why.String, Payload: payload, Headers: headers.String})
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if !there {
		return nil, core.ErrNoRow
	}
	return list, nil
}
