package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// byID finds a row by the id as people write it, in the id column's own type, so that its index serves.
func (src *Source) byID(param string) string {
	return src.text.fill(`{id} = ` + param + `::text::` + src.idType())
}

// idType is what a text is cast to before it is compared with ids.
func (src *Source) idType() string {
	kind := src.s.found[src.s.cols.ID].kind
	if kind == "character varying" {
		return "text"
	}
	return castTo(kind)
}

// castTo is a type as a text is cast to it without being cut.
func castTo(kind string) string {
	if kind == "character" {
		return "bpchar" // the other name has a length, of one
	}
	return kind
}

// noRow says that a query found no row, or that there can be none since the id is no value of the column's type.
func noRow(err error) bool {
	return errors.Is(err, pgx.ErrNoRows) || slices.Contains([]string{invalidText, outOfRange, invalidBytes, untranslatable}, sqlState(err))
}

// Retry makes a dead row pending and due, with no attempts.
func (src *Source) Retry(ctx context.Context, act core.Act) error {
	return src.change(ctx, act, "retry", again, nil, core.Dead)
}

// again makes a row pending and due, with no attempts.
const again = `{state} = 'pending', {attempts} = 0, {available_at} = NULL, {failing_since} = NULL`

// ReleaseRow makes a held row pending.
func (src *Source) ReleaseRow(ctx context.Context, act core.Act) error {
	return src.change(ctx, act, "release", `{state} = 'pending'`, nil, core.Held)
}

// Skip settles a dead or held row as skipped.
func (src *Source) Skip(ctx context.Context, act core.Act) error {
	return src.change(ctx, act, "skip", `{state} = 'skipped'`, nil, core.Dead, core.Held)
}

// change sets a row's columns if it is in one of the states, after what else there is to do about it, if anything.
func (src *Source) change(ctx context.Context, act core.Act, verb, set string, also func(tx pgx.Tx, seq int64) error, from ...core.State) error {
	err := src.transact(ctx, src.work, verb, func(tx pgx.Tx) error {
		t := src.text
		var seq int64
		var state core.State
		if _, err := tx.Exec(ctx, lockWait); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, t.fill(`SELECT {order}::bigint, {state} FROM {table} WHERE `)+src.byID(`$1`)+` FOR NO KEY UPDATE`, act.ID).Scan(&seq, &state)
		switch {
		case err != nil && noRow(err):
			return core.ErrNoRow
		case err != nil:
			return err
		}
		if err := layout.Allow(act.ID, state, from...); err != nil {
			return err
		}
		if also != nil {
			if err := also(tx, seq); err != nil {
				return err
			}
		}
		for _, st := range []struct {
			text string
			args []any
		}{
			{`UPDATE {table} SET ` + set + ` WHERE {order} = $1::bigint AND {state} = $2::text`, []any{seq, string(state)}},
			{trimHistory + ` AND a.seq = $2::bigint`, []any{src.s.table.name, seq}},
			{`INSERT INTO {connectd_attempt} (tbl, seq, at, deliveries, code, message, by, duration_us)
				SELECT $1::text, $2::bigint, {now}, {deliveries}, $3::text, $4::text, $5::text, 0 FROM {table} WHERE {order} = $2`,
				[]any{src.s.table.name, seq, verb, src.clean(act.Why), src.clean(act.By)}},
			{`UPDATE {connectd_outbox} SET changes = changes + 1 WHERE tbl = $1::text`, []any{src.s.table.name}},
		} {
			if _, err := tx.Exec(ctx, t.fill(st.text), st.args...); err != nil {
				return err
			}
		}
		return nil
	})
	if sqlState(err) == lockNotAvailable {
		return core.ErrLocked
	}
	return err
}

// lockWait bounds how long each statement of a person's change waits for other transactions.
const lockWait = `SET LOCAL lock_timeout = '5s'`

// Workers lists heartbeats by owner.
func (src *Source) Workers(ctx context.Context) ([]core.WorkerInfo, error) {
	text := src.text.fill(`SELECT owner, (extract(epoch FROM {now} - heartbeat) * 1000000)::bigint, info FROM {connectd_worker} WHERE tbl = $1::text ORDER BY owner`)
	var list []core.WorkerInfo
	err := src.run(ctx, src.work, "workers", func(q querier) error {
		list = nil
		rows, err := q.Query(ctx, text, src.s.table.name)
		if err != nil {
			return err
		}
		var owner string
		var age int64
		var info []byte
		_, err = pgx.ForEachRow(rows, []any{&owner, &age, &info}, func() error {
			list = append(list, core.WorkerInfo{Owner: owner, Age: microseconds(age), Info: info})
			return nil
		})
		return err
	})
	return list, err
}

// Leases lists the leases by partition.
func (src *Source) Leases(ctx context.Context) ([]core.LeaseInfo, error) {
	text := src.text.fill(`SELECT part, coalesce(owner, ''), epoch, CASE WHEN epoch = 0 THEN 0 ELSE (extract(epoch FROM lease_until - {now}) * 1000000)::bigint END,
			(SELECT coalesce(sum(cardinality(seqs)), 0) FROM {connectd_inflight} i WHERE i.tbl = l.tbl AND i.part = l.part)
		FROM {connectd_lease} l WHERE tbl = $1::text ORDER BY part`)
	var list []core.LeaseInfo
	err := src.run(ctx, src.work, "leases", func(q querier) error {
		list = nil
		rows, err := q.Query(ctx, text, src.s.table.name)
		if err != nil {
			return err
		}
		var l core.LeaseInfo
		var left int64
		_, err = pgx.ForEachRow(rows, []any{&l.Part, &l.Owner, &l.Epoch, &left, &l.InFlight}, func() error {
			l.Left = microseconds(left)
			list = append(list, l)
			return nil
		})
		return err
	})
	return list, err
}
