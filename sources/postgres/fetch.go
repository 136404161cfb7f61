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

// Fetch reads all pages by one statement, so from one snapshot. Each row's memory is its own.
func (src *Source) Fetch(ctx context.Context, reqs []core.FetchRequest) ([]core.Page, error) {
	if len(reqs) == 0 {
		return nil, ctx.Err()
	}
	upTo := int64(math.MaxInt64)
	if src.order != nil {
		var err error
		if upTo, err = src.passed(ctx, barrierFresh); err != nil {
			return nil, err
		}
	}
	text, args := src.text.request(reqs, upTo)
	err := src.run(ctx, src.work, "mark the time", func(q querier) error { return src.horizon.refresh(ctx, q) })
	if err != nil {
		return nil, err
	}
	var pages []core.Page
	err = src.run(ctx, src.work, "fetch", func(q querier) error {
		rows, err := q.Query(ctx, text, args...)
		if err != nil {
			return err
		}
		pages, err = src.pages(rows, reqs)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		if n := len(page.Rows); n > 0 {
			src.read(page.Rows[n-1].Record.Seq)
		}
	}
	return pages, nil
}

// request picks the statement for requests. A seq is of one row and a key of one partition, so what they leave out goes
// together.
func (t texts) request(reqs []core.FetchRequest, upTo int64) (string, []any) {
	n := len(reqs)
	parts, afters, limits, bytes := make([]int32, n), make([]int64, n), make([]int64, n), make([]int64, n)
	known, exclude := []int64{}, []string{} // not NULL: nothing is unlike that
	leaveOut, cut := 0, 0
	for i, req := range reqs {
		parts[i], afters[i], limits[i], bytes[i] = int32(req.Part), req.After, int64(req.Limit), math.MaxInt64
		if req.MaxBytes > 0 {
			cut, bytes[i] = 1, req.MaxBytes
		}
		known, exclude = append(known, req.Known...), append(exclude, req.Exclude...)
	}
	args := []any{parts, afters, upTo, limits}
	if len(known) > 0 || len(exclude) > 0 {
		leaveOut = 1
		args = append(args, known, exclude)
	}
	if cut == 1 {
		args = append(args, bytes)
	}
	return t.fetches[leaveOut][cut], args
}

// pages takes the rows apart, which come in the order of the requests.
func (src *Source) pages(rows pgx.Rows, reqs []core.FetchRequest) ([]core.Page, error) {
	defer rows.Close()
	pages, bytes := make([]core.Page, len(reqs)), make([]int64, len(reqs))
	sc := newScanner(src.s.extra)
	for rows.Next() {
		var row core.Row
		is, err := sc.scan(rows, &row)
		if err != nil {
			return nil, err
		}
		if !is {
			break
		}
		i := int(sc.request.Int64) - 1
		if i < 0 || i >= len(reqs) {
			return nil, fmt.Errorf("the server gave rows of request %d of %d", i+1, len(reqs))
		}
		page, req := &pages[i], &reqs[i]
		if page.More = page.More || len(page.Rows) >= req.Limit || req.MaxBytes > 0 && bytes[i] >= req.MaxBytes; page.More {
			continue
		}
		bytes[i] += int64(row.Record.Size())
		page.Rows = append(page.Rows, row)
		if row.Deliveries > 0 {
			page.Changes = sc.changes
		}
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return nil, err
	}
	for i := range pages {
		page := &pages[i]
		page.Horizon = src.horizon.of(sc.oldest, sc.next, len(page.Rows))
		// A join promises no order. This one keeps it, or the page would be wrong.
		if !slices.IsSortedFunc(page.Rows, func(a, b core.Row) int { return cmp.Compare(a.Record.Seq, b.Record.Seq) }) {
			return nil, fmt.Errorf("the server gave the rows of partition %d in another order than asked for", reqs[i].Part)
		}
	}
	return pages, nil
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
