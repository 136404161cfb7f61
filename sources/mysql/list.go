package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

const infoColumns = `{order}, {id.text}, {key.text}, {route.text}, {type.text}, {state}, {partition}, {attempts}, {deliveries}, ` + refused + `, {crashes},
	{last_error}, {created}, {available_at}, {published_at}, COALESCE(OCTET_LENGTH({payload.text}), 0)`

// refused counts a row's refusals. No name of the history's own must hide one of the outbox table.
const refused = `(SELECT COUNT(*) FROM (SELECT tbl connectd_tbl, seq connectd_refused FROM {attempt} WHERE deliveries = 0 AND code IN ('` + core.ReasonInvalid + `', '` + core.ReasonTooLarge + `')) a
	WHERE connectd_tbl = {tbl} AND connectd_refused = {order})`

func scanInfo(scan func(...any) error, more ...any) (core.RowInfo, error) {
	var r core.RowInfo
	var id, key, route, kind, lastError layout.Text
	var created, available, published instant
	dest := []any{&r.Seq, &id, &key, &route, &kind, &r.State, &r.Part, &r.Attempts, &r.Deliveries, &r.Refused, &r.Crashes,
		&lastError, &created, &available, &published, &r.Size}
	if err := scan(append(dest, more...)...); err != nil {
		return r, err
	}
	r.ID, r.Key, r.Keyed, r.Route, r.Type, r.LastError = id.String, key.String, key.Valid, route.String, kind.String, lastError.String
	r.CreatedAt, r.AvailableAt, r.PublishedAt = created.t, available.t, published.t
	return r, nil
}

// List returns rows in seq order. By state it is quick whatever the table's size; a key or a type is looked for row by row.
func (src *Source) List(ctx context.Context, f core.Filter) ([]core.RowInfo, error) {
	now := func() (time.Time, error) {
		var now instant
		err := src.try(ctx, "ask the time", func() error {
			return src.work.QueryRowContext(ctx, src.text.fill(`SELECT {now}`)).Scan(&now)
		})
		return now.t, err
	}
	return layout.ListByAge(f, now, func(f core.Filter) ([]core.RowInfo, error) { return src.list(ctx, f) })
}

// list is List, but for the bounds of the age.
func (src *Source) list(ctx context.Context, f core.Filter) ([]core.RowInfo, error) {
	query, args := src.listQuery(f)
	var found []core.RowInfo
	err := src.try(ctx, "list", func() error {
		found = nil
		announced, err := src.inflight(ctx, src.work, "")
		if err != nil {
			return err
		}
		return collect(ctx, src.work, func(rows *sql.Rows) error {
			r, err := scanInfo(rows.Scan)
			if err != nil {
				return err
			}
			r.Sending = r.State == core.Pending && announced.names(r.Seq)
			found = append(found, r)
			return nil
		}, query, args...)
	})
	return found, err
}

func (src *Source) listQuery(f core.Filter) (string, []any) {
	var args []any
	more := ""
	if f.Key != "" {
		more += ` AND {key.bytes} = ?`
		args = append(args, []byte(f.Key))
	}
	if f.Type != "" {
		more += ` AND {type.bytes} = ?`
		args = append(args, []byte(f.Type))
	}
	if f.Reason != "" {
		more += ` AND LOCATE(CAST(? AS BINARY), CAST({last_error} AS BINARY)) > 0`
		args = append(args, f.Reason)
	}
	if f.UpTo > 0 {
		more += fmt.Sprintf(` AND {order} <= %d`, f.UpTo)
	}
	end := fmt.Sprintf(` ORDER BY {order} LIMIT %d`, f.Most())
	if f.State == "" {
		return src.text.fill(fmt.Sprintf(`SELECT `+infoColumns+` FROM `+bySeq+` WHERE {order} > %d`, f.After) + more + end), args
	}
	// The first of each partition, and of those the first.
	state := literal(string(f.State))
	seqs := src.inEachPartition(fmt.Sprintf(`SELECT {order} connectd_seq FROM {table} FORCE INDEX ({pending_index}) WHERE {state} = %s AND {partition} = {n} AND {order} > %d`, state, f.After) + more + end)
	return src.text.fill(`SELECT ` + infoColumns + ` FROM (` + seqs + `) firsts STRAIGHT_JOIN ` + bySeq + ` ON {order} = connectd_seq` + end),
		slices.Repeat(args, src.s.partitions)
}

