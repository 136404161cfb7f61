package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

func milliseconds(n int64) time.Duration { return layout.Duration(n, time.Millisecond) }

// jsonOf writes what a statement reads with json_each.
func jsonOf(list any) (string, error) {
	text, err := json.Marshal(list)
	return string(text), err
}

// SaveReceipts stores receipts.
func (src *Source) SaveReceipts(ctx context.Context, list []core.Receipt) ([]core.ReceiptResult, error) {
	call := core.NewReceiptCall(list, nil)
	stored, written := map[core.ReceiptKey]core.Receipt{}, map[core.ReceiptKey]bool{}
	if len(call.Write) == 0 {
		return call.Answers(stored, written), ctx.Err()
	}
	err := src.transact(ctx, "save receipts", func(tx *sql.Tx) error {
		for _, r := range call.Write {
			res, err := tx.ExecContext(ctx, `INSERT INTO connectd_receipt (command_id, consumer, status, result_ref, at) VALUES (?, ?, ?, nullif(?, ''), `+nowMS+`)
				ON CONFLICT DO UPDATE SET status = excluded.status, result_ref = excluded.result_ref, at = excluded.at WHERE status = 'failed' OR status <> 'done' AND excluded.status = 'done'`,
				r.Command, r.Consumer, string(r.Status), r.ResultRef)
			if err != nil {
				return err
			}
			n, err := res.RowsAffected()
			if err != nil {
				return err
			}
			written[r.Key()] = n > 0
		}
		keys, err := jsonOf(call.Write)
		if err != nil {
			return err
		}
		kept, err := src.receiptsWhere(ctx, tx, `(command_id, consumer) IN (SELECT value ->> 'Command', value ->> 'Consumer' FROM json_each(?))`, keys)
		if err != nil {
			return err
		}
		places, err := src.places(ctx, tx, call.Commands())
		for _, r := range kept {
			r.Row = places[r.Command].Row
			stored[r.Key()] = r.Receipt
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return call.Answers(stored, written), nil
}

// receiptsWhere reads those of a condition, which may end with an order and a limit.
func (src *Source) receiptsWhere(ctx context.Context, q asker, where string, args ...any) (layout.Receipts, error) {
	rows, err := q.QueryContext(ctx, `SELECT command_id, consumer, status, coalesce(result_ref, ''), at, coalesce(`+nowMS+` - `+knownTime("at")+`, 0) FROM connectd_receipt WHERE `+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list layout.Receipts
	for rows.Next() {
		var r layout.Receipt
		var at instant
		var age int64
		if err := rows.Scan(&r.Command, &r.Consumer, &r.Status, &r.ResultRef, &at, &age); err != nil {
			return nil, err
		}
		r.At, r.Age = at.t, milliseconds(age)
		list = append(list, r)
	}
	return list, rows.Err()
}

// receiptPage reads receipts in the order of their keys, with the places of their rows.
func (src *Source) receiptPage(ctx context.Context, command string, after core.ReceiptKey, limit int) (layout.Receipts, layout.Places, error) {
	tx, err := src.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // one snapshot
	if err != nil {
		return nil, nil, err
	}
	defer tx.Rollback()
	where, args := `(command_id, consumer) > (?1, ?2)`, []any{after.Command, after.Consumer, limit}
	if command != "" {
		where += ` AND command_id = ?4`
		args = append(args, command)
	}
	list, err := src.receiptsWhere(ctx, tx, where+` ORDER BY command_id, consumer LIMIT ?3`, args...)
	if err != nil || len(list) == 0 {
		return nil, nil, err
	}
	places, err := src.places(ctx, tx, core.ReceiptCommands(list.Plain()))
	list.Put(places)
	return list, places, err
}

// Receipts lists receipts.
func (src *Source) Receipts(ctx context.Context, f core.ReceiptFilter) ([]core.Receipt, error) {
	list, _, err := src.receiptPage(ctx, f.Command, f.After, cmp.Or(f.Limit, 100))
	if err != nil {
		return nil, fmt.Errorf("sqlite: list receipts: %w", err)
	}
	return list.Plain(), nil
}

// places looks up the rows of commands, in the table and then in the others that share the receipts.
func (src *Source) places(ctx context.Context, q asker, commands []string) (layout.Places, error) {
	places := layout.NewPlaces(commands)
	if err := src.find(ctx, q, places, commands); err != nil || len(places.Unknown()) == 0 {
		return places, err
	}
	others, err := src.neighbours(ctx, q)
	if err != nil {
		return nil, err
	}
	return places, places.Elsewhere(others, func(n layout.Neighbour, found layout.Places, commands []string) error {
		return lookInto(n, func(other *Source) error { return other.find(ctx, q, found, commands) })
	})
}

// find notes the rows that the table has or has cleaned, also those whose ids are stored as blobs.
func (src *Source) find(ctx context.Context, q asker, places layout.Places, commands []string) error {
	list, err := jsonOf(commands)
	if err != nil {
		return err
	}
	for _, look := range []struct {
		row  core.RowPlace
		text string
	}{
		{core.RowThere, `SELECT CAST({id} AS TEXT), 0 FROM {table} WHERE {id} IN (SELECT value FROM json_each(?1) WHERE ?2 <> '')
			UNION ALL SELECT CAST({id} AS TEXT), 0 FROM {table} WHERE {id} IN (SELECT CAST(value AS BLOB) FROM json_each(?1))`},
		{core.RowCleaned, `SELECT command_id, {now} - at FROM connectd_cleaned WHERE tbl = ?2 AND command_id IN (SELECT value FROM json_each(?1))`},
	} {
		if err := note(ctx, q, places, look.row, src.text.fill(look.text), list, src.s.table); err != nil {
			return err
		}
	}
	return nil
}

// note notes the rows that a query finds, among those that were asked for.
func note(ctx context.Context, q asker, places layout.Places, row core.RowPlace, query string, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var since int64
		if err := rows.Scan(&id, &since); err != nil {
			return err
		}
		places.Found(id, row, milliseconds(since))
	}
	return rows.Err()
}

// CleanReceipts removes receipts that nobody needs any more.
func (src *Source) CleanReceipts(ctx context.Context, req core.ReceiptsRequest) (core.CleanedReceipts, error) {
	c := core.CleanedReceipts{Removed: map[core.RowPlace]int{}}
	if err := src.mayClean(ctx, src.read, req.Owner); err != nil {
		return c, err
	}
	list, places, err := src.receiptPage(ctx, "", req.After, req.Limit)
	if err != nil {
		return c, fmt.Errorf("sqlite: look for receipts to clean: %w", err)
	}
	if len(list) == 0 {
		return c, nil
	}
	due, c := list.Due(places, req.Retention)
	if len(due) == 0 {
		return c, nil
	}
	var begun time.Time
	err = src.transact(ctx, "clean receipts", func(tx *sql.Tx) error {
		begun = time.Now()
		for place, some := range due {
			n, err := src.removeReceipts(ctx, tx, some, req.Retention)
			if err != nil {
				return err
			}
			c.Removed[place] = n
		}
		return nil
	})
	if !begun.IsZero() {
		c.Held = time.Since(begun)
	}
	return c, err
}

func (src *Source) removeReceipts(ctx context.Context, tx *sql.Tx, some []core.Receipt, retention time.Duration) (int, error) {
	keys, err := jsonOf(some)
	if err != nil {
		return 0, err
	}
	res, err := tx.ExecContext(ctx, `DELETE FROM connectd_receipt WHERE (command_id, consumer) IN (SELECT value ->> 'Command', value ->> 'Consumer' FROM json_each(?1))
		AND at <= `+nowMS+` - ?2`, keys, retention.Milliseconds())
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, `DELETE FROM connectd_cleaned WHERE tbl = ?2 AND command_id IN (SELECT value ->> 'Command' FROM json_each(?1))
		AND NOT EXISTS (SELECT 1 FROM connectd_receipt r WHERE r.command_id = connectd_cleaned.command_id)`, keys, src.s.table)
	return int(n), err
}
