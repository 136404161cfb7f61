package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// Queue tells what a pending row waits behind.
func (src *Source) Queue(ctx context.Context, row core.RowInfo, held ...core.State) (core.Queue, error) {
	var q core.Queue
	err := src.try(ctx, "queue", func() error {
		q = core.Queue{}
		var now instant
		if err := src.work.QueryRowContext(ctx, src.countEarlier(row)).Scan(&now, &q.Before); err != nil {
			return err
		}
		q.Now = now.t
		announced, err := src.inflight(ctx, src.work, fmt.Sprintf(`AND part = %d`, row.Part))
		if err != nil {
			return err
		}
		if sent, named := announced.sent[row.Seq]; named {
			q.Sent = &sent
		}
		if len(held) == 0 || !row.Keyed {
			return nil
		}
		for _, state := range append([]core.State{core.Pending}, held...) {
			info, err := scanInfo(src.work.QueryRowContext(ctx, src.firstOfKey(state, row), []byte(row.Key)).Scan)
			switch {
			case errors.Is(err, sql.ErrNoRows):
			case err != nil:
				return err
			case q.First == nil || info.Seq < q.First.Seq:
				info.Sending = info.State == core.Pending && announced.names(info.Seq)
				q.First = &info
			}
		}
		return nil
	})
	return q, err
}

// earlier are the rows of a state in the row's partition that come before it, the first ones.
func (src *Source) earlier(state core.State, row core.RowInfo) string {
	return fmt.Sprintf(` FROM {table} FORCE INDEX ({pending_index}) WHERE {state} = %s AND {partition} = %d AND {order} < %d ORDER BY {order} LIMIT %d`,
		literal(string(state)), row.Part, row.Seq, core.QueueBound)
}

// countEarlier is the statement that reads the clock and counts the pending rows before this one.
func (src *Source) countEarlier(row core.RowInfo) string {
	return src.text.fill(`SELECT {now}, (SELECT COUNT(*) FROM (SELECT 1` + src.earlier(core.Pending, row) + `) b)`)
}

// firstOfKey is the statement that finds the first row of a state before this one that has a key. In a derived table no
// order is kept.
func (src *Source) firstOfKey(state core.State, row core.RowInfo) string {
	return src.text.fill(`SELECT ` + infoColumns + ` FROM (SELECT MIN(connectd_seq) connectd_first FROM
		(SELECT {order} connectd_seq, {key.bytes} connectd_key` + src.earlier(state, row) + `) b WHERE connectd_key = ?) firsts
		STRAIGHT_JOIN ` + bySeq + ` ON {order} = connectd_first`)
}

// Trace tells what is known of an id besides its row.
func (src *Source) Trace(ctx context.Context, id string) (core.Trace, error) {
	var trace core.Trace
	err := src.try(ctx, "trace", func() error {
		err := src.work.QueryRowContext(ctx, src.text.fill(`SELECT COALESCE(SUM(count), 0) FROM {ledger} WHERE tbl = ?`), src.s.table.name).Scan(&trace.Cleaned)
		if err != nil {
			return fmt.Errorf("read the ledger: %w", err)
		}
		return nil
	})
	if err != nil {
		return trace, err
	}
	trace.Receipts, err = layout.ReceiptsOf(ctx, id, src.Receipts)
	return trace, err
}
