package postgres

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/connectd/connectd/core"
)

// Fetch reads one page. Each row's memory is its own.
func (src *Source) Fetch(ctx context.Context, req core.FetchRequest) (core.Page, error) {
	upTo := int64(math.MaxInt64)
	if src.order != nil {
		var err error
		if upTo, err = src.passed(ctx, barrierFresh); err != nil {
			return core.Page{}, err
		}
	}
	text, args := src.text.request(req, upTo)
	var page core.Page
	err := src.run(ctx, src.work, "mark the time", func(q querier) error { return src.horizon.refresh(ctx, q) })
	if err != nil {
		return core.Page{}, err
	}
	err = src.run(ctx, src.work, "fetch", func(q querier) error {
		rows, err := q.Query(ctx, text, args...)
		if err != nil {
			return err
		}
		page, err = src.page(rows, req)
		return err
	})
	if err != nil {
		return core.Page{}, err
	}
	if n := len(page.Rows); n > 0 {
		src.read(page.Rows[n-1].Record.Seq)
	}
	return page, nil
}

// request picks the statement for a request.
func (t texts) request(req core.FetchRequest, upTo int64) (string, []any) {
	args := []any{int64(req.Part), req.After, upTo, int64(req.Limit)}
	leaveOut, cut := 0, 0
	if len(req.Known) > 0 || len(req.Exclude) > 0 {
		leaveOut = 1
		args = append(args, notNil(req.Known), notNil(req.Exclude))
	}
	if req.MaxBytes > 0 {
		cut = 1
		args = append(args, req.MaxBytes)
	}
	return t.fetches[leaveOut][cut], args
}

// notNil makes no list an empty one: nothing is unlike NULL.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (src *Source) page(rows pgx.Rows, req core.FetchRequest) (core.Page, error) {
	defer rows.Close()
	var page core.Page
	var bytes int64
	sc := newScanner(src.s.extra)
	for rows.Next() {
		if len(page.Rows) >= req.Limit || (req.MaxBytes > 0 && bytes >= req.MaxBytes) {
			page.More = true
			break
		}
		var row core.Row
		is, err := sc.scan(rows, &row)
		if err != nil {
			return page, err
		}
		if !is {
			break
		}
		bytes += int64(row.Record.Size())
		page.Rows = append(page.Rows, row)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return page, err
	}
	page.Horizon = src.horizon.of(sc.oldest, sc.next, len(page.Rows))
	// A join promises no order. This one keeps it, or the page would be wrong.
	if !slices.IsSortedFunc(page.Rows, func(a, b core.Row) int { return cmp.Compare(a.Record.Seq, b.Record.Seq) }) {
		return page, fmt.Errorf("the server gave the rows of partition %d in another order than asked for", req.Part)
	}
	return page, nil
}

// Blocking lists the keys of a partition with a held row, or with dead also those with a dead one.
func (src *Source) Blocking(ctx context.Context, part int, dead bool) ([]core.Block, error) {
	which := `{state} = 'held'`
	if dead {
		which = `{state} IN ('dead', 'held')`
	}
	text := src.text.fill(`SELECT {key}::text COLLATE "C", min({order})::bigint FROM {table}
		WHERE {part} = $1::integer AND ` + which + ` AND {key} IS NOT NULL GROUP BY 1 ORDER BY 2`)
	var blocks []core.Block
	err := src.run(ctx, src.work, "blocking", func(q querier) error {
		blocks = nil
		rows, err := q.Query(ctx, text, int64(part))
		if err != nil {
			return err
		}
		var b core.Block
		_, err = pgx.ForEachRow(rows, []any{&b.Key, &b.Seq}, func() error {
			blocks = append(blocks, b)
			return nil
		})
		return err
	})
	return blocks, err
}
