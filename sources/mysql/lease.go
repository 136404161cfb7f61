package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// Heartbeat tells that owner lives, and counts who does. It learns as well which version of the schema the table has by
// now. Its statements stand alone: workers that swept in one transaction
// with their own heartbeat would wait for each other in a circle.
func (src *Source) Heartbeat(ctx context.Context, owner string, info []byte, ttl time.Duration) (core.Pulse, error) {
	var pulse core.Pulse
	err := src.try(ctx, "heartbeat", func() error {
		_, err := src.keep.ExecContext(ctx, src.text.fill(`INSERT INTO {worker} (tbl, owner, heartbeat, info) VALUES (?, ?, {now}, ?)
			ON DUPLICATE KEY UPDATE heartbeat = {now}, info = ?`), src.s.table.name, owner, info, info)
		return err
	})
	if err != nil {
		return pulse, err
	}
	err = src.try(ctx, "heartbeat", func() error {
		pulse = core.Pulse{}
		var silent []string
		err := collect(ctx, src.keep, func(rows *sql.Rows) error {
			var other string
			var us int64
			if err := rows.Scan(&other, &us); err != nil {
				return err
			}
			age := micros(us).Abs()
			if age < ttl || other == owner {
				pulse.Live++
			} else if age > 10*ttl {
				silent = append(silent, other)
			}
			return nil
		}, src.text.fill(`SELECT owner, TIMESTAMPDIFF(MICROSECOND, heartbeat, {now}) FROM {worker} WHERE tbl = ?`), src.s.table.name)
		if err != nil {
			return err
		}
		for _, other := range silent {
			_, err := src.keep.ExecContext(ctx, src.text.fill(`DELETE FROM {worker} WHERE tbl = ? AND owner = ?
				AND heartbeat NOT BETWEEN {now} - INTERVAL ? MICROSECOND AND {now} + INTERVAL ? MICROSECOND`), src.s.table.name, other, 10*ttl.Microseconds(), 10*ttl.Microseconds())
			if err != nil {
				return err
			}
		}
		var version int64
		err = src.keep.QueryRowContext(ctx, src.text.fill(`SELECT changes, version FROM {outbox} WHERE tbl = ?`), src.s.table.name).Scan(&pulse.Changes, &version)
		if err == nil {
			src.version.Store(version)
		}
		return err
	})
	return pulse, err
}

// Leave forgets owner.
func (src *Source) Leave(ctx context.Context, owner string) error {
	return src.try(ctx, "leave", func() error {
		_, err := src.keep.ExecContext(ctx, src.text.fill(`DELETE FROM {worker} WHERE tbl = ? AND owner = ?`), src.s.table.name, owner)
		return err
	})
}

const takeable = `tbl = ? AND (owner IS NULL OR lease_until <= {now})`

