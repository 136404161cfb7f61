package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// SaveReceipts stores receipts: whoever stores one of a command and a consumer at the same time waits, and finds it.
func (src *Source) SaveReceipts(ctx context.Context, list []core.Receipt) ([]core.ReceiptResult, error) {
	call := core.NewReceiptCall(list, fits)
	stored, written := map[core.ReceiptKey]core.Receipt{}, map[core.ReceiptKey]bool{}
	if len(call.Write) == 0 {
		return call.Answers(stored, written), ctx.Err()
	}
	err := src.transact(ctx, src.work, "save receipts", func(tx *sql.Tx) error {
		clear(written)
		for some := range slices.Chunk(call.Write, chunk) {
			if err := src.saveSome(ctx, tx, some, written); err != nil {
				return err
			}
		}
		kept, err := src.receiptsOf(ctx, tx, call.Commands())
		for _, r := range kept {
			stored[r.Key()] = r.Receipt
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	err = src.try(ctx, "look up rows", func() error {
		places, err := src.places(ctx, src.work, call.Commands())
		for key, r := range stored {
			r.Row = places[r.Command].Row
			stored[key] = r
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return call.Answers(stored, written), nil
}

// fits refuses names that the server would take for others: it compares text as if it were filled up with spaces.
func fits(r core.Receipt) error {
	if strings.HasSuffix(r.Command, " ") || strings.HasSuffix(r.Consumer, " ") {
		return errors.New("neither the command's id nor the consumer's name may end with a space")
	}
	return nil
}

// stays says that the receipt that is there stays. The server takes names for equal that differ in blanks at their end, in
// tables that are older than their check of that: such a receipt is another one. LIKE compares to the letter.
const stays = `status LIKE 'done' OR NOT status LIKE 'failed' AND VALUES(status) = 'failed'
	OR LENGTH(command_id) <> LENGTH(VALUES(command_id)) OR LENGTH(consumer) <> LENGTH(VALUES(consumer))`

// saveSome writes receipts whose place none has that stays. A receipt that was written is marked by its time, which
// it gets when it is known which they are: no server says which rows of a statement were.
func (src *Source) saveSome(ctx context.Context, tx *sql.Tx, some []core.Receipt, written map[core.ReceiptKey]bool) error {
	var args []any
	for _, r := range some {
		args = append(args, r.Command, r.Consumer, string(r.Status), sql.NullString{String: r.ResultRef, Valid: r.ResultRef != ""})
	}
	values := strings.Repeat(", (?, ?, ?, ?, {epoch})", len(some))[2:]
	_, err := tx.ExecContext(ctx, src.text.fill(`INSERT INTO {receipt} (command_id, consumer, status, result_ref, at) VALUES `+values+`
		ON DUPLICATE KEY UPDATE result_ref = IF(`+stays+`, result_ref, VALUES(result_ref)), at = IF(`+stays+`, COALESCE(`+kept("at")+`, {now}), {epoch}), status = IF(`+stays+`, status, VALUES(status))`), args...)
	if err != nil {
		return err
	}
	commands := core.ReceiptCommands(some)
	marked := ` WHERE at = {epoch} AND command_id IN ` + places(len(commands))
	err = collect(ctx, tx, func(rows *sql.Rows) error {
		var key core.ReceiptKey
		err := rows.Scan(&key.Command, &key.Consumer)
		written[key] = true
		return err
	}, src.text.fill(`SELECT command_id, consumer FROM {receipt}`+marked), arguments(commands)...)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, src.text.fill(`UPDATE {receipt} SET at = {now}`+marked), arguments(commands)...)
	return err
}

// arguments are texts as arguments.
func arguments(texts []string) []any {
	args := make([]any, len(texts))
	for i, text := range texts {
		args[i] = text
	}
	return args
}

// receipts reads those of a condition, which may end with an order and a limit.
func (src *Source) receipts(ctx context.Context, q querier, where string, args ...any) (layout.Receipts, error) {
	var list layout.Receipts
	err := collect(ctx, q, func(rows *sql.Rows) error {
		var r layout.Receipt
		var at instant
		var age int64
		if err := rows.Scan(&r.Command, &r.Consumer, &r.Status, &r.ResultRef, &at, &age); err != nil {
			return err
		}
		r.At, r.Age = at.t, micros(age)
		list = append(list, r)
		return nil
	}, src.text.fill(`SELECT command_id, consumer, status, COALESCE(result_ref, ''), at, COALESCE(TIMESTAMPDIFF(MICROSECOND, at, {now}), 0) FROM {receipt} WHERE `+where), args...)
	return list, err
}

func (src *Source) receiptsOf(ctx context.Context, q querier, commands []string) (layout.Receipts, error) {
	var all layout.Receipts
	for some := range slices.Chunk(commands, chunk) {
		found, err := src.receipts(ctx, q, `command_id IN `+places(len(some)), arguments(some)...)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// receiptPage reads receipts in the order of their keys, with the places of their rows.
func (src *Source) receiptPage(ctx context.Context, command string, after core.ReceiptKey, limit int) (layout.Receipts, layout.Places, error) {
	where, args := `command_id >= ? AND (command_id > ? OR consumer > ?)`, []any{after.Command, after.Command, after.Consumer}
	if after == (core.ReceiptKey{}) {
		where, args = `command_id >= ''`, nil
	}
	if command != "" {
		where += ` AND command_id = ?`
		args = append(args, command)
	}
	var list layout.Receipts
	var found layout.Places
	err := src.try(ctx, "read receipts", func() (err error) {
		list, err = src.receipts(ctx, src.work, where+` ORDER BY command_id, consumer LIMIT ?`, append(slices.Clone(args), limit)...)
		if err != nil || len(list) == 0 {
			return err
		}
		found, err = src.places(ctx, src.work, core.ReceiptCommands(list.Plain()))
		list.Put(found)
		return err
	})
	return list, found, err
}

// Receipts lists receipts.
func (src *Source) Receipts(ctx context.Context, f core.ReceiptFilter) ([]core.Receipt, error) {
	list, _, err := src.receiptPage(ctx, f.Command, f.After, cmp.Or(f.Limit, 100))
	return list.Plain(), err
}

// places looks up the rows of commands, in the table and then in the others that share the receipts.
func (src *Source) places(ctx context.Context, q querier, commands []string) (layout.Places, error) {
	places := layout.NewPlaces(commands)
	if err := src.find(ctx, q, places, commands); err != nil || len(places.Unknown()) == 0 {
		return places, err
	}
	others, err := src.neighbours(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("look for other tables: %w", err)
	}
	return places, places.Elsewhere(others, func(n layout.Neighbour, found layout.Places, commands []string) error {
		return src.lookInto(ctx, q, n, func(other *Source) error { return other.find(ctx, q, found, commands) })
	})
}

// find notes the rows that the table has or has cleaned. It looks at the table first: a row that is cleaned meanwhile is
// found where it went.
func (src *Source) find(ctx context.Context, q querier, found layout.Places, commands []string) error {
	for some := range slices.Chunk(commands, chunk) {
		if err := src.lookAtRows(ctx, q, found, some); err != nil {
			return fmt.Errorf("look up rows: %w", err)
		}
		err := src.look(ctx, q, found, core.RowCleaned, `SELECT command_id, TIMESTAMPDIFF(MICROSECOND, at, {now}) FROM {cleaned} WHERE tbl = {tbl} AND command_id IN `+places(len(some)), arguments(some))
		if err != nil {
			return fmt.Errorf("look up cleaned rows: %w", err)
		}
	}
	return nil
}

// look notes the rows that a query finds.
func (src *Source) look(ctx context.Context, q querier, found layout.Places, row core.RowPlace, text string, args []any) error {
	return collect(ctx, q, func(rows *sql.Rows) error {
		var id string
		var since int64
		if err := rows.Scan(&id, &since); err != nil {
			return err
		}
		found.Found(id, row, micros(since))
		return nil
	}, src.text.fill(text), args...)
}

func (src *Source) lookAtRows(ctx context.Context, q querier, found layout.Places, some []string) error {
	var ids []any
	for _, id := range some {
		if value, may := src.idValue(id); may {
			ids = append(ids, value)
		}
	}
	if ids == nil {
		return nil
	}
	err := src.look(ctx, q, found, core.RowThere, `SELECT {id.text}, 0 FROM {table} WHERE {id} IN `+places(len(ids)), ids)
	if !isForeignText(err) {
		return err
	}
	for i := range ids { // each alone, to pass over the one
		if err := src.look(ctx, q, found, core.RowThere, `SELECT {id.text}, 0 FROM {table} WHERE {id} = ?`, ids[i:i+1]); err != nil && !isForeignText(err) {
			return err
		}
	}
	return nil
}

// isForeignText tells that an id cannot be compared with the column's, whose character set has not its characters.
func isForeignText(err error) bool {
	return slices.Contains([]uint16{illegalMix, illegalMixOfMany, cannotConvert}, number(err))
}

// The servers' numbers for that.
const (
	illegalMix       = 1267
	illegalMixOfMany = 1271
	cannotConvert    = 3854
)

// CleanReceipts removes receipts that nobody needs any more.
func (src *Source) CleanReceipts(ctx context.Context, req core.ReceiptsRequest) (core.CleanedReceipts, error) {
	c := core.CleanedReceipts{Removed: map[core.RowPlace]int{}}
	if err := src.try(ctx, "clean receipts", func() error { return src.mayClean(ctx, src.work, req.Owner) }); err != nil {
		return c, err
	}
	list, found, err := src.receiptPage(ctx, "", req.After, req.Limit)
	if err != nil || len(list) == 0 {
		return c, err
	}
	due, c := list.Due(found, req.Retention)
	if len(due) == 0 {
		return c, nil
	}
	var begun time.Time
	err = src.transact(ctx, src.work, "clean receipts", func(tx *sql.Tx) error {
		clear(c.Removed)
		begun = time.Now()
		for place, all := range due {
			for some := range slices.Chunk(all, chunk) {
				n, err := src.removeReceipts(ctx, tx, some, req.Retention)
				if err != nil {
					return err
				}
				c.Removed[place] += n
			}
		}
		return nil
	})
	if !begun.IsZero() {
		c.Held = time.Since(begun)
	}
	return c, err
}

func (src *Source) removeReceipts(ctx context.Context, tx *sql.Tx, some []core.Receipt, retention time.Duration) (int, error) {
	commands := core.ReceiptCommands(some)
	args := arguments(commands)
	for _, r := range some {
		args = append(args, r.Command, r.Consumer)
	}
	res, err := tx.ExecContext(ctx, src.text.fill(`DELETE FROM {receipt} WHERE command_id IN `+places(len(commands))+` AND (command_id, consumer) IN (`+
		strings.Repeat(", (?, ?)", len(some))[2:]+`) AND at <= {now} - INTERVAL ? MICROSECOND`), append(args, retention.Microseconds())...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, src.text.fill(`DELETE {cleaned} FROM {cleaned} LEFT JOIN {receipt} ON {receipt}.command_id = {cleaned}.command_id
		WHERE {cleaned}.tbl = {tbl} AND {cleaned}.command_id IN `+places(len(commands))+` AND {receipt}.command_id IS NULL`), arguments(commands)...)
	return int(n), err
}
