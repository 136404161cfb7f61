package postgres

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

var _ core.Books = (*Source)(nil)

// bounded keeps a transaction that cleans from waiting, with what it has locked, behind somebody who has locked a whole
// table, and from working on when nobody waits for it any more.
const bounded = `SET LOCAL lock_timeout = '1s'; SET LOCAL statement_timeout = '5s'`

// unhurried is bounded for what may be undone by a crash of the server: what was removed is there again then, and not
// counted. So no lock is held until the log is on disk, nor until a replica has it.
const unhurried = bounded + `; SET LOCAL synchronous_commit = off`

// cleaner finds one row if the owner holds the lease of partition 0: table, owner. The lease is not locked, so that the
// worker's own steps do not wait.
const cleaner = `SELECT 1 FROM {connectd_lease} WHERE tbl = $1::text AND part = 0 AND owner = $2::text AND lease_until > {now}`

// Clean removes rows whose time has come. It looks first, without a lock, and then removes what it found by the rows'
// numbers.
func (src *Source) Clean(ctx context.Context, req core.CleanRequest) (core.Cleaned, error) {
	if err := src.mayClean(ctx, req.Owner); err != nil {
		return core.Cleaned{}, err
	}
	c, due, err := src.survey(ctx, req)
	if err != nil || len(due.seqs) == 0 {
		return c, err
	}
	var begun time.Time
	err = src.transact(ctx, src.work, "clean", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, unhurried); err != nil {
			return err
		}
		begun = time.Now()
		return src.remove(ctx, tx, req.Owner, due, &c)
	})
	if !begun.IsZero() {
		c.Held = time.Since(begun)
	}
	return c, err
}

func (src *Source) mayClean(ctx context.Context, owner string) error {
	return src.run(ctx, src.work, "clean", func(q querier) error {
		var may bool
		if err := q.QueryRow(ctx, src.text.fill(`SELECT EXISTS (`+cleaner+`)`), src.s.table.name, owner).Scan(&may); err != nil {
			return err
		}
		if !may {
			return core.ErrLeaseNotOwned
		}
		return nil
	})
}

// dueRows are rows that may be removed, in the order of their seqs, as they were seen.
type dueRows struct {
	seqs       []int64
	states     []string
	deliveries []int32
}

// seen: table, after, up to, limit, whether receipts matter. The last line of a row's history says since when it is dead
// or skipped. Subqueries of one row are looked up row by row; an EXISTS might be answered by reading all receipts.
const seen = `SELECT {order}::bigint, {state}, {deliveries}, CASE
		WHEN {state} = 'published' THEN CASE WHEN {published_at} BETWEEN '0001-01-02' AND '9999-12-30' THEN (extract(epoch FROM {now} - {published_at}) * 1000000)::bigint END
		WHEN {state} IN ('dead', 'skipped') THEN (SELECT (extract(epoch FROM {now} - connectd_at) * 1000000)::bigint
			FROM (SELECT tbl AS connectd_tbl, seq AS connectd_seq, n AS connectd_n, at AS connectd_at FROM {connectd_attempt}) a
			WHERE connectd_tbl = $1::text AND connectd_seq = {order} ORDER BY connectd_n DESC LIMIT 1) END,
	CASE WHEN $5::boolean AND ` + layout.Owes + ` THEN coalesce((SELECT true
		FROM (SELECT command_id AS connectd_command, status AS connectd_status FROM {connectd_receipt}) r
		WHERE connectd_command = {id}::text AND connectd_status = 'done' LIMIT 1), false) ELSE true END
	FROM {table} WHERE {order} > $2::bigint AND {order} <= $3::bigint ORDER BY {order} LIMIT $4::bigint`

func (src *Source) survey(ctx context.Context, req core.CleanRequest) (c core.Cleaned, due dueRows, err error) {
	text, upTo := src.text.fill(seen), req.UpTo
	if upTo == 0 {
		upTo = math.MaxInt64
	}
	err = src.run(ctx, src.work, "look for rows to clean", func(q querier) error {
		c, due = core.Cleaned{Removed: map[core.State]int{}}, dueRows{}
		rows, err := q.Query(ctx, text, src.s.table.name, req.After, upTo, int64(req.Limit), req.Retention.RequireReceipt)
		if err != nil {
			return err
		}
		var seq int64
		var state string
		var deliveries int32
		var since pgtype.Int8
		var receipt bool
		_, err = pgx.ForEachRow(rows, []any{&seq, &state, &deliveries, &since, &receipt}, func() error {
			c.Looked, c.Last = c.Looked+1, seq
			kept := core.Kept{State: core.State(state), Since: -1, Receipt: receipt}
			if since.Valid {
				kept.Since = max(microseconds(since.Int64), 0)
			}
			goes, again := req.Retention.Judge(kept)
			if goes && !req.Full(len(due.seqs)) {
				due.seqs, due.states, due.deliveries = append(due.seqs, seq), append(due.states, state), append(due.deliveries, deliveries)
				return nil
			}
			c.Leave(again)
			return nil
		})
		return err
	})
	return c, due, err
}

// removal: table, owner, seqs, states, deliveries. What changed since it was seen, and what another transaction has locked,
// stays. The ids of rows that have a receipt are kept beside the receipts.
const removal = `WITH mine AS MATERIALIZED (` + cleaner + `),
	held AS MATERIALIZED (SELECT {order}::bigint AS seq FROM {table} WHERE {order} = ANY ($3::bigint[]) AND (SELECT count(*) FROM mine) = 1
		AND CASE {state} WHEN ($4::text[])[width_bucket({order}::bigint, $3::bigint[])] THEN {deliveries} END = ($5::integer[])[width_bucket({order}::bigint, $3::bigint[])]
		FOR UPDATE SKIP LOCKED),
	gone AS (DELETE FROM {table} WHERE {order} = ANY (ARRAY(SELECT seq FROM held)) RETURNING {order}::bigint AS seq, {state}::text AS state, {id}::text AS id),
	booked AS (INSERT INTO {connectd_ledger} (tbl, day, state, count) SELECT $1::text, ({now} AT TIME ZONE 'UTC')::date, state, count(*) FROM gone GROUP BY state),
	forgotten AS (DELETE FROM {connectd_attempt} WHERE tbl = $1::text AND seq = ANY (ARRAY(SELECT seq FROM gone))),
	unrevised AS (DELETE FROM {connectd_revision} WHERE tbl = $1::text AND seq = ANY (ARRAY(SELECT seq FROM gone))),
	named AS (INSERT INTO {connectd_cleaned} (tbl, command_id, at) SELECT $1::text, id, {now} FROM gone
		WHERE (SELECT true FROM {connectd_receipt} r WHERE r.command_id = gone.id LIMIT 1) ON CONFLICT (tbl, command_id) DO UPDATE SET at = excluded.at)
	SELECT state, count(*) FROM gone GROUP BY state`

func (src *Source) remove(ctx context.Context, tx pgx.Tx, owner string, due dueRows, c *core.Cleaned) error {
	rows, err := tx.Query(ctx, src.text.fill(removal), src.s.table.name, owner, due.seqs, due.states, due.deliveries)
	if err != nil {
		return err
	}
	clear(c.Removed)
	left := len(due.seqs)
	var state string
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&state, &n}, func() error {
		c.Removed[core.State(state)] = int(n)
		left -= int(n)
		return nil
	}); err != nil {
		return err
	}
	c.LeaveLocked(left)
	return nil
}