// Acquire takes partitions that are free or whose lease has run out. A worker that has its share, or stands by, asks often,
// so it looks first without a lock. Then it locks none but those it takes, by the primary key, and passes over those that
// others hold: https://github.com/OneUptime/blog/pull/160
func (src *Source) Acquire(ctx context.Context, owner string, limit int, lease time.Duration, hold bool) ([]core.Acquired, error) {
	if limit < 1 {
		return nil, ctx.Err()
	}
	var free []int
	err := src.try(ctx, "acquire", func() error {
		free = nil
		return collect(ctx, src.keep, func(rows *sql.Rows) error {
			var part int
			if err := rows.Scan(&part); err != nil {
				return err
			}
			free = append(free, part)
			return nil
		}, src.text.fill(`SELECT part FROM {lease} WHERE `+takeable+` ORDER BY part`), src.s.table.name)
	})
	if err != nil || free == nil {
		return nil, err
	}
	var taken []core.Acquired
	err = src.transact(ctx, src.keep, "acquire", func(tx *sql.Tx) error {
		taken = nil
		before := map[int]string{} // the leases' last owners
		err := collect(ctx, tx, func(rows *sql.Rows) error {
			var a core.Acquired
			var last sql.NullString
			if err := rows.Scan(&a.Lease.Part, &last, &a.Lease.Epoch); err != nil {
				return err
			}
			a.Lease.Epoch++
			a.TakenOver, before[a.Lease.Part] = last.Valid, last.String
			taken = append(taken, a)
			return nil
		}, src.text.fill(`SELECT part, owner, epoch FROM {lease} FORCE INDEX (PRIMARY) WHERE `+takeable+` AND part IN `+list(free)+
			` ORDER BY part LIMIT ? FOR UPDATE SKIP LOCKED`), src.s.table.name, limit)
		if err != nil || taken == nil {
			return err
		}
		_, err = tx.ExecContext(ctx, src.text.fill(`UPDATE {lease} SET owner = ?, epoch = epoch + 1, lease_until = {now} + INTERVAL ? MICROSECOND
			WHERE tbl = ? AND part IN `+list(parts(taken))), owner, lease.Microseconds(), src.s.table.name)
		if err != nil {
			return err
		}
		return src.recover(ctx, tx, owner, hold, taken, before)
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

func parts(taken []core.Acquired) []int {
	list := make([]int, len(taken))
	for i, a := range taken {
		list[i] = a.Lease.Part
	}
	return list
}

// recover counts a crash for each pending row that an inflight row of the partitions names, and deletes the inflight rows.
// before has the leases' last owners. It begins after the leases are locked, and each of its statements sees what was committed before it.
func (src *Source) recover(ctx context.Context, tx *sql.Tx, owner string, hold bool, taken []core.Acquired, before map[int]string) error {
	announced, err := src.inflight(ctx, tx, `AND part IN `+list(parts(taken)))
	if err != nil || announced.batches == 0 {
		return err
	}
	var notes []entry
	for i := range taken {
		a := &taken[i]
		sent := map[int64]time.Time{}
		for _, seq := range announced.seqs[a.Lease.Part] {
			sent[seq] = announced.sent[seq].At
		}
		for message, all := range layout.Interrupted(before[a.Lease.Part], sent) {
			for seqs := range slices.Chunk(all, chunk) {
				found, err := src.countCrashes(ctx, tx, hold, seqs, message)
				if err != nil {
					return err
				}
				a.Recovered = append(a.Recovered, found...)
			}
		}
		slices.SortFunc(a.Recovered, func(a, b core.Recovered) int { return cmp.Compare(a.Seq, b.Seq) })
		for _, r := range a.Recovered {
			message := core.Interrupted(before[a.Lease.Part], sent[r.Seq])
			switch r.State {
			case core.Dead:
				notes = append(notes, entry{seq: r.Seq, by: owner, failure: core.Failure{Code: core.ReasonCrash, Message: message}})
			case core.Held:
				notes = append(notes, entry{seq: r.Seq, by: owner, failure: core.Failure{Code: core.ReasonUncertain, Message: message}})
			}
		}
	}
	if err := src.note(ctx, tx, notes); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, src.text.fill(`DELETE FROM {inflight} WHERE tbl = ? AND part IN `+list(parts(taken))), src.s.table.name)
	return err
}

// countCrashes reads the rows that are pending, with a lock, and counts one for each. Assignments happen from left to
// right, so crashes comes after what is computed from it.
func (src *Source) countCrashes(ctx context.Context, tx *sql.Tx, hold bool, seqs []int64, message string) ([]core.Recovered, error) {
	var found []core.Recovered
	var pending []int64
	err := collect(ctx, tx, func(rows *sql.Rows) error {
		r := core.Recovered{State: core.Pending}
		if err := rows.Scan(&r.Seq, &r.Crashes); err != nil {
			return err
		}
		r.Crashes++
		switch {
		case r.Crashes >= core.MaxCrashes:
			r.State = core.Dead
		case hold:
			r.State = core.Held
		}
		pending = append(pending, r.Seq)
		found = append(found, r)
		return nil
	}, src.text.fill(`SELECT {order}, {crashes known} FROM `+bySeq+` WHERE {order} IN `+list(seqs)+` AND {state} = 'pending' FOR UPDATE`))
	if err != nil || found == nil {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, src.text.fill(fmt.Sprintf(`UPDATE `+bySeq+` SET {deliveries} = {deliveries known} + 1,
		{last_error} = CASE WHEN {crashes known} + 1 >= %[1]d THEN ? WHEN ? THEN ? ELSE {last_error} END,
		{state} = CASE WHEN {crashes known} + 1 >= %[1]d THEN 'dead' WHEN ? THEN 'held' ELSE 'pending' END,
		{crashes} = {crashes known} + 1{keep} WHERE {order} IN %[2]s AND {state} = 'pending'`, core.MaxCrashes, list(pending))),
		core.ReasonCrash+": "+message, hold, core.ReasonUncertain+": "+message, hold)
	return found, err
}

// Renew moves the deadlines of the leases that are still owner's, also when they have run out. The server counts the rows it
// found, changed or not: https://github.com/pydio/cells/pull/927. When it found fewer, the others have another owner or
// epoch by now and will not come back, so that those that can still be seen are those that were found.
func (src *Source) Renew(ctx context.Context, owner string, leases []core.Lease, lease time.Duration) ([]core.Lease, error) {
	if len(leases) == 0 {
		return nil, ctx.Err()
	}
	all := make([]int, len(leases))
	each := make([]string, len(leases))
	for i, l := range leases {
		all[i] = l.Part
		each[i] = fmt.Sprintf("part = %d AND epoch = %d", l.Part, l.Epoch)
	}
	mine := ` WHERE tbl = ? AND owner = ? AND part IN ` + list(all) + ` AND (` + strings.Join(each, " OR ") + `)`
	var kept []core.Lease
	err := src.try(ctx, "renew", func() error {
		kept = nil
		res, err := src.keep.ExecContext(ctx, src.text.fill(`UPDATE {lease} SET lease_until = {now} + INTERVAL ? MICROSECOND`+mine),
			lease.Microseconds(), src.s.table.name, owner)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return err
		}
		if n == int64(len(leases)) {
			kept = slices.Clone(leases)
			return nil
		}
		return collect(ctx, src.keep, func(rows *sql.Rows) error {
			var l core.Lease
			if err := rows.Scan(&l.Part, &l.Epoch); err != nil {
				return err
			}
			kept = append(kept, l)
			return nil
		}, src.text.fill(`SELECT part, epoch FROM {lease}`+mine), src.s.table.name, owner)
	})
	if err != nil {
		return nil, err
	}
	return kept, nil
}

// Release gives the lease back.
func (src *Source) Release(ctx context.Context, owner string, l core.Lease) error {
	return src.transact(ctx, src.keep, "release", func(tx *sql.Tx) error {
		if err := src.fence(ctx, tx, owner, []core.Lease{l}); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, src.text.fill(`UPDATE {lease} SET owner = NULL, lease_until = {now} WHERE tbl = ? AND part = ?`), src.s.table.name, l.Part)
		return err
	})
}

