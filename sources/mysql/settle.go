package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// same is what published rows have in common that one statement can settle.
type same struct {
	deliveries, attempts, crashes int
	receipt                       string // the consumer, if they are completed
}

// settleAll writes published rows by the group, the others together.
func (src *Source) settleAll(ctx context.Context, tx *sql.Tx, owner string, changes []core.Change) error {
	groups := map[same][]int64{}
	var others []*core.Settlement
	for _, c := range changes {
		for i := range c.Settle {
			s := &c.Settle[i]
			if s.State != core.Published {
				others = append(others, s)
				continue
			}
			g := same{s.Deliveries, s.Attempts, s.Crashes, s.Receipt}
			groups[g] = append(groups[g], s.Seq)
		}
	}
	for some := range slices.Chunk(others, chunk) {
		if err := src.settle(ctx, tx, owner, some); err != nil {
			return fmt.Errorf("settle %d rows: %w", len(some), err)
		}
	}
	var removed int64
	for g, seqs := range groups {
		for some := range slices.Chunk(seqs, chunk) {
			n, err := src.publish(ctx, tx, g, some)
			if err != nil {
				return fmt.Errorf("settle %d published rows: %w", len(some), err)
			}
			removed += n
		}
	}
	if removed == 0 {
		return nil
	}
	// It is one partition's line that counts them: its lease is ours.
	_, err := tx.ExecContext(ctx, src.text.fill(`INSERT INTO {ledger} (tbl, day, state, part, count) VALUES (?, UTC_DATE(), 'published', ?, ?)
		ON DUPLICATE KEY UPDATE count = count + ?`), src.s.table.name, changes[0].Lease.Part, removed, removed)
	return err
}

// rows are those of a group that are as the settlement knows them.
func (g same) rows(seqs []int64) string {
	return fmt.Sprintf(` WHERE {order} IN %s AND {state} = 'pending' AND {deliveries known} = %d`, list(seqs), g.deliveries)
}

func (t texts) publish(g same, seqs []int64) string {
	return t.fill(fmt.Sprintf(`UPDATE `+bySeq+` SET {state} = 'published', {published_at} = {now}, {deliveries} = %d, {attempts} = %d, {crashes} = %d{keep}`,
		g.deliveries+1, g.attempts, g.crashes) + g.rows(seqs))
}

// remove names the table twice, as a statement of several tables does: in others no index can be named.
func (t texts) remove(g same, seqs []int64) string {
	return t.fill(`DELETE {table} FROM ` + bySeq + g.rows(seqs))
}

const hasReceipts = ` AND ` + command + ` NOT LIKE '% '`

// complete locks the rows, so that those that get a receipt are those that are settled next. (INSERT IGNORE would swallow
// other errors too.) An id that ends with a blank has no receipts.
func (t texts) complete(g same, seqs []int64) string {
	return t.fill(`INSERT INTO {receipt} (command_id, consumer) SELECT ` + command + `, ? FROM ` + bySeq + g.rows(seqs) + hasReceipts + ` FOR UPDATE
		ON DUPLICATE KEY UPDATE {receipt}.command_id = {receipt}.command_id`)
}

// keepIDs is for rows that are deleted.
func (t texts) keepIDs(g same, seqs []int64) string {
	return t.fill(`INSERT INTO {cleaned} (tbl, command_id, at) SELECT {tbl}, ` + command + `, {now} FROM ` + bySeq + g.rows(seqs) + hasReceipts + `
		ON DUPLICATE KEY UPDATE {cleaned}.at = {now}`)
}

// complete stores receipts for the rows of a group that are about to be settled. Where they are deleted their ids are kept
// beside the receipts.
func (src *Source) complete(ctx context.Context, tx *sql.Tx, g same, seqs []int64) error {
	if _, err := tx.ExecContext(ctx, src.text.complete(g, seqs), g.receipt); err != nil {
		return fmt.Errorf("store receipts: %w", err)
	}
	if !src.deletePublished {
		return nil
	}
	if _, err := tx.ExecContext(ctx, src.text.keepIDs(g, seqs)); err != nil {
		return fmt.Errorf("keep the ids of those that have a receipt: %w", err)
	}
	return nil
}

