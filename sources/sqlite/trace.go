package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// Queue tells what a pending row waits behind.
func (src *Source) Queue(ctx context.Context, row core.RowInfo, held ...core.State) (core.Queue, error) {
	q, err := src.queue(ctx, row, held)
	if err != nil {
		return core.Queue{}, fmt.Errorf("sqlite: queue: %w", err)
	}
	return q, nil
}

func (src *Source) queue(ctx context.Context, row core.RowInfo, held []core.State) (core.Queue, error) {
	var q core.Queue
	tx, err := src.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // one snapshot
	if err != nil {
		return q, err
	}
	defer tx.Rollback()
	var now int64
	err = tx.QueryRowContext(ctx, src.text.fill(`SELECT {now}, (SELECT count(*) FROM (SELECT 1 `+inState(core.Pending)+` AND {order} < ?1 LIMIT ?2))`),
		row.Seq, core.QueueBound).Scan(&now, &q.Before)
	if err != nil {
		return q, err
	}
	q.Now = time.UnixMilli(now).UTC()
	var sent instant
	var epoch int64
	err = tx.QueryRowContext(ctx, `SELECT i.sent_at, i.epoch FROM connectd_inflight i, json_each(i.seqs) j WHERE i.tbl = ? AND j.value = ? ORDER BY i.epoch DESC LIMIT 1`,
		src.s.table, row.Seq).Scan(&sent, &epoch)
	switch {
	case err == nil:
		q.Sent = &core.Sent{At: sent.t, Epoch: epoch}
	case !errors.Is(err, sql.ErrNoRows):
		return q, err
	}
	if len(held) == 0 || !row.Keyed {
		return q, nil
	}
	for _, state := range append([]core.State{core.Pending}, held...) {
		first, err := src.firstOfKey(ctx, tx, row, state)
		if err != nil {
			return q, err
		}
		if first != nil && (q.First == nil || first.Seq < q.First.Seq) {
			q.First = first
		}
	}
	return q, nil
}

// inState is the rows of a state by the index that has them in order.
func inState(state core.State) string {
	switch state {
	case core.Pending:
		return `FROM {table} INDEXED BY {pending} WHERE {state} = 'pending'`
	case core.Held:
		return `FROM {table} INDEXED BY {held} WHERE {state} = 'held'`
	default:
		return `FROM {table} INDEXED BY {stopped} WHERE ({state} = 'dead' OR {state} = 'held') AND {state} = 'dead'`
	}
}

// firstOfKey returns the first row of that state before this one that has its key, or nil.
func (src *Source) firstOfKey(ctx context.Context, tx *sql.Tx, row core.RowInfo, state core.State) (*core.RowInfo, error) {
	text := src.text.fill(`SELECT ` + infoColumns + ` FROM {table} WHERE {order} = (SELECT "connectd seq" FROM
		(SELECT {order} AS "connectd seq", CAST({key} AS TEXT) AS "connectd key" ` + inState(state) + ` AND {order} < ?2 ORDER BY {order} LIMIT ?4)
		WHERE "connectd key" = ?3 COLLATE BINARY LIMIT 1)`)
	info, err := scanInfo(tx.QueryRowContext(ctx, text, src.s.table, row.Seq, row.Key, core.QueueBound).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &info, nil
}

// Trace tells what is known of an id besides its row.
func (src *Source) Trace(ctx context.Context, id string) (core.Trace, error) {
	var trace core.Trace
	err := src.read.QueryRowContext(ctx, `SELECT coalesce(sum(count), 0) FROM connectd_ledger WHERE tbl = ?`, src.s.table).Scan(&trace.Cleaned)
	if err != nil {
		return core.Trace{}, fmt.Errorf("sqlite: trace: read the ledger: %w", err)
	}
	if trace.Receipts, err = layout.ReceiptsOf(ctx, id, src.Receipts); err != nil {
		return core.Trace{}, fmt.Errorf("trace: %w", err)
	}
	return trace, nil
}
