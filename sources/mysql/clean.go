package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

var _ core.Books = (*Source)(nil)

// cleaner finds one row if the owner holds the lease of partition 0: table, owner. The lease is not locked, so that the
// worker's own steps do not wait.
const cleaner = `SELECT 1 FROM {lease} WHERE tbl = ? AND part = 0 AND owner = ? AND lease_until > {now}`

// Clean removes rows whose time has come. It looks first, without a lock, and then removes what it found by the rows'
// numbers, which locks no gaps.
func (src *Source) Clean(ctx context.Context, req core.CleanRequest) (core.Cleaned, error) {
	if err := src.try(ctx, "clean", func() error { return src.mayClean(ctx, src.work, req.Owner) }); err != nil {
		return core.Cleaned{}, err
	}
	var c core.Cleaned
	var due map[int64]kind
	err := src.try(ctx, "look for rows to clean", func() (err error) {
		c, due, err = src.survey(ctx, req)
		return err
	})
	if err != nil || len(due) == 0 {
		return c, err
	}
	locked := c
	var begun time.Time
	err = src.transact(ctx, src.work, "clean", func(tx *sql.Tx) error {
		c = locked
		c.Removed = map[core.State]int{}
		begun = time.Now()
		if err := src.mayClean(ctx, tx, req.Owner); err != nil {
			return err
		}
		return src.removeDue(ctx, tx, due, &c)
	})
	if !begun.IsZero() {
		c.Held = time.Since(begun)
	}
	return c, err
}

func (src *Source) mayClean(ctx context.Context, q querier, owner string) error {
	var one int
	err := q.QueryRowContext(ctx, src.text.fill(cleaner), src.s.table.name, owner).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return core.ErrLeaseNotOwned
	}
	return err
}

// kind is a row as it was seen. One that was dead, retried and dead again has more deliveries.
type kind struct {
	state      core.State
	deliveries int
}

// command is a row's id as receipts have it.
const command = `CONVERT({id.text} USING utf8mb4) COLLATE utf8mb4_bin`

// sameCommand compares it with a receipt's as bytes: the server takes text for equal that differs in spaces at its end.
const sameCommand = `connectd_command = ` + command + ` AND LENGTH(connectd_command) = LENGTH(` + command + `)`

// surveySQL: table, whether receipts matter, after, up to, limit. The last line of a row's history says since when it is
// dead or skipped. Subqueries of one row are looked up row by row; an EXISTS might be answered by reading all receipts.
const surveySQL = `SELECT {order}, {state}, {deliveries}, CASE
		WHEN {state} = 'published' THEN CASE WHEN {published_at} <> {epoch} THEN TIMESTAMPDIFF(MICROSECOND, {published_at}, {now}) END
		WHEN {state} IN ('dead', 'skipped') THEN (SELECT TIMESTAMPDIFF(MICROSECOND, a.at, {now}) FROM {attempt} a
			WHERE a.tbl = ? AND a.seq = {table}.{order} ORDER BY a.n DESC LIMIT 1) END,
	CASE WHEN ? AND ` + layout.Owes + ` THEN COALESCE((SELECT 1 FROM (SELECT command_id connectd_command, status connectd_status FROM {receipt}) r
		WHERE ` + sameCommand + ` AND connectd_status = 'done' LIMIT 1), 0) ELSE 1 END
	FROM ` + bySeq + ` WHERE {order} > ? AND {order} <= ? ORDER BY {order} LIMIT ?`

func (src *Source) survey(ctx context.Context, req core.CleanRequest) (core.Cleaned, map[int64]kind, error) {
	c, due := core.Cleaned{Removed: map[core.State]int{}}, map[int64]kind{}
	upTo := req.UpTo
	if upTo == 0 {
		upTo = math.MaxInt64
	}
	err := collect(ctx, src.work, func(rows *sql.Rows) error {
		var seq int64
		var k kind
		var since sql.NullInt64
		kept := core.Kept{Since: -1}
		if err := rows.Scan(&seq, &k.state, &k.deliveries, &since, &kept.Receipt); err != nil {
			return err
		}
		c.Looked, c.Last = c.Looked+1, seq
		kept.State = k.state
		if since.Valid {
			kept.Since = max(micros(since.Int64), 0)
		}
		if goes, again := req.Retention.Judge(kept); goes && !req.Full(len(due)) {
			due[seq] = k
		} else {
			c.Leave(again)
		}
		return nil
	}, src.text.fill(surveySQL), src.s.table.name, req.Retention.RequireReceipt, req.After, upTo, req.Limit)
	return c, due, err
}

