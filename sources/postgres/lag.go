package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/connectd/connectd/core"
)

// lagBound is where counting rows for the lag stops.
const lagBound = 100_000

// Lag counts what waits, up to lagBound rows of each kind. The ages are those of the oldest rows that were counted.
func (src *Source) Lag(ctx context.Context) (core.Lag, error) {
	var l core.Lag
	err := src.run(ctx, src.work, "lag", func(q querier) error {
		pending, err := src.count(ctx, q, 0, lagBound)
		if err != nil {
			return err
		}
		l = core.Lag{Pending: pending.rows, Due: pending.due, Oldest: pending.oldest, OldestDue: pending.oldestDue}
		return q.QueryRow(ctx, src.text.fill(stopped), src.s.table.name, int64(lagBound)).Scan(&l.Dead, &l.Held, &l.InFlight)
	})
	if err != nil {
		return core.Lag{}, err
	}
	l.Capped = l.Pending > lagBound || l.Dead+l.Held > lagBound || l.InFlight > lagBound
	for _, n := range []*int64{&l.Pending, &l.Due, &l.Dead, &l.Held, &l.InFlight} {
		*n = min(*n, lagBound)
	}
	return l, nil
}

// stopped: table, bound.
const stopped = `SELECT count(*) FILTER (WHERE state = 'dead'), count(*) FILTER (WHERE state = 'held'),
		(SELECT coalesce(sum(cardinality(seqs)), 0) FROM {connectd_inflight} WHERE tbl = $1::text)
	FROM (SELECT {state} AS state FROM {table} WHERE {state} IN ('dead', 'held') LIMIT $2::bigint + 1) r`

// tally is what was counted of the pending rows.
type tally struct {
	rows, due         int64
	oldest, oldestDue time.Duration // ages; 0 without such a row
}

// countPending: partitions, the number behind which to begin in each, how many rows of each. The last number and the ages
// are NULL without such a row.
const countPending = `SELECT l.part, r.* FROM unnest($1::integer[], $2::bigint[]) l (part, after) CROSS JOIN LATERAL (
		SELECT count(*), count(*) FILTER (WHERE due), max(seq),
			(extract(epoch FROM {now} - min(created)) * 1000000)::bigint, (extract(epoch FROM {now} - min(created) FILTER (WHERE due)) * 1000000)::bigint
		FROM (SELECT {order}::bigint AS seq, {created at} AS created, {available_at} IS NULL OR {available_at} <= {now} AS due FROM {table}
			WHERE {part} = l.part AND {state} = 'pending' AND {position} > l.after ORDER BY {position} LIMIT $3::bigint) o) r`

// count counts the pending rows behind a number; when there are more than bound it has counted some more than that, and
// stopped. It takes as many of each partition, the first ones: those lie side by side in the table, where as many rows of
// one partition would be read from that many pages. What partitions do not have is given to the others, in further rounds.
func (src *Source) count(ctx context.Context, q querier, after, bound int64) (tally, error) {
	var sum tally
	var parts []int32
	var afters []int64
	for part := range src.s.partitions {
		parts, afters = append(parts, int32(part)), append(afters, after)
	}
	for len(parts) > 0 && sum.rows <= bound {
		share := (bound-sum.rows)/int64(len(parts)) + 1
		rows, err := q.Query(ctx, src.text.fill(countPending), parts, afters, share)
		if err != nil {
			return tally{}, err
		}
		parts, afters = nil, nil
		var part int32
		var n, due int64
		var last, oldest, oldestDue pgtype.Int8
		if _, err := pgx.ForEachRow(rows, []any{&part, &n, &due, &last, &oldest, &oldestDue}, func() error {
			sum.rows, sum.due = sum.rows+n, sum.due+due
			sum.oldest, sum.oldestDue = max(sum.oldest, microseconds(oldest.Int64)), max(sum.oldestDue, microseconds(oldestDue.Int64))
			if n == share {
				parts, afters = append(parts, part), append(afters, last.Int64)
			}
			return nil
		}); err != nil {
			return tally{}, err
		}
	}
	return sum, nil
}