// Show returns one row with its history, oldest entry first.
func (src *Source) Show(ctx context.Context, id string) (core.RowInfo, []core.Attempt, error) {
	var info core.RowInfo
	var lines []core.Attempt
	err := src.try(ctx, "show", func() error {
		var payload blob
		var headers layout.Text
		found, err := src.one(ctx, src.work, id, `, {payload.text}, {headers.text}`, "", func(scan func(...any) error) error {
			var err error
			info, err = scanInfo(scan, &payload, &headers)
			return err
		})
		if err != nil {
			return err
		}
		if !found || info.ID != id {
			return core.ErrNoRow
		}
		info.Payload, info.Headers = payload, headers.String
		announced, err := src.inflight(ctx, src.work, "")
		if err != nil {
			return err
		}
		info.Sending = info.State == core.Pending && announced.names(info.Seq)
		lines, err = src.history(ctx, src.work, info.Seq)
		return err
	})
	if err != nil {
		return core.RowInfo{}, nil, err
	}
	return info, lines, nil
}

// one reads the row whose id is equal to this one in the eyes of its column. The column's collation may find a row whose
// id has other letters: the caller compares. more are further columns, lock a clause at the end.
func (src *Source) one(ctx context.Context, q querier, id, more, lock string, scan func(scan func(...any) error) error) (bool, error) {
	value, may := src.idValue(id)
	if !may {
		return false, nil
	}
	row := q.QueryRowContext(ctx, src.text.fill(`SELECT `+infoColumns+more+` FROM {table} WHERE {id} = ? LIMIT 1 `+lock), value)
	err := scan(func(dest ...any) error { return row.Scan(dest...) })
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// idValue is an id as its column takes it; there is none when no row can have it.
func (src *Source) idValue(id string) (value any, may bool) {
	c := src.s.found[strings.ToLower(src.s.cols.ID)]
	switch {
	case c.isUUID():
		raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
		return raw, err == nil
	case c.kind == "uuid":
		raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
		return id, err == nil && len(raw) == 16
	case strings.HasSuffix(c.kind, "int"):
		n, err := strconv.ParseInt(id, 10, 64)
		return n, err == nil
	case c.charset == "":
		return []byte(id), true
	}
	return id, true
}

// Workers lists heartbeats by owner.
func (src *Source) Workers(ctx context.Context) ([]core.WorkerInfo, error) {
	var workers []core.WorkerInfo
	err := src.try(ctx, "workers", func() error {
		workers = nil
		return collect(ctx, src.keep, func(rows *sql.Rows) error {
			var w core.WorkerInfo
			var age int64
			var info sql.RawBytes
			if err := rows.Scan(&w.Owner, &age, &info); err != nil {
				return err
			}
			w.Age, w.Info = micros(age), bytes.Clone(info)
			workers = append(workers, w)
			return nil
		}, src.text.fill(`SELECT owner, TIMESTAMPDIFF(MICROSECOND, heartbeat, {now}), info FROM {worker} WHERE tbl = ? ORDER BY owner`), src.s.table.name)
	})
	return workers, err
}

// Leases shows the lease of each partition.
func (src *Source) Leases(ctx context.Context) ([]core.LeaseInfo, error) {
	var leases []core.LeaseInfo
	err := src.try(ctx, "leases", func() error {
		leases = nil
		announced, err := src.inflight(ctx, src.keep, "")
		if err != nil {
			return err
		}
		return collect(ctx, src.keep, func(rows *sql.Rows) error {
			var l core.LeaseInfo
			var owner sql.NullString
			var left int64
			if err := rows.Scan(&l.Part, &owner, &l.Epoch, &left); err != nil {
				return err
			}
			if l.Owner = owner.String; l.Epoch > 0 {
				l.Left = micros(left)
			}
			l.InFlight = len(announced.seqs[l.Part])
			leases = append(leases, l)
			return nil
		}, src.text.fill(`SELECT part, owner, epoch, TIMESTAMPDIFF(MICROSECOND, {now}, lease_until) FROM {lease} WHERE tbl = ? ORDER BY part`), src.s.table.name)
	})
	return leases, err
}
