package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/connectd/connectd/core"
)

// infoColumns are those of a RowInfo; the table's name is $1.
const infoColumns = `{order}::bigint, {id}::text, {key}::text, {route}::text, {type}::text, {state},
	{state} = 'pending' AND {order} = ANY (ARRAY(SELECT unnest(seqs) FROM {connectd_inflight} i WHERE i.tbl = $1::text)), {part},
	{attempts}, {deliveries}, ` + refused + `, {crashes}, {last_error}, {created at}, CASE WHEN {available_at} BETWEEN '0001-01-02' AND '9999-12-30' THEN {available_at} END,
	CASE WHEN {published_at} BETWEEN '0001-01-02' AND '9999-12-30' THEN {published_at} END,
	coalesce(octet_length({bytes}), 0)`

// refused counts a row's refusals. No name of the history's own must hide one of the outbox table.
const refused = `(SELECT count(*) FROM (SELECT tbl AS connectd_tbl, seq AS connectd_seq FROM {connectd_attempt} WHERE deliveries = 0 AND code IN ('` + core.ReasonInvalid + `', '` + core.ReasonTooLarge + `')) a
	WHERE connectd_tbl = $1::text AND connectd_seq = {order})`

func scanInfo(row pgx.Row, more ...any) (core.RowInfo, error) {
	var r core.RowInfo
	var seq pgtype.Int8
	var id, key, route, kind, lastError pgtype.Text
	var created, available, published pgtype.Timestamptz
	dest := []any{&seq, &id, &key, &route, &kind, &r.State, &r.Sending, &r.Part, &r.Attempts, &r.Deliveries, &r.Refused, &r.Crashes,
		&lastError, &created, &available, &published, &r.Size}
	if err := row.Scan(append(dest, more...)...); err != nil {
		return r, err
	}
	r.Seq, r.ID, r.Key, r.Keyed, r.Route, r.Type, r.LastError = seq.Int64, id.String, key.String, key.Valid, route.String, kind.String, lastError.String
	r.CreatedAt, r.AvailableAt, r.PublishedAt = utc(created), utc(available), utc(published)
	return r, nil
}

// List returns rows in seq order. Rows of a state that an index knows, pending, dead and held, are found in each
// partition apart; others are walked through in order, as are those of a key or a type.
func (src *Source) List(ctx context.Context, f core.Filter) ([]core.RowInfo, error) {
	args := []any{src.s.table.name, f.After, int64(f.Most())}
	more := ""
	add := func(condition string, value any) {
		args = append(args, value)
		more += ` AND ` + fmt.Sprintf(condition, `$`+strconv.Itoa(len(args)))
	}
	if f.Key != "" {
		add(`{key}::text COLLATE "C" = %s::text`, f.Key)
	}
	if f.Type != "" {
		add(`{type}::text COLLATE "C" = %s::text`, f.Type)
	}
	if f.Reason != "" {
		add(`strpos({last_error} COLLATE "C", %s::text) > 0`, f.Reason)
	}
	if f.UpTo > 0 {
		add(`{order} <= %s::bigint`, f.UpTo)
	}
	if f.Older > 0 {
		add(`{created at} <= {now} - %s::bigint * interval '1 microsecond'`, f.Older.Microseconds())
	}
	if f.Newer > 0 {
		add(`{created at} >= {now} - %s::bigint * interval '1 microsecond'`, f.Newer.Microseconds())
	}
	from := `{table}`
	switch f.State {
	case "":
	case core.Pending, core.Dead, core.Held:
		from = `(SELECT r.* FROM {connectd_lease} l CROSS JOIN LATERAL (SELECT * FROM {table}
			WHERE {part} = l.part AND {state} = '` + string(f.State) + `' AND {position} > $2::bigint` + more + ` ORDER BY {position} LIMIT $3::bigint) r WHERE l.tbl = $1::text) r`
	default:
		add(`{state} = %s::text`, string(f.State))
	}
	text := src.text.fill(`SELECT ` + infoColumns + ` FROM ` + from + ` WHERE {order} > $2::bigint` + more + ` ORDER BY {order} LIMIT $3::bigint`)
	var list []core.RowInfo
	err := src.run(ctx, src.work, "list", func(q querier) error {
		list = nil
		rows, err := q.Query(ctx, text, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			r, err := scanInfo(rows)
			if err != nil {
				return err
			}
			list = append(list, r)
		}
		return rows.Err()
	})
	return list, err
}

// Show returns one row with its history, oldest entry first.
func (src *Source) Show(ctx context.Context, id string) (core.RowInfo, []core.Attempt, error) {
	var info core.RowInfo
	var history []core.Attempt
	text := src.text.fill(`SELECT `+infoColumns+`, {bytes}, {headers}::text FROM {table} WHERE `) + src.byID(`$2`)
	err := src.transact(ctx, src.work, "show", func(tx pgx.Tx) error {
		var err error
		var payload []byte
		var headers pgtype.Text
		info, err = scanInfo(tx.QueryRow(ctx, text, src.s.table.name, id), &payload, &headers)
		if err != nil {
			if noRow(err) {
				return core.ErrNoRow
			}
			return err
		}
		info.Payload, info.Headers = payload, headers.String
		history, err = src.history(ctx, tx, info.Seq)
		return err
	})
	if err != nil {
		return core.RowInfo{}, nil, err
	}
	return info, history, nil
}

func (src *Source) history(ctx context.Context, tx pgx.Tx, seq int64) ([]core.Attempt, error) {
	rows, err := tx.Query(ctx, src.text.fill(`SELECT at, deliveries, code, message, by, duration_us FROM {connectd_attempt} WHERE tbl = $1::text AND seq = $2::bigint ORDER BY n`),
		src.s.table.name, seq)
	if err != nil {
		return nil, err
	}
	var list []core.Attempt
	var a core.Attempt
	var at time.Time
	var took int64
	_, err = pgx.ForEachRow(rows, []any{&at, &a.Deliveries, &a.Code, &a.Message, &a.By, &took}, func() error {
		a.At, a.Duration = at.UTC(), microseconds(took)
		list = append(list, a)
		return nil
	})
	return list, err
}
