package mysql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/connectd/connectd/core"
)

// spare is how many bytes are read and thrown away for the sake of a connection that is used again.
const spare = 4 << 20

// Fetch reads one page. Each row's memory is its own.
func (src *Source) Fetch(ctx context.Context, req core.FetchRequest) (core.Page, error) {
	var page core.Page
	if req.Part < 0 || req.Part >= src.s.partitions {
		return page, ctx.Err()
	}
	err := src.try(ctx, "fetch", func() error {
		oldest := src.horizon.oldest(ctx, src.work, src.text)
		page = core.Page{}
		if err := src.fetch(ctx, req, &page); err != nil {
			return err
		}
		page.Horizon = src.horizon.of(oldest)
		return nil
	})
	if err != nil {
		return core.Page{}, err
	}
	return page, nil
}

func (src *Source) fetch(ctx context.Context, req core.FetchRequest, page *core.Page) error {
	exclude := req.Exclude
	if src.s.cols.Key == "" {
		exclude = nil
	}
	args := make([]any, len(exclude))
	for i, key := range exclude {
		args[i] = []byte(key)
	}
	limit := src.likely(req)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rows, err := src.work.QueryContext(ctx, src.text.fetch(req.Part, req.After, req.Known, len(exclude), limit), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	bytes, err := src.read(rows, req, limit, page)
	if err != nil {
		return err
	}
	if n := int64(len(page.Rows)); n > 0 {
		src.rowSize.Store(bytes / n)
		if page.More && (int64(limit)-n)*(bytes/n) > spare {
			cancel() // the rest would be read before the connection is used again: another one costs less
		}
	}
	return nil
}

// likely is how many rows to ask for: not many more than the page has room for, since the server sends what was asked for.
// When rows turn out to be smaller than those before, the page is shorter than it might be, and there are more.
func (src *Source) likely(req core.FetchRequest) int {
	size := src.rowSize.Load()
	if req.MaxBytes <= 0 || size <= 0 {
		return req.Limit
	}
	return int(min(int64(req.Limit), 4*req.MaxBytes/size+16))
}

// read fills the page and returns its size.
func (src *Source) read(rows *sql.Rows, req core.FetchRequest, limit int, page *core.Page) (int64, error) {
	var bytes int64
	sc := newScanner(src.s.extra)
	for rows.Next() {
		if len(page.Rows) >= limit || (req.MaxBytes > 0 && bytes >= req.MaxBytes) {
			page.More = true
			return bytes, nil
		}
		page.Rows = append(page.Rows, core.Row{})
		row := &page.Rows[len(page.Rows)-1]
		if err := sc.scan(rows, row); err != nil {
			return bytes, err
		}
		bytes += int64(row.Record.Size())
	}
	return bytes, rows.Err()
}

// Blocking lists the keys with a held row, or with dead also those with a dead one.
func (src *Source) Blocking(ctx context.Context, part int, dead bool) ([]core.Block, error) {
	if src.s.cols.Key == "" || part < 0 || part >= src.s.partitions {
		return nil, ctx.Err()
	}
	states := `('held')`
	if dead {
		states = `('dead', 'held')`
	}
	var blocks []core.Block
	err := src.try(ctx, "blocking", func() error {
		blocks = nil
		return collect(ctx, src.work, func(rows *sql.Rows) error {
			var b core.Block
			if err := rows.Scan(&b.Key, &b.Seq); err != nil {
				return err
			}
			blocks = append(blocks, b)
			return nil
		}, src.text.fill(fmt.Sprintf(`SELECT {key.bytes} AS k, min({order}) FROM {table} FORCE INDEX ({pending_index})
			WHERE {state} IN %s AND {partition} = %d AND {key} IS NOT NULL GROUP BY k ORDER BY 2`, states, part)))
	})
	return blocks, err
}
