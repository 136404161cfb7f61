package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// Edit gives a dead row other content and makes it pending.
func (src *Source) Edit(ctx context.Context, act core.Act, edit core.Edit) error {
	if err := edit.Check(act.ID); err != nil {
		return err
	}
	return src.change(ctx, act, "edit", again, func(tx pgx.Tx, seq int64) error {
		if err := src.keepRevision(ctx, tx, seq, act); err != nil {
			return err
		}
		return layout.SetContent(&src.s.cols, act.ID, edit, func(column, what string, content []byte) error {
			return src.setContent(ctx, tx, act.ID, column, what, seq, content)
		})
	}, core.Dead)
}

// setContent sets a row's column. What the table refuses is the content's fault.
func (src *Source) setContent(ctx context.Context, tx pgx.Tx, id, column, what string, seq int64, content []byte) error {
	value := `$2::bytea`
	if kind := src.s.found[column].kind; kind != "bytea" {
		value = `convert_from($2::bytea, 'UTF8')::` + castTo(kind)
	}
	_, err := tx.Exec(ctx, src.text.fill(`UPDATE {table} SET `+quote(column)+` = `+value+` WHERE {order} = $1::bigint`), seq, content)
	var refused *pgconn.PgError
	// Class 22 is of data, 23 of constraints: https://www.postgresql.org/docs/current/errcodes-appendix.html
	if errors.As(err, &refused) && (refused.Code[:2] == "22" || refused.Code[:2] == "23") {
		return layout.Refused(id, column, what, refused.Message)
	}
	return err
}

func (src *Source) keepRevision(ctx context.Context, tx pgx.Tx, seq int64, act core.Act) error {
	var n int
	err := tx.QueryRow(ctx, src.text.fill(`SELECT count(*) FROM {connectd_revision} WHERE tbl = $1::text AND seq = $2::bigint`), src.s.table.name, seq).Scan(&n)
	if err != nil {
		return fmt.Errorf("count the row's revisions: %w", orInit(err))
	}
	if n >= core.MaxRevisions {
		return core.TooManyRevisions(act.ID)
	}
	var payload []byte
	var headers pgtype.Text
	if err := tx.QueryRow(ctx, src.text.fill(`SELECT {bytes}, {headers}::text FROM {table} WHERE {order} = $1::bigint`), seq).Scan(&payload, &headers); err != nil {
		return fmt.Errorf("read what the row is: %w", err)
	}
	_, err = tx.Exec(ctx, src.text.fill(`INSERT INTO {connectd_revision} (tbl, seq, n, at, by, why, payload, headers)
		VALUES ($1::text, $2::bigint, $3::integer, {now}, $4::text, $5::text, $6::bytea, $7::text)`),
		src.s.table.name, seq, n+1, src.clean(act.By), src.clean(act.Why), payload, headers)
	if err != nil {
		return fmt.Errorf("keep what the row is: %w", err)
	}
	return nil
}

// orInit says of an error that a table is not there what is to be done about it.
func orInit(err error) error {
	if sqlState(err) == undefinedTable {
		return fmt.Errorf("%w: %w", core.ErrNotInitialised, err)
	}
	return err
}

// Revisions returns what a row was before its edits, oldest first.
func (src *Source) Revisions(ctx context.Context, id string) ([]core.Revision, error) {
	text := src.text.fill(`SELECT r.at, r.by, r.why, r.payload, r.headers
		FROM (SELECT {order}::bigint AS connectd_seq FROM {table} WHERE ` + src.byID(`$2`) + `) o LEFT JOIN {connectd_revision} r ON r.tbl = $1::text AND r.seq = connectd_seq ORDER BY r.n`)
	var list []core.Revision
	err := src.run(ctx, src.work, "revisions", func(q querier) error {
		list = nil
		there := false
		rows, err := q.Query(ctx, text, src.s.table.name, id)
		if err == nil {
			var at pgtype.Timestamptz
			var by, why, headers pgtype.Text
			var payload []byte
			_, err = pgx.ForEachRow(rows, []any{&at, &by, &why, &payload, &headers}, func() error {
				if there = true; by.Valid {
					list = append(list, core.Revision{At: utc(at), By: by.String, Why: why.String, Payload: payload, Headers: headers.String})
				}
				return nil
			})
		}
		if err != nil && noRow(err) || err == nil && !there {
			return core.ErrNoRow
		}
		return orInit(err)
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}
