package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// lagBound is where counting rows for the lag stops.
const lagBound = 100_000

// Lag counts what waits, up to lagBound rows of each kind.
func (src *Source) Lag(ctx context.Context) (core.Lag, error) {
	var lag core.Lag
	tx, err := src.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // one snapshot
	if err != nil {
		return lag, fmt.Errorf("sqlite: lag: %w", err)
	}
	defer tx.Rollback()
	t := src.text
	pending := `FROM {table} INDEXED BY {pending} WHERE {state} = 'pending'`
	due := pending + ` AND {available_at} <= {now}`
	stopped := `FROM {table} INDEXED BY {stopped} WHERE ({state} = 'dead' OR {state} = 'held') AND {state} = `
	for _, c := range []struct {
		to   *int64
		from string
	}{
		{&lag.Pending, pending}, {&lag.Due, due}, {&lag.Dead, stopped + `'dead'`}, {&lag.Held, stopped + `'held'`},
		{&lag.InFlight, `FROM connectd_inflight, json_each(seqs) WHERE tbl = ?2`},
	} {
		err := tx.QueryRowContext(ctx, t.fill(`SELECT count(*) FROM (SELECT 1 `+c.from+` LIMIT ?1)`), lagBound+1, src.s.table).Scan(c.to)
		if err != nil {
			return core.Lag{}, fmt.Errorf("sqlite: lag: %w", err)
		}
		if *c.to > lagBound {
			*c.to, lag.Capped = lagBound, true
		}
	}
	for _, c := range []struct {
		to   *time.Duration
		from string
	}{{&lag.Oldest, pending}, {&lag.OldestDue, due}} {
		var created instant
		var now int64
		err := tx.QueryRowContext(ctx, t.fill(`SELECT +{created}, {now} `+c.from+` ORDER BY {order} LIMIT 1`)).Scan(&created, &now)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return core.Lag{}, fmt.Errorf("sqlite: lag: %w", err)
		}
		if !created.t.IsZero() {
			*c.to = max(time.UnixMilli(now).Sub(created.t), 0)
		}
	}
	return lag, nil
}

const infoColumns = `{order}, coalesce(CAST({id} AS TEXT), ''), CAST({key} AS TEXT), CAST({route} AS TEXT), CAST({type} AS TEXT), {state},
	{state} = 'pending' AND {order} IN (SELECT j.value FROM connectd_inflight i, json_each(i.seqs) j WHERE i.tbl = ?1),
	CAST({attempts} AS INTEGER), CAST({deliveries} AS INTEGER), ` + refused + `, CAST({crashes} AS INTEGER), CAST({last_error} AS TEXT), +{created}, {available_at}, {published_at}, coalesce(octet_length({payload}), 0)`

// refused counts a row's refusals. No name of the history's own must hide one of the outbox table.
const refused = `(SELECT count(*) FROM (SELECT tbl AS connectd_tbl, seq AS connectd_seq FROM connectd_attempt WHERE deliveries = 0 AND code IN ('` + core.ReasonInvalid + `', '` + core.ReasonTooLarge + `')) a
	WHERE connectd_tbl = ?1 AND connectd_seq = {order})`

// byID finds a row by the id as people write it, also where a column holds it as a blob. The id is the n-th argument.
func byID(n int) string { return fmt.Sprintf(`({id} = ?%[1]d OR {id} = CAST(?%[1]d AS BLOB))`, n) }

func scanInfo(scan func(...any) error, more ...any) (core.RowInfo, error) {
	var r core.RowInfo
	var key, route, kind, lastError layout.Text
	var created, available, published instant
	dest := []any{&r.Seq, &r.ID, &key, &route, &kind, &r.State, &r.Sending, &r.Attempts, &r.Deliveries, &r.Refused, &r.Crashes,
		&lastError, &created, &available, &published, &r.Size}
	if err := scan(append(dest, more...)...); err != nil {
		return r, err
	}
	r.Key, r.Keyed, r.Route, r.Type, r.LastError = key.String, key.Valid, route.String, kind.String, lastError.String
	r.CreatedAt, r.AvailableAt, r.PublishedAt = created.t, available.t, published.t
	return r, nil
}

// List returns rows in seq order. Listing by state is quick whatever the table's size but for published and skipped
// rows; a key or a type is looked for row by row.
func (src *Source) List(ctx context.Context, f core.Filter) ([]core.RowInfo, error) {
	now := func() (time.Time, error) { return time.Now(), nil } // SQLite's clock is this machine's
	list, err := layout.ListByAge(f, now, func(f core.Filter) ([]core.RowInfo, error) { return src.list(ctx, f) })
	if err != nil {
		return nil, fmt.Errorf("sqlite: list: %w", err)
	}
	return list, nil
}

