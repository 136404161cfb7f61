package postgres

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// SaveReceipts stores receipts: whoever stores one of a command and a consumer at the same time waits, and finds it.
func (src *Source) SaveReceipts(ctx context.Context, list []core.Receipt) ([]core.ReceiptResult, error) {
	call := core.NewReceiptCall(list, src.fits)
	var columns [4][]*string
	for _, r := range call.Write {
		status, ref := string(r.Status), &r.ResultRef
		if r.ResultRef == "" {
			ref = nil
		}
		for i, value := range []*string{&r.Command, &r.Consumer, &status, ref} {
			columns[i] = append(columns[i], value)
		}
	}
	text := src.text.fill(`INSERT INTO {connectd_receipt} AS r (command_id, consumer, status, result_ref)
		SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) u (command_id, consumer, status, result_ref)
		ON CONFLICT (command_id, consumer) DO UPDATE SET status = excluded.status, result_ref = excluded.result_ref, at = {now} WHERE r.status = 'failed' OR r.status <> 'done' AND excluded.status = 'done'
		RETURNING command_id, consumer`)
	stored, written := map[core.ReceiptKey]core.Receipt{}, map[core.ReceiptKey]bool{}
	if len(call.Write) == 0 {
		return call.Answers(stored, written), ctx.Err()
	}
	err := src.transact(ctx, src.work, "save receipts", func(tx pgx.Tx) error {
		clear(written)
		if _, err := tx.Exec(ctx, bounded+`; SELECT `+durable); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, text, columns[0], columns[1], columns[2], columns[3])
		if err != nil {
			return err
		}
		var key core.ReceiptKey
		if _, err := pgx.ForEachRow(rows, []any{&key.Command, &key.Consumer}, func() error {
			written[key] = true
			return nil
		}); err != nil {
			return err
		}
		kept, err := src.receipts(ctx, tx, `(command_id, consumer) IN (SELECT * FROM unnest($1::text[], $2::text[]))`, columns[0], columns[1])
		for _, r := range kept {
			stored[r.Key()] = r.Receipt
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	places, err := src.places(ctx, call.Commands())
	if err != nil {
		return nil, err
	}
	for key, r := range stored {
		r.Row = places[r.Command].Row
		stored[key] = r
	}
	return call.Answers(stored, written), nil
}

// fits refuses text that the database's encoding may not have.
func (src *Source) fits(r core.Receipt) error {
	if src.ascii && strings.ContainsFunc(r.Command+r.Consumer+r.ResultRef, func(c rune) bool { return c >= utf8.RuneSelf }) {
		return errors.New("the database's encoding does not have every character, so a receipt must be ASCII")
	}
	return nil
}

// receipts reads those of a condition, which may end with an order and a limit.
func (src *Source) receipts(ctx context.Context, q querier, where string, args ...any) (layout.Receipts, error) {
	rows, err := q.Query(ctx, src.text.fill(`SELECT command_id, consumer, status, coalesce(result_ref, ''), CASE WHEN at BETWEEN '0001-01-02' AND '9999-12-30' THEN at END,
		CASE WHEN at BETWEEN '0001-01-02' AND '9999-12-30' THEN (extract(epoch FROM {now} - at) * 1000000)::bigint ELSE 0 END FROM {connectd_receipt} WHERE `+where), args...)
	if err != nil {
		return nil, err
	}
	var list layout.Receipts
	var r layout.Receipt
	var at pgtype.Timestamptz
	var age int64
	_, err = pgx.ForEachRow(rows, []any{&r.Command, &r.Consumer, &r.Status, &r.ResultRef, &at, &age}, func() error {
		r.At, r.Age = utc(at), microseconds(age)
		list = append(list, r)
		return nil
	})
	return list, err
}

// receiptPage reads receipts in the order of their keys, with the places of their rows.
func (src *Source) receiptPage(ctx context.Context, command string, after core.ReceiptKey, limit int) (layout.Receipts, layout.Places, error) {
	where, args := `(command_id, consumer) > ($1::text, $2::text)`, []any{after.Command, after.Consumer, int64(limit)}
	if command != "" {
		where += ` AND command_id = $4::text`
		args = append(args, command)
	}
	var list layout.Receipts
	err := src.run(ctx, src.work, "read receipts", func(q querier) (err error) {
		list, err = src.receipts(ctx, q, where+` ORDER BY command_id, consumer LIMIT $3::bigint`, args...)
		return err
	})
	if err != nil || len(list) == 0 {
		return nil, nil, err
	}
	places, err := src.places(ctx, core.ReceiptCommands(list.Plain()))
	list.Put(places)
	return list, places, err
}

// Receipts lists receipts.
func (src *Source) Receipts(ctx context.Context, f core.ReceiptFilter) ([]core.Receipt, error) {
	list, _, err := src.receiptPage(ctx, f.Command, f.After, cmp.Or(f.Limit, 100))
	return list.Plain(), err
}

// places looks up the rows of commands, in the table and then in the others that share the receipts. Those are waited for
// no longer than a moment.
func (src *Source) places(ctx context.Context, commands []string) (layout.Places, error) {
	places := layout.NewPlaces(commands)
	err := src.run(ctx, src.work, "look up rows", func(q querier) error { return src.find(ctx, q, places, commands) })
	if err != nil || len(places.Unknown()) == 0 {
		return places, err
	}
	err = src.transact(ctx, src.work, "look up rows of other tables", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, bounded); err != nil {
			return err
		}
		others, err := src.neighbours(ctx, tx)
		if err != nil {
			return err
		}
		return places.Elsewhere(others, func(n layout.Neighbour, found layout.Places, commands []string) error {
			return src.lookInto(ctx, tx, n, func(tx pgx.Tx, other *Source) error { return other.find(ctx, tx, found, commands) })
		})
	})
	return places, err
}

