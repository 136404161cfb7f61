package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/connectd/connectd/core"
)

// entry is one line of a row's history, to be written when the row has been.
type entry struct {
	seq     int64
	by      string
	failure core.Failure
}

// note writes lines of history, with the rows' deliveries as they stand (0 for what was not sent), and keeps no more than
// the newest lines of each row.
func (src *Source) note(ctx context.Context, tx *sql.Tx, entries []entry) error {
	for some := range slices.Chunk(entries, chunk) {
		if err := src.noteSome(ctx, tx, some); err != nil {
			return fmt.Errorf("note %d failures: %w", len(some), err)
		}
	}
	return nil
}

func (src *Source) noteSome(ctx context.Context, tx *sql.Tx, entries []entry) error {
	seqs := make([]int64, len(entries))
	for i, e := range entries {
		seqs[i] = e.seq
	}
	deliveries := map[int64]int{}
	var old []int64
	err := collect(ctx, tx, func(rows *sql.Rows) error {
		var seq int64
		var n int
		if err := rows.Scan(&seq, &n); err != nil {
			return err
		}
		deliveries[seq] = n
		// Each line came with a delivery, or is an operator's word on a row that one had stopped.
		if 2*n >= core.MaxHistory {
			old = append(old, seq)
		}
		return nil
	}, src.text.fill(`SELECT {order}, {deliveries} FROM `+bySeq+` WHERE {order} IN `+list(seqs)))
	if err != nil {
		return err
	}
	var args []any
	for _, e := range entries {
		sent := deliveries[e.seq]
		if e.failure.Unsent {
			sent = 0
		}
		args = append(args, src.s.table.name, e.seq, sent, core.CleanText(e.failure.Code), core.CleanText(e.failure.Message),
			core.CleanText(e.by), e.failure.Duration.Microseconds())
	}
	rows := strings.Repeat(", (?, ?, {now}, ?, ?, ?, ?, ?)", len(entries))[2:]
	_, err = tx.ExecContext(ctx, src.text.fill("INSERT INTO {attempt} (tbl, seq, at, deliveries, code, message, `by`, duration_us) VALUES "+rows), args...)
	if err != nil {
		return err
	}
	for _, seq := range old {
		if err := src.trim(ctx, tx, seq); err != nil {
			return err
		}
	}
	return nil
}

// trim deletes all lines of a row's history but the newest.
func (src *Source) trim(ctx context.Context, tx *sql.Tx, seq int64) error {
	var newest []int64
	err := collect(ctx, tx, func(rows *sql.Rows) error {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return err
		}
		newest = append(newest, n)
		return nil
	}, src.text.fill(`SELECT n FROM {attempt} WHERE tbl = ? AND seq = ? ORDER BY n DESC LIMIT ?`), src.s.table.name, seq, core.MaxHistory)
	if err != nil || len(newest) < core.MaxHistory {
		return err
	}
	_, err = tx.ExecContext(ctx, src.text.fill(`DELETE FROM {attempt} WHERE tbl = ? AND seq = ? AND n < ?`), src.s.table.name, seq, newest[len(newest)-1])
	return err
}

// history reads a row's lines, the oldest first.
func (src *Source) history(ctx context.Context, q querier, seq int64) ([]core.Attempt, error) {
	var lines []core.Attempt
	err := collect(ctx, q, func(rows *sql.Rows) error {
		var a core.Attempt
		var at instant
		var us int64
		if err := rows.Scan(&at, &a.Deliveries, &a.Code, &a.Message, &a.By, &us); err != nil {
			return err
		}
		a.At, a.Duration = at.t, micros(us)
		lines = append(lines, a)
		return nil
	}, src.text.fill("SELECT at, deliveries, code, message, `by`, duration_us FROM {attempt} WHERE tbl = ? AND seq = ? ORDER BY n"), src.s.table.name, seq)
	return lines, err
}