// list is List, but for the bounds of the age.
func (src *Source) list(ctx context.Context, f core.Filter) ([]core.RowInfo, error) {
	where, args := `WHERE {order} > ?2`, []any{src.s.table, f.After}
	// add adds a condition in which %s is the place of a value.
	add := func(condition string, value any) {
		args = append(args, value)
		where += ` AND ` + fmt.Sprintf(condition, `?`+strconv.Itoa(len(args)))
	}
	switch f.State {
	case "":
	case core.Pending:
		where += ` AND {state} = 'pending'`
	case core.Dead, core.Held:
		where += ` AND ({state} = 'dead' OR {state} = 'held')`
		fallthrough
	default:
		add(`{state} = %s`, string(f.State))
	}
	if f.Key != "" {
		add(`CAST({key} AS TEXT) COLLATE BINARY = %s`, f.Key)
	}
	if f.Type != "" {
		add(`CAST({type} AS TEXT) COLLATE BINARY = %s`, f.Type)
	}
	if f.Reason != "" {
		add(`instr(CAST({last_error} AS TEXT), %s) > 0`, f.Reason)
	}
	if f.UpTo > 0 {
		add(`{order} <= %s`, f.UpTo)
	}
	args = append(args, f.Most())
	query := fmt.Sprintf(`SELECT `+infoColumns+` FROM {table} `+where+` ORDER BY {order} LIMIT ?%d`, len(args))
	rows, err := src.read.QueryContext(ctx, src.text.fill(query), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []core.RowInfo
	for rows.Next() {
		r, err := scanInfo(rows.Scan)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

// Show returns one row with its history, oldest entry first.
func (src *Source) Show(ctx context.Context, id string) (core.RowInfo, []core.Attempt, error) {
	tx, err := src.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return core.RowInfo{}, nil, fmt.Errorf("sqlite: show: %w", err)
	}
	defer tx.Rollback()
	var payload blob
	var headers layout.Text
	row := tx.QueryRowContext(ctx, src.text.fill(`SELECT `+infoColumns+`, CAST({payload} AS BLOB), CAST({headers} AS TEXT) FROM {table} WHERE `+byID(2)), src.s.table, id)
	info, err := scanInfo(row.Scan, &payload, &headers)
	if errors.Is(err, sql.ErrNoRows) {
		return core.RowInfo{}, nil, core.ErrNoRow
	}
	if err != nil {
		return core.RowInfo{}, nil, fmt.Errorf("sqlite: show: %w", err)
	}
	info.Payload, info.Headers = payload, headers.String
	history, err := src.history(ctx, tx, info.Seq)
	if err != nil {
		return core.RowInfo{}, nil, fmt.Errorf("sqlite: show: %w", err)
	}
	return info, history, nil
}

func (src *Source) history(ctx context.Context, tx *sql.Tx, seq int64) ([]core.Attempt, error) {
	rows, err := tx.QueryContext(ctx, `SELECT at, deliveries, code, message, by, duration_ms FROM connectd_attempt WHERE tbl = ? AND seq = ? ORDER BY n`, src.s.table, seq)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []core.Attempt
	for rows.Next() {
		var a core.Attempt
		var at instant
		var ms int64
		if err := rows.Scan(&at, &a.Deliveries, &a.Code, &a.Message, &a.By, &ms); err != nil {
			return nil, err
		}
		a.At, a.Duration = at.t, time.Duration(ms)*time.Millisecond
		list = append(list, a)
	}
	return list, rows.Err()
}

// Workers lists heartbeats by owner.
func (src *Source) Workers(ctx context.Context) ([]core.WorkerInfo, error) {
	rows, err := src.read.QueryContext(ctx, `SELECT owner, `+nowMS+` - heartbeat, info FROM connectd_worker WHERE tbl = ? ORDER BY owner`, src.s.table)
	if err != nil {
		return nil, fmt.Errorf("sqlite: workers: %w", err)
	}
	defer rows.Close()
	var list []core.WorkerInfo
	for rows.Next() {
		var w core.WorkerInfo
		var ms int64
		if err := rows.Scan(&w.Owner, &ms, &w.Info); err != nil {
			return nil, fmt.Errorf("sqlite: workers: %w", err)
		}
		w.Age = time.Duration(ms) * time.Millisecond
		list = append(list, w)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("sqlite: workers: %w", err)
	}
	return list, nil
}

// Leases shows the one lease.
func (src *Source) Leases(ctx context.Context) ([]core.LeaseInfo, error) {
	var l core.LeaseInfo
	var owner sql.NullString
	var ms int64
	err := src.read.QueryRowContext(ctx, `SELECT owner, epoch, lease_until - `+nowMS+`,
		(SELECT count(*) FROM connectd_inflight i, json_each(i.seqs) WHERE i.tbl = l.tbl)
		FROM connectd_lease l WHERE tbl = ? AND part = 0`, src.s.table).Scan(&owner, &l.Epoch, &ms, &l.InFlight)
	if err != nil {
		return nil, fmt.Errorf("sqlite: leases: %w", err)
	}
	if l.Owner = owner.String; l.Epoch > 0 {
		l.Left = time.Duration(ms) * time.Millisecond
	}
	return []core.LeaseInfo{l}, nil
}

// Retry makes a dead row pending and due, with no attempts.
func (src *Source) Retry(ctx context.Context, act core.Act) error {
	return src.change(ctx, act, "retry", again, nil, core.Dead)
}

// again makes a row pending and due, with no attempts.
const again = `{state} = 'pending', {attempts} = 0, {available_at} = 0, {failing_since} = NULL`

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
	err := src.transact(ctx, verb, func(tx *sql.Tx) error {
		t := src.text
		var seq int64
		var state core.State
		err := tx.QueryRowContext(ctx, t.fill(`SELECT {order}, {state} FROM {table} WHERE `+byID(1)), act.ID).Scan(&seq, &state)
		switch {
		case errors.Is(err, sql.ErrNoRows):
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
		if _, err := tx.ExecContext(ctx, t.fill(`UPDATE {table} SET `+set+` WHERE {order} = ? AND {state} = ?`), seq, string(state)); err != nil {
			return err
		}
		if err := src.note(ctx, tx, entry{seq: seq, by: act.By, failure: core.Failure{Code: verb, Message: act.Why}}); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE connectd_outbox SET changes = changes + 1 WHERE tbl = ?`, src.s.table)
		return err
	})
	if err != nil && isBusy(err) {
		return fmt.Errorf("%w: %w", core.ErrLocked, err)
	}
	return err
}
