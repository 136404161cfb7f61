package mysql

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// lagBound is where counting rows for the lag stops.
const lagBound = 100_000

// Lag counts what waits, up to lagBound rows of each kind, in the index alone.
func (src *Source) Lag(ctx context.Context) (core.Lag, error) {
	var lag core.Lag
	err := src.try(ctx, "lag", func() error {
		lag = core.Lag{}
		return src.lag(ctx, &lag)
	})
	return lag, err
}

const (
	inState = ` FROM {table} FORCE INDEX ({pending_index}) WHERE {state} = `
	due     = ` AND {available_at} <= {now}`
)

func (src *Source) lag(ctx context.Context, lag *core.Lag) error {
	announced, err := src.inflight(ctx, src.work, "")
	if err != nil {
		return err
	}
	inFlight := int64(announced.count())
	lag.InFlight, lag.Capped = min(inFlight, lagBound), inFlight > lagBound
	for _, c := range []struct {
		to   *int64
		from string
	}{
		{&lag.Pending, inState + `'pending'`}, {&lag.Due, inState + `'pending'` + due}, {&lag.Dead, inState + `'dead'`}, {&lag.Held, inState + `'held'`},
	} {
		err := src.work.QueryRowContext(ctx, src.text.fill(`SELECT COUNT(*) FROM (SELECT 1`+c.from+` LIMIT ?) bounded`), lagBound+1).Scan(c.to)
		if err != nil {
			return err
		}
		if *c.to > lagBound {
			*c.to, lag.Capped = lagBound, true
		}
	}
	for _, c := range []struct {
		to   *time.Duration
		more string
	}{{&lag.Oldest, ""}, {&lag.OldestDue, due}} {
		first := src.inEachPartition(`SELECT {order} connectd_seq` + inState + `'pending' AND {partition} = {n}` + c.more + ` ORDER BY {order} LIMIT 1`)
		var created, now instant
		err := src.work.QueryRowContext(ctx, src.text.fill(`SELECT {created}, {now} FROM (`+first+`) firsts STRAIGHT_JOIN `+bySeq+` ON {order} = connectd_seq ORDER BY {order} LIMIT 1`)).Scan(&created, &now)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if !created.t.IsZero() {
			*c.to = max(now.t.Sub(created.t), 0)
		}
	}
	return nil
}

// Retry makes a dead row pending and due, with no attempts.
func (src *Source) Retry(ctx context.Context, act core.Act) error {
	return src.change(ctx, act, "retry", again, nil, core.Dead)
}

// again makes a row pending and due, with no attempts.
const again = `{state} = 'pending', {attempts} = 0, {available_at} = {epoch}, {failing_since} = {epoch}`

// ReleaseRow makes a held row pending.
func (src *Source) ReleaseRow(ctx context.Context, act core.Act) error {
	return src.change(ctx, act, "release", `{state} = 'pending'`, nil, core.Held)
}

// Skip settles a dead or held row as skipped.
func (src *Source) Skip(ctx context.Context, act core.Act) error {
	return src.change(ctx, act, "skip", `{state} = 'skipped'`, nil, core.Dead, core.Held)
}

// change sets a row's columns if it is in one of the states, after what else there is to do about it, if anything.
func (src *Source) change(ctx context.Context, act core.Act, verb, set string, also func(tx *sql.Tx, seq int64) error, from ...core.State) error {
	return src.transact(ctx, src.work, verb, unlessLocked(func(tx *sql.Tx) error {
		var row core.RowInfo
		found, err := src.one(ctx, tx, act.ID, "", "FOR UPDATE", func(scan func(...any) error) error {
			var err error
			row, err = scanInfo(scan)
			return err
		})
		switch {
		case err != nil:
			return err
		case !found || row.ID != act.ID:
			return core.ErrNoRow
		}
		if err := layout.Allow(act.ID, row.State, from...); err != nil {
			return err
		}
		if also != nil {
			if err := also(tx, row.Seq); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, src.text.fill(`UPDATE `+bySeq+` SET `+set+`{keep} WHERE {order} = ? AND {state} = ?`), row.Seq, string(row.State)); err != nil {
			return err
		}
		if err := src.note(ctx, tx, []entry{{seq: row.Seq, by: act.By, failure: core.Failure{Code: verb, Message: act.Why}}}); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, src.text.fill(`UPDATE {outbox} SET changes = changes + 1 WHERE tbl = ?`), src.s.table.name)
		return err
	}))
}

// unlessLocked makes the end of a wait for a lock (see sessionSetup) an answer, for a person who waits for several of them
// learns no more.
func unlessLocked(f func(tx *sql.Tx) error) func(tx *sql.Tx) error {
	return func(tx *sql.Tx) error {
		err := f(tx)
		if number(err) == lockWaitTimeout {
			return core.ErrLocked
		}
		return err
	}
}