// removeDue removes rows, unless they changed since they were seen or another transaction has them, and counts them.
func (src *Source) removeDue(ctx context.Context, tx *sql.Tx, due map[int64]kind, c *core.Cleaned) error {
	seqs := make([]int64, 0, len(due))
	for seq := range due {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	left := len(seqs)
	for some := range slices.Chunk(seqs, chunk) {
		var mine []int64
		err := collect(ctx, tx, func(rows *sql.Rows) error {
			var seq int64
			var k kind
			if err := rows.Scan(&seq, &k.state, &k.deliveries); err != nil {
				return err
			}
			if due[seq] == k {
				mine = append(mine, seq)
				c.Removed[k.state]++
			}
			return nil
		}, src.text.fill(`SELECT {order}, {state}, {deliveries} FROM `+bySeq+` WHERE {order} IN `+list(some)+` FOR UPDATE SKIP LOCKED`))
		if err != nil {
			return fmt.Errorf("lock rows: %w", err)
		}
		if len(mine) == 0 {
			continue
		}
		left -= len(mine)
		if err := src.removeRows(ctx, tx, mine); err != nil {
			return err
		}
	}
	c.LeaveLocked(left)
	for state, n := range c.Removed {
		// A line of its own, since the workers' steps update those of their partitions.
		_, err := tx.ExecContext(ctx, src.text.fill(`INSERT INTO {ledger} (tbl, day, state, part, count) VALUES (?, UTC_DATE(), ?, -1, ?)
			ON DUPLICATE KEY UPDATE count = count + ?`), src.s.table.name, string(state), n, n)
		if err != nil {
			return fmt.Errorf("count them: %w", err)
		}
	}
	return nil
}

// removeRows removes rows that are locked, with their history. The ids of those that have a receipt are kept beside the
// receipts. The rows are joined to a table of their numbers: a list that has most of a small table would be answered by
// reading all of it, and waiting for the rows that others have locked.
func (src *Source) removeRows(ctx context.Context, tx *sql.Tx, seqs []int64) error {
	numbers := make([]string, len(seqs))
	for i, seq := range seqs {
		numbers[i] = fmt.Sprintf(`SELECT %d connectd_seq`, seq)
	}
	for _, st := range []struct {
		what, text string
		args       []any
	}{
		{"keep the ids of those that have a receipt", `INSERT INTO {cleaned} (tbl, command_id, at) SELECT {tbl}, ` + command + `, {now} FROM ` + bySeq + ` WHERE {order} IN ` + list(seqs) +
			` AND (SELECT 1 FROM (SELECT command_id connectd_command FROM {receipt}) r WHERE ` + sameCommand + ` LIMIT 1) = 1
			ON DUPLICATE KEY UPDATE {cleaned}.at = {now}`, nil},
		{"remove rows", `DELETE {table} FROM (` + strings.Join(numbers, ` UNION ALL `) + `) v STRAIGHT_JOIN ` + bySeq + ` ON {order} = connectd_seq`, nil},
		{"remove their revisions", `DELETE FROM {revision} WHERE tbl = ? AND seq IN ` + list(seqs), []any{src.s.table.name}},
		{"remove their history", `DELETE FROM {attempt} WHERE tbl = ? AND seq IN ` + list(seqs), []any{src.s.table.name}},
	} {
		if _, err := tx.ExecContext(ctx, src.text.fill(st.text), st.args...); err != nil {
			return fmt.Errorf("%s: %w", st.what, err)
		}
	}
	return nil
}
