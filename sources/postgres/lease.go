package postgres

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// heartbeat: table, owner, info, microseconds in which a worker counts as live. Workers that are deleted are locked by
// nobody, so that two heartbeats that delete each other's workers do not wait for each other.
const heartbeat = `WITH me AS (
		INSERT INTO {connectd_worker} (tbl, owner, heartbeat, info) VALUES ($1::text, $2::text, {now}, $3::bytea)
		ON CONFLICT (tbl, owner) DO UPDATE SET heartbeat = {now}, info = excluded.info
	), gone AS (
		DELETE FROM {connectd_worker} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {connectd_worker}
			WHERE tbl = $1 AND owner <> $2 AND (heartbeat < {now} - 10 * $4::bigint * interval '1 microsecond'
				OR heartbeat > {now} + 10 * $4::bigint * interval '1 microsecond') FOR UPDATE SKIP LOCKED))
	)
	SELECT 1 + (SELECT count(*) FROM {connectd_worker} WHERE tbl = $1 AND owner <> $2 AND heartbeat > {now} - $4::bigint * interval '1 microsecond'
			AND heartbeat < {now} + $4::bigint * interval '1 microsecond'),
		(SELECT changes FROM {connectd_outbox} WHERE tbl = $1), (SELECT version FROM {connectd_outbox} WHERE tbl = $1)`

// Heartbeat tells that owner lives, and counts who does. It learns as well which version of the schema the table has by
// now.
func (src *Source) Heartbeat(ctx context.Context, owner string, info []byte, ttl time.Duration) (core.Pulse, error) {
	var pulse core.Pulse
	err := src.run(ctx, src.keep, "heartbeat", func(q querier) error {
		var version int64
		err := q.QueryRow(ctx, src.text.fill(heartbeat), src.s.table.name, owner, info, ttl.Microseconds()).Scan(&pulse.Live, &pulse.Changes, &version)
		if err == nil {
			src.version.Store(version)
		}
		return err
	})
	if err == nil {
		err = src.sumLedger(ctx)
	}
	return pulse, err
}

// sumLedger adds the ledger's lines to the day's sum, so that there are never many. Several workers may do it at once:
// each line is deleted once.
func (src *Source) sumLedger(ctx context.Context) error {
	return src.run(ctx, src.keep, "sum the ledger", func(q querier) error {
		_, err := q.Exec(ctx, src.text.fill(`WITH lines AS (
				DELETE FROM {connectd_ledger} WHERE tbl = $1::text AND n > 0 RETURNING day, state, count
			)
			INSERT INTO {connectd_ledger} AS l (tbl, day, state, n, count) SELECT $1, day, state, 0, sum(count) FROM lines GROUP BY day, state
			ON CONFLICT (tbl, day, state, n) DO UPDATE SET count = l.count + excluded.count`), src.s.table.name)
		return err
	})
}

// Leave forgets owner.
func (src *Source) Leave(ctx context.Context, owner string) error {
	return src.run(ctx, src.keep, "leave", func(q querier) error {
		_, err := q.Exec(ctx, src.text.fill(`DELETE FROM {connectd_worker} WHERE tbl = $1::text AND owner = $2::text`), src.s.table.name, owner)
		return err
	})
}

// takeable are the leases that are free or have run out.
const takeable = ` FROM {connectd_lease} WHERE tbl = $1::text AND (owner IS NULL OR lease_until <= {now})`

