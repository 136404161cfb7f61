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

var _ core.Books = (*Source)(nil)

// cleaner finds one row if the owner holds the lease: table, owner.
const cleaner = `SELECT 1 FROM connectd_lease WHERE tbl = ?1 AND part = 0 AND owner = ?2 AND lease_until > ` + nowMS

// Clean removes rows whose time has come. It looks first, without the write lock, and then removes what it found by the
// rows' numbers.
func (src *Source) Clean(ctx context.Context, req core.CleanRequest) (core.Cleaned, error) {
	if err := src.mayClean(ctx, src.read, req.Owner); err != nil {
		return core.Cleaned{}, err
	}
	c, due, err := src.survey(ctx, req)
	if err != nil {
		return core.Cleaned{}, fmt.Errorf("sqlite: look for rows to clean: %w", err)
	}
	if len(due) == 0 {
		return c, nil
	}
	var begun time.Time
	err = src.transact(ctx, "clean", func(tx *sql.Tx) error {
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

// asker is a pool or a transaction.
type asker interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// mayClean fails with ErrLeaseNotOwned unless the lease is owner's and the path still names the file that is open.
func (src *Source) mayClean(ctx context.Context, q asker, owner string) error {
	var one int
	err := q.QueryRowContext(ctx, cleaner, src.s.table, owner).Scan(&one)
	switch {
	case errors.Is(err, sql.ErrNoRows) || err == nil && src.Moved() != nil:
		return core.ErrLeaseNotOwned
	case err != nil:
		return fmt.Errorf("sqlite: look at the lease: %w", err)
	}
	return nil
}

// surveySQL: table, after, up to, limit, whether receipts matter. The last line of a row's history says since when it is dead
// or skipped.
const surveySQL = `SELECT {order}, {state}, CAST({deliveries} AS INTEGER), CASE
		WHEN {state} = 'published' THEN {now} - {published known}
		WHEN {state} IN ('dead', 'skipped') THEN (SELECT {now} - connectd_at FROM (SELECT tbl AS connectd_tbl, seq AS connectd_seq, n AS connectd_n, at AS connectd_at FROM connectd_attempt) a
			WHERE connectd_tbl = ?1 AND connectd_seq = {order} ORDER BY connectd_n DESC LIMIT 1) END,
	CASE WHEN ?5 AND ` + layout.Owes + ` THEN EXISTS (SELECT 1 FROM (SELECT command_id AS connectd_command, status AS connectd_status FROM connectd_receipt) r
		WHERE connectd_command = CAST({id} AS TEXT) AND connectd_status = 'done') ELSE 1 END
	FROM {rows} WHERE {order} > ?2 AND {order} <= ?3 ORDER BY {order} LIMIT ?4`

func (src *Source) survey(ctx context.Context, req core.CleanRequest) (core.Cleaned, map[kind][]int64, error) {
	c, due := core.Cleaned{Removed: map[core.State]int{}}, map[kind][]int64{}
	upTo, found := req.UpTo, 0
	if upTo == 0 {
		upTo = 1<<63 - 1
	}
	rows, err := src.read.QueryContext(ctx, src.text.fill(surveySQL), src.s.table, req.After, upTo, req.Limit, req.Retention.RequireReceipt)
	if err != nil {
		return c, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var seq int64
		var k kind
		var since sql.NullInt64
		var receipt bool
		if err := rows.Scan(&seq, &k.state, &k.deliveries, &since, &receipt); err != nil {
			return c, nil, err
		}
		c.Looked, c.Last = c.Looked+1, seq
		kept := core.Kept{State: k.state, Since: -1, Receipt: receipt}
		if since.Valid {
			kept.Since = max(milliseconds(since.Int64), 0)
		}
		if goes, again := req.Retention.Judge(kept); goes && !req.Full(found) {
			found++
			due[k] = append(due[k], seq)
		} else {
			c.Leave(again)
		}
	}
	return c, due, rows.Err()
}

// kind is what rows that one statement removes have in common. A row that was dead, retried and dead again has more
// deliveries.
type kind struct {
	state      core.State
	deliveries int
}

// removeDue removes rows, unless they changed since they were seen, and counts them.
func (src *Source) removeDue(ctx context.Context, tx *sql.Tx, due map[kind][]int64, c *core.Cleaned) error {
	for k, seqs := range due {
		gone, err := src.removeKind(ctx, tx, k, seqs)
		if err != nil {
			return fmt.Errorf("remove %s rows: %w", k.state, err)
		}
		c.LeaveLocked(len(seqs) - len(gone))
		if len(gone) == 0 {
			continue
		}
		c.Removed[k.state] += len(gone)
		list := jsonSeqs(gone)
		for _, beside := range []string{"connectd_attempt", "connectd_revision"} {
			if _, err := tx.ExecContext(ctx, `DELETE FROM `+beside+` WHERE tbl = ?1 AND seq IN (SELECT value FROM json_each(?2))`, src.s.table, list); err != nil {
				return fmt.Errorf("remove their lines in %s: %w", beside, err)
			}
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO connectd_ledger (tbl, day, state, count) VALUES (?, date('now'), ?, ?)
			ON CONFLICT DO UPDATE SET count = count + excluded.count`, src.s.table, string(k.state), len(gone)); err != nil {
			return fmt.Errorf("count them: %w", err)
		}
	}
	return nil
}

// removeKind removes rows and says which were still as they were seen. The ids of those that have a receipt are kept
// beside the receipts.
func (src *Source) removeKind(ctx context.Context, tx *sql.Tx, k kind, seqs []int64) ([]int64, error) {
	found, err := tx.QueryContext(ctx, src.text.fill(`DELETE FROM {rows} WHERE {order} IN (SELECT value FROM json_each(?1)) AND {state} = ?2 AND CAST({deliveries} AS INTEGER) = ?3
		RETURNING {order}, CAST({id} AS TEXT)`), jsonSeqs(seqs), string(k.state), k.deliveries)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var gone []int64
	var ids []string
	for found.Next() {
		var seq int64
		var id sql.NullString
		if err := found.Scan(&seq, &id); err != nil {
			return nil, err
		}
		if gone = append(gone, seq); id.Valid {
			ids = append(ids, id.String)
		}
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO connectd_cleaned (tbl, command_id, at) SELECT ?1, id, `+nowMS+` FROM (SELECT CAST(unhex(value) AS TEXT) AS id FROM json_each(?2))
		WHERE EXISTS (SELECT 1 FROM connectd_receipt WHERE command_id = id) ON CONFLICT DO UPDATE SET at = excluded.at`, src.s.table, jsonHex(ids))
	if err != nil {
		return nil, fmt.Errorf("keep the ids of those that have a receipt: %w", err)
	}
	return gone, nil
}
