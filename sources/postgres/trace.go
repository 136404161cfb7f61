package postgres

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// before counts the pending rows that go before one: part, seq, bound.
const before = `SELECT {now}, (SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {part} = $1::integer AND {state} = 'pending' AND {position} < $2::bigint
	ORDER BY {position} LIMIT $3::bigint) b)`

// sent finds the announcement of a row: table, part, seq.
const sent = `SELECT sent_at, epoch FROM {connectd_inflight} WHERE tbl = $1::text AND part = $2::integer AND $3::bigint = ANY (seqs) ORDER BY epoch DESC LIMIT 1`

// firstOfKey finds the first row of a state before another one that has its key: table, part, seq, key, bound.
func firstOfKey(state core.State) string {
	return `SELECT ` + infoColumns + ` FROM {table} WHERE {order} = (SELECT "connectd seq" FROM
		(SELECT {order} AS "connectd seq", {key}::text AS "connectd key" FROM {table} WHERE {part} = $2::integer AND {state} = '` + string(state) + `' AND {position} < $3::bigint
			ORDER BY {position} LIMIT $5::bigint) b
		WHERE "connectd key" COLLATE "C" = $4::text LIMIT 1)`
}

// Queue tells what a pending row waits behind.
func (src *Source) Queue(ctx context.Context, row core.RowInfo, held ...core.State) (core.Queue, error) {
	var q core.Queue
	err := src.transact(ctx, src.work, "queue", func(tx pgx.Tx) error {
		t, tbl, part := src.text, src.s.table.name, int32(row.Part)
		q = core.Queue{}
		if err := tx.QueryRow(ctx, t.fill(before), part, row.Seq, int64(core.QueueBound)).Scan(&q.Now, &q.Before); err != nil {
			return err
		}
		q.Now = q.Now.UTC()
		var s core.Sent
		switch err := tx.QueryRow(ctx, t.fill(sent), tbl, part, row.Seq).Scan(&s.At, &s.Epoch); {
		case err == nil:
			s.At = s.At.UTC()
			q.Sent = &s
		case !errors.Is(err, pgx.ErrNoRows):
			return err
		}
		if len(held) == 0 || !row.Keyed {
			return nil
		}
		for _, state := range append([]core.State{core.Pending}, held...) {
			info, err := scanInfo(tx.QueryRow(ctx, t.fill(firstOfKey(state)), tbl, part, row.Seq, row.Key, int64(core.QueueBound)))
			switch {
			case errors.Is(err, pgx.ErrNoRows):
			case err != nil:
				return err
			case q.First == nil || info.Seq < q.First.Seq:
				q.First = &info
			}
		}
		return nil
	})
	return q, err
}

// Trace tells what is known of an id besides its row.
func (src *Source) Trace(ctx context.Context, id string) (core.Trace, error) {
	var trace core.Trace
	err := src.run(ctx, src.work, "trace", func(q querier) error {
		return q.QueryRow(ctx, src.text.fill(`SELECT coalesce(sum(count), 0)::bigint FROM {connectd_ledger} WHERE tbl = $1::text`), src.s.table.name).Scan(&trace.Cleaned)
	})
	if err != nil || strings.Contains(id, "\x00") {
		return trace, err // text cannot hold such an id, so nobody has reported it
	}
	trace.Receipts, err = layout.ReceiptsOf(ctx, id, src.Receipts)
	if err != nil && noRow(err) {
		err = nil // nor can this database's text
	}
	return trace, err
}