// Acquire takes partitions that are free or whose leases have run out. A worker that stands by asks often, so it looks
// first.
func (src *Source) Acquire(ctx context.Context, owner string, limit int, lease time.Duration, hold bool) ([]core.Acquired, error) {
	if limit < 1 {
		return nil, ctx.Err()
	}
	var free bool
	err := src.run(ctx, src.keep, "acquire", func(q querier) error {
		return q.QueryRow(ctx, src.text.fill(`SELECT EXISTS (SELECT 1`+takeable+`)`), src.s.table.name).Scan(&free)
	})
	if err != nil || !free {
		return nil, err
	}
	var taken []core.Acquired
	err = src.transact(ctx, src.keep, "acquire", func(tx pgx.Tx) error {
		var err error
		taken, err = src.acquire(ctx, tx, owner, limit, lease, hold)
		return err
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

// acquire runs in one transaction. The inflight rows are read by a statement that begins when the leases are locked: in
// one statement with the lock its snapshot would be older, and an announcement that has just been committed would be
// missed.
func (src *Source) acquire(ctx context.Context, tx pgx.Tx, owner string, limit int, lease time.Duration, hold bool) ([]core.Acquired, error) {
	t, tbl := src.text, src.s.table.name
	var parts []int32
	before := map[int32]pgtype.Text{} // the leases' last owners
	rows, err := tx.Query(ctx, t.fill(`SELECT part, owner`+takeable+` ORDER BY part LIMIT $2::bigint FOR UPDATE SKIP LOCKED`), tbl, int64(limit))
	if err != nil {
		return nil, err
	}
	var part int32
	var last pgtype.Text
	if _, err = pgx.ForEachRow(rows, []any{&part, &last}, func() error {
		parts, before[part] = append(parts, part), last
		return nil
	}); err != nil || len(parts) == 0 {
		return nil, err
	}
	rows, err = tx.Query(ctx, t.fill(`UPDATE {connectd_lease} SET owner = $2::text, epoch = epoch + 1, lease_until = {now} + $3::bigint * interval '1 microsecond'
		WHERE tbl = $1::text AND part = ANY ($4::integer[]) RETURNING part, epoch, `+durable), tbl, owner, lease.Microseconds(), parts)
	if err != nil {
		return nil, err
	}
	var taken []core.Acquired
	var epoch int64
	if _, err = pgx.ForEachRow(rows, []any{&part, &epoch, nil}, func() error {
		taken = append(taken, core.Acquired{Lease: core.Lease{Part: int(part), Epoch: epoch}, TakenOver: before[part].Valid})
		return nil
	}); err != nil {
		return nil, err
	}
	slices.SortFunc(taken, func(a, b core.Acquired) int { return cmp.Compare(a.Lease.Part, b.Lease.Part) })
	return taken, src.recover(ctx, tx, owner, taken, before, hold)
}

// recover counts a crash for each pending row that an inflight row names, and deletes the inflight rows. before has the
// leases' last owners.
func (src *Source) recover(ctx context.Context, tx pgx.Tx, owner string, taken []core.Acquired, before map[int32]pgtype.Text, hold bool) error {
	rows, err := tx.Query(ctx, src.text.fill(`DELETE FROM {connectd_inflight} WHERE tbl = $1::text AND part = ANY ($2::integer[]) RETURNING part, seqs, sent_at`),
		src.s.table.name, slices.Collect(maps.Keys(before)))
	if err != nil {
		return err
	}
	announced := map[int32]map[int64]time.Time{} // by partition and seq
	var part int32
	var seqs []int64
	var at time.Time
	if _, err = pgx.ForEachRow(rows, []any{&part, &seqs, &at}, func() error {
		if announced[part] == nil {
			announced[part] = map[int64]time.Time{}
		}
		for _, seq := range seqs {
			announced[part][seq] = at
		}
		return nil
	}); err != nil {
		return err
	}
	for i := range taken {
		a := &taken[i]
		part := int32(a.Lease.Part)
		for message, seqs := range layout.Interrupted(before[part].String, announced[part]) {
			found, err := src.countCrashes(ctx, tx, owner, seqs, message, hold)
			if err != nil {
				return err
			}
			a.Recovered = append(a.Recovered, found...)
		}
		slices.SortFunc(a.Recovered, func(a, b core.Recovered) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	return nil
}

// crashed: table, seqs, crashes that bury, whether to hold, by whom, what happened. It notes why rows are no longer pending. They are
// found by their seqs, as in a step.
const crashed = `WITH counted AS (
		UPDATE {table} SET {deliveries} = {deliveries known} + 1, {crashes} = {crashes known} + 1,
			{state} = CASE WHEN {crashes known} + 1 >= $3::integer THEN 'dead' WHEN $4::boolean THEN 'held' ELSE 'pending' END,
			{last_error} = CASE WHEN {crashes known} + 1 >= $3 THEN '` + core.ReasonCrash + `: ' || $6::text WHEN $4 THEN '` + core.ReasonUncertain + `: ' || $6 ELSE {last_error} END
		WHERE {order} = ANY ($2::bigint[]) AND CASE {state} WHEN 'pending' THEN true END
		RETURNING {order}::bigint AS seq, {state} AS state, {crashes} AS crashes, {deliveries} AS deliveries
	), noted AS (
		INSERT INTO {connectd_attempt} (tbl, seq, at, deliveries, code, message, by, duration_us)
		SELECT $1::text, seq, {now}, deliveries, CASE state WHEN 'dead' THEN '` + core.ReasonCrash + `' ELSE '` + core.ReasonUncertain + `' END, $6, $5::text, 0
		FROM counted WHERE state <> 'pending'
	)
	SELECT seq, state, crashes FROM counted ORDER BY seq`

func (src *Source) countCrashes(ctx context.Context, tx pgx.Tx, owner string, seqs []int64, message string, hold bool) ([]core.Recovered, error) {
	rows, err := tx.Query(ctx, src.text.fill(crashed), src.s.table.name, seqs, int32(core.MaxCrashes), hold, src.clean(owner), src.clean(message))
	if err != nil {
		return nil, err
	}
	var found []core.Recovered
	var r core.Recovered
	_, err = pgx.ForEachRow(rows, []any{&r.Seq, &r.State, &r.Crashes}, func() error {
		found = append(found, r)
		return nil
	})
	return found, err
}

// Renew moves the deadlines of the leases that are still owner's, also when they have run out. It locks them in the order
// in which a step does, so that neither waits for the other in a circle.
func (src *Source) Renew(ctx context.Context, owner string, leases []core.Lease, lease time.Duration) ([]core.Lease, error) {
	parts, epochs := make([]int32, len(leases)), make([]int64, len(leases))
	for i, l := range leases {
		parts[i], epochs[i] = int32(l.Part), l.Epoch
	}
	text := src.text.fill(`WITH mine AS MATERIALIZED (
			SELECT l.part FROM {connectd_lease} l JOIN unnest($4::integer[], $5::bigint[]) u (part, epoch) ON l.part = u.part AND l.epoch = u.epoch
			WHERE l.tbl = $1::text AND l.owner = $2::text ORDER BY l.part FOR NO KEY UPDATE OF l
		)
		UPDATE {connectd_lease} SET lease_until = {now} + $3::bigint * interval '1 microsecond'
		WHERE tbl = $1 AND part = ANY (ARRAY(SELECT part FROM mine)) AND owner = $2 RETURNING part, epoch, ` + durable)
	var kept []core.Lease
	err := src.run(ctx, src.keep, "renew", func(q querier) error {
		kept = nil
		rows, err := q.Query(ctx, text, src.s.table.name, owner, lease.Microseconds(), parts, epochs)
		if err != nil {
			return err
		}
		var l core.Lease
		_, err = pgx.ForEachRow(rows, []any{&l.Part, &l.Epoch, nil}, func() error {
			kept = append(kept, l)
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return kept, nil
}

// Release gives the lease back.
func (src *Source) Release(ctx context.Context, owner string, l core.Lease) error {
	text := src.text.fill(`UPDATE {connectd_lease} SET owner = NULL, lease_until = {now}
		WHERE tbl = $1::text AND part = $2::integer AND owner = $3::text AND epoch = $4::bigint AND lease_until > {now}`)
	return src.run(ctx, src.keep, "release", func(q querier) error {
		tag, err := q.Exec(ctx, text, src.s.table.name, int64(l.Part), owner, l.Epoch)
		if err == nil && tag.RowsAffected() == 0 {
			return core.ErrLeaseNotOwned
		}
		return err
	})
}