// find notes the rows that the table has or has cleaned. It looks at the table first: a row that is cleaned meanwhile is
// found where it went.
func (src *Source) find(ctx context.Context, q querier, places layout.Places, commands []string) error {
	values, kind := src.ids(commands)
	rows, err := q.Query(ctx, src.text.fill(`SELECT {id}::text FROM {table} WHERE {id} = ANY ($1::text[]::`+kind+`[])`), values)
	if err != nil {
		return err
	}
	var id string
	var since int64
	if _, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		places.Found(id, core.RowThere, 0)
		return nil
	}); err != nil {
		return err
	}
	rows, err = q.Query(ctx, src.text.fill(`SELECT command_id, (extract(epoch FROM {now} - at) * 1000000)::bigint FROM {connectd_cleaned} WHERE tbl = $1::text AND command_id = ANY ($2::text[])`),
		src.s.table.name, commands)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, []any{&id, &since}, func() error {
		places.Found(id, core.RowCleaned, microseconds(since))
		return nil
	})
	return err
}

// canonical is a uuid as the server writes it; a row's id has that form wherever it is sent.
var canonical = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// ids are the commands that may be ids, and the type to give them: one text that is no value of the type would fail the
// whole statement.
func (src *Source) ids(commands []string) (values []string, kind string) {
	kind = src.idType()
	bits := map[string]int{"smallint": 16, "integer": 32, "bigint": 64}[kind]
	if kind != "uuid" && bits == 0 {
		return commands, kind
	}
	values = []string{}
	for _, id := range commands {
		if bits > 0 {
			if n, err := strconv.ParseInt(id, 10, bits); err == nil && strconv.FormatInt(n, 10) == id {
				values = append(values, id)
			}
		} else if canonical.MatchString(id) {
			values = append(values, id)
		}
	}
	return values, kind
}

// CleanReceipts removes receipts that nobody needs any more.
func (src *Source) CleanReceipts(ctx context.Context, req core.ReceiptsRequest) (core.CleanedReceipts, error) {
	c := core.CleanedReceipts{Removed: map[core.RowPlace]int{}}
	if err := src.mayClean(ctx, req.Owner); err != nil {
		return c, err
	}
	list, places, err := src.receiptPage(ctx, "", req.After, req.Limit)
	if err != nil || len(list) == 0 {
		return c, err
	}
	due, c := list.Due(places, req.Retention)
	if len(due) == 0 {
		return c, nil
	}
	var begun time.Time
	err = src.transact(ctx, src.work, "clean receipts", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, unhurried); err != nil {
			return err
		}
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

func (src *Source) removeReceipts(ctx context.Context, tx pgx.Tx, some []core.Receipt, retention time.Duration) (int, error) {
	var commands, consumers []string
	for _, r := range some {
		commands, consumers = append(commands, r.Command), append(consumers, r.Consumer)
	}
	tag, err := tx.Exec(ctx, src.text.fill(`DELETE FROM {connectd_receipt} WHERE (command_id, consumer) IN (SELECT * FROM unnest($1::text[], $2::text[]))
		AND at <= {now} - $3::bigint * interval '1 microsecond'`), commands, consumers, retention.Microseconds())
	if err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, src.text.fill(`DELETE FROM {connectd_cleaned} c WHERE tbl = $1::text AND command_id = ANY ($2::text[])
		AND (SELECT true FROM {connectd_receipt} r WHERE r.command_id = c.command_id LIMIT 1) IS NULL`), src.s.table.name, commands)
	return int(tag.RowsAffected()), err
}