// publish marks or deletes rows of a group, and says how many it deleted.
func (src *Source) publish(ctx context.Context, tx *sql.Tx, g same, seqs []int64) (int64, error) {
	if g.receipt != "" {
		if err := src.complete(ctx, tx, g, seqs); err != nil {
			return 0, err
		}
	}
	if !src.deletePublished {
		_, err := tx.ExecContext(ctx, src.text.publish(g, seqs))
		return 0, err
	}
	res, err := tx.ExecContext(ctx, src.text.remove(g, seqs))
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	if err != nil || n == 0 || g.deliveries == 0 { // a row never written before has no history and no revisions
		return n, err
	}
	for _, beside := range []string{"{attempt}", "{revision}"} {
		_, err = tx.ExecContext(ctx, src.text.fill(`DELETE `+beside+` FROM `+beside+` LEFT JOIN {table} ON {table}.{order} = `+beside+`.seq
			WHERE `+beside+`.tbl = ? AND `+beside+`.seq IN `+list(seqs)+` AND {table}.{order} IS NULL`), src.s.table.name)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// settle writes rows that were not published, each with its own values, and their history. The rows are locked first, which
// tells which of them are as the settlement knows them: the others are left alone.
func (src *Source) settle(ctx context.Context, tx *sql.Tx, owner string, some []*core.Settlement) error {
	seqs := make([]int64, len(some))
	for i, s := range some {
		seqs[i] = s.Seq
	}
	known := map[int64]int{}
	err := collect(ctx, tx, func(rows *sql.Rows) error {
		var seq int64
		var deliveries int
		if err := rows.Scan(&seq, &deliveries); err != nil {
			return err
		}
		known[seq] = deliveries
		return nil
	}, src.text.fill(`SELECT {order}, {deliveries known} FROM `+bySeq+` WHERE {order} IN `+list(seqs)+` AND {state} = 'pending' FOR UPDATE`))
	if err != nil {
		return err
	}
	some = slices.DeleteFunc(slices.Clone(some), func(s *core.Settlement) bool {
		deliveries, pending := known[s.Seq]
		return !pending || deliveries != s.Deliveries
	})
	if len(some) == 0 {
		return nil
	}
	if err := src.write(ctx, tx, some); err != nil {
		return err
	}
	var notes []entry
	for _, s := range some {
		if s.Failure != nil {
			notes = append(notes, entry{seq: s.Seq, by: owner, failure: *s.Failure})
		}
	}
	return src.note(ctx, tx, notes)
}

// write joins the rows to a table of their new values, whose columns have names that the outbox table has not.
func (src *Source) write(ctx context.Context, tx *sql.Tx, some []*core.Settlement) error {
	values := make([]string, len(some))
	var args []any
	for i, s := range some {
		var lastError any
		if s.Failure != nil {
			lastError = layout.ErrorText(s.Failure)
		}
		delay := s.Delay.Microseconds()
		if s.Delay > 0 {
			delay = max(delay, 1)
		}
		values[i] = fmt.Sprintf(`SELECT %d connectd_seq, '%s' connectd_state, %d connectd_deliveries, %d connectd_attempts, %d connectd_crashes, %d connectd_delay, ? connectd_error`,
			s.Seq, s.State, s.Deliveries+1, s.Attempts, s.Crashes, max(delay, 0))
		args = append(args, lastError)
	}
	_, err := tx.ExecContext(ctx, src.text.fill(`UPDATE (`+strings.Join(values, " UNION ALL ")+`) v STRAIGHT_JOIN `+bySeq+` ON {order} = connectd_seq
		SET {state} = connectd_state, {deliveries} = connectd_deliveries, {attempts} = connectd_attempts, {crashes} = connectd_crashes,
		{failing_since} = CASE WHEN connectd_attempts = 0 THEN {epoch} WHEN {failing_since} <= {now} THEN COALESCE(`+kept("{failing_since}")+`, {now}) ELSE {now} END,
		{available_at} = CASE WHEN connectd_delay > 0 THEN {now} + INTERVAL connectd_delay MICROSECOND ELSE COALESCE(`+kept("{available_at}")+`, {epoch}) END,
		{last_error} = COALESCE(connectd_error, {last_error}){keep}`), args...)
	return err
}