// lockLeases takes the table's name and the owner.
func (t texts) lockLeases(parts []int) string {
	return t.fill(`SELECT TIMESTAMPDIFF(MICROSECOND, {now}, lease_until), part, epoch FROM {lease} FORCE INDEX (PRIMARY)
		WHERE tbl = ? AND owner = ? AND part IN ` + list(parts) + ` ORDER BY part FOR UPDATE`)
}

// fence fails with ErrLeaseNotOwned unless all leases are owner's, and locks them, in the order of the primary key as a
// renewal does. The server takes its time when a statement begins, which may be long before it gets the locks; so the whole
// time that the statement took is subtracted.
func (src *Source) fence(ctx context.Context, tx *sql.Tx, owner string, leases []core.Lease) error {
	parts := make([]int, len(leases))
	for i, l := range leases {
		parts[i] = l.Part
	}
	begun := time.Now()
	left := map[core.Lease]time.Duration{}
	err := collect(ctx, tx, func(rows *sql.Rows) error {
		var l core.Lease
		var us int64
		if err := rows.Scan(&us, &l.Part, &l.Epoch); err != nil {
			return err
		}
		left[l] = micros(us)
		return nil
	}, src.text.lockLeases(parts), src.s.table.name, owner)
	if err != nil {
		return err
	}
	took := time.Since(begun)
	for _, l := range leases {
		if left[l] <= took {
			return core.ErrLeaseNotOwned
		}
	}
	return nil
}
