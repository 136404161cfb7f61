package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// fenceSQL selects one row if the lease is the owner's and has not run out.
const fenceSQL = `SELECT 1 FROM connectd_lease WHERE tbl = ? AND part = ? AND owner = ? AND epoch = ? AND lease_until > ` + nowMS

// Heartbeat tells that owner lives, and counts who does.
func (src *Source) Heartbeat(ctx context.Context, owner string, info []byte, ttl time.Duration) (core.Pulse, error) {
	var pulse core.Pulse
	err := src.transact(ctx, "heartbeat", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO connectd_worker (tbl, owner, heartbeat, info) VALUES (?1, ?2, `+nowMS+`, ?3)
			ON CONFLICT DO UPDATE SET heartbeat = excluded.heartbeat, info = excluded.info`, src.s.table, owner, info)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM connectd_worker WHERE tbl = ? AND heartbeat < `+nowMS+` - ?`,
			src.s.table, 10*ttl.Milliseconds())
		if err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM connectd_worker WHERE tbl = ?1 AND heartbeat > `+nowMS+` - ?2),
			(SELECT changes FROM connectd_outbox WHERE tbl = ?1)`, src.s.table, ttl.Milliseconds()).Scan(&pulse.Live, &pulse.Changes)
	})
	return pulse, err
}

// Leave forgets owner.
func (src *Source) Leave(ctx context.Context, owner string) error {
	return src.transact(ctx, "leave", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM connectd_worker WHERE tbl = ? AND owner = ?`, src.s.table, owner)
		return err
	})
}

// takeableSQL selects one row, the lease's last owner, if it is free or has run out.
const takeableSQL = `SELECT owner FROM connectd_lease
	WHERE tbl = ? AND part = 0 AND (owner IS NULL OR lease_until <= ` + nowMS + `)`

// Acquire takes the partition if it is free or its lease has run out. A worker that stands by asks often, so it looks
// first without the write lock.
func (src *Source) Acquire(ctx context.Context, owner string, limit int, lease time.Duration, hold bool) ([]core.Acquired, error) {
	if limit < 1 {
		return nil, ctx.Err()
	}
	if err := src.Moved(); err != nil {
		return nil, err
	}
	var before sql.NullString
	err := src.read.QueryRowContext(ctx, takeableSQL, src.s.table).Scan(&before)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: acquire: %w", err)
	}
	var taken []core.Acquired
	err = src.transact(ctx, "acquire", func(tx *sql.Tx) error {
		taken = nil
		var a core.Acquired
		err := tx.QueryRowContext(ctx, takeableSQL, src.s.table).Scan(&before)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		a.TakenOver = before.Valid
		err = tx.QueryRowContext(ctx, `UPDATE connectd_lease SET owner = ?, epoch = epoch + 1, lease_until = `+nowMS+` + ?
			WHERE tbl = ? AND part = 0 RETURNING epoch`, owner, lease.Milliseconds(), src.s.table).Scan(&a.Lease.Epoch)
		if err != nil {
			return err
		}
		if a.Recovered, err = src.recover(ctx, tx, before.String, owner, hold); err != nil {
			return err
		}
		taken = []core.Acquired{a}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

// recover counts a crash for each pending row that an inflight row names, and deletes the inflight rows. before is the
// lease's last owner.
func (src *Source) recover(ctx context.Context, tx *sql.Tx, before, owner string, hold bool) ([]core.Recovered, error) {
	sent, err := src.announced(ctx, tx)
	if err != nil {
		return nil, err
	}
	var found []core.Recovered
	for message, seqs := range layout.Interrupted(before, sent) {
		some, err := src.countCrashes(ctx, tx, seqs, message, hold)
		if err != nil {
			return nil, err
		}
		for _, r := range some {
			if r.State == core.Pending {
				continue
			}
			e := entry{seq: r.Seq, by: owner, failure: core.Failure{Code: core.ReasonUncertain, Message: message}}
			if r.State == core.Dead {
				e.failure.Code = core.ReasonCrash
			}
			if err := src.note(ctx, tx, e); err != nil {
				return nil, err
			}
		}
		found = append(found, some...)
	}
	slices.SortFunc(found, func(a, b core.Recovered) int { return cmp.Compare(a.Seq, b.Seq) })
	_, err = tx.ExecContext(ctx, `DELETE FROM connectd_inflight WHERE tbl = ?`, src.s.table)
	return found, err
}

// announced is when each row that an inflight row names was announced, by its seq.
func (src *Source) announced(ctx context.Context, tx *sql.Tx) (map[int64]time.Time, error) {
	rows, err := tx.QueryContext(ctx, `SELECT j.value, i.sent_at FROM connectd_inflight i, json_each(i.seqs) j WHERE i.tbl = ?`, src.s.table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	sent := map[int64]time.Time{}
	for rows.Next() {
		var seq int64
		var at instant
		if err := rows.Scan(&seq, &at); err != nil {
			return nil, err
		}
		sent[seq] = at.t
	}
	return sent, rows.Err()
}

func (src *Source) countCrashes(ctx context.Context, tx *sql.Tx, seqs []int64, message string, hold bool) ([]core.Recovered, error) {
	rows, err := tx.StmtContext(ctx, src.st.recover).QueryContext(ctx, jsonSeqs(seqs), core.MaxCrashes, hold, message)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []core.Recovered
	for rows.Next() {
		var r core.Recovered
		if err := rows.Scan(&r.Seq, &r.State, &r.Crashes); err != nil {
			return nil, err
		}
		found = append(found, r)
	}
	return found, rows.Err()
}

// Renew moves the deadlines of the leases that are still owner's, also when they have run out.
func (src *Source) Renew(ctx context.Context, owner string, leases []core.Lease, lease time.Duration) ([]core.Lease, error) {
	var kept []core.Lease
	if src.Moved() != nil {
		return nil, ctx.Err() // whoever opens what the path names now has the rows
	}
	err := src.transact(ctx, "renew", func(tx *sql.Tx) error {
		kept = nil
		for _, l := range leases {
			res, err := tx.ExecContext(ctx, `UPDATE connectd_lease SET lease_until = `+nowMS+` + ?
				WHERE tbl = ? AND part = ? AND owner = ? AND epoch = ?`, lease.Milliseconds(), src.s.table, l.Part, owner, l.Epoch)
			if err != nil {
				return err
			}
			if n, err := res.RowsAffected(); err != nil {
				return err
			} else if n == 1 {
				kept = append(kept, l)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return kept, nil
}

// Release gives the lease back.
func (src *Source) Release(ctx context.Context, owner string, l core.Lease) error {
	return src.transact(ctx, "release", func(tx *sql.Tx) error {
		if err := src.fence(ctx, tx, owner, l); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `UPDATE connectd_lease SET owner = NULL, lease_until = `+nowMS+` WHERE tbl = ? AND part = ?`, src.s.table, l.Part)
		return err
	})
}

// fence fails with ErrLeaseNotOwned unless the lease is owner's. The transaction holds the write lock, so that stays
// true until it ends.
func (src *Source) fence(ctx context.Context, tx *sql.Tx, owner string, l core.Lease) error {
	var one int
	err := tx.StmtContext(ctx, src.st.fence).QueryRowContext(ctx, src.s.table, l.Part, owner, l.Epoch).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return core.ErrLeaseNotOwned
	}
	return err
}
