package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/connectd/connectd/core"
)

// spare is how many bytes are read and thrown away for the sake of a connection that is used again.
const spare = 4 << 20

// Fetch reads all pages by one statement, so from one snapshot. Each row's memory is its own.
func (src *Source) Fetch(ctx context.Context, reqs []core.FetchRequest) ([]core.Page, error) {
	pages := make([]core.Page, len(reqs))
	asked := make([]asked, 0, len(reqs))
	for i, req := range reqs {
		if req.Part >= 0 && req.Part < src.s.partitions {
			asked = append(asked, src.ask(i, req))
		}
	}
	if len(asked) == 0 {
		return pages, ctx.Err()
	}
	err := src.try(ctx, "fetch", func() error {
		oldest := src.horizon.oldest(ctx, src.work, src.text)
		clear(pages)
		if err := src.fetch(ctx, asked, pages); err != nil {
			return err
		}
		horizon := src.horizon.of(oldest)
		for _, a := range asked {
			pages[a.place].Horizon = horizon
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return pages, nil
}

// asked is a request, its place among them, and how many rows of it the server is asked for.
type asked struct {
	core.FetchRequest
	place, limit int
}

func (src *Source) ask(place int, req core.FetchRequest) asked {
	if src.s.cols.Key == "" {
		req.Exclude = nil
	}
	return asked{req, place, src.likely(req)}
}

func (src *Source) fetch(ctx context.Context, asked []asked, pages []core.Page) error {
	texts := make([]string, len(asked))
	var args []any
	for i, a := range asked {
		texts[i] = src.text.fetch(a.place, a.Part, a.After, a.Known, len(a.Exclude), a.limit)
		for _, key := range a.Exclude {
			args = append(args, []byte(key))
		}
	}
	text := texts[0]
	if len(texts) > 1 {
		text = "(" + strings.Join(texts, ") UNION ALL (") + ")"
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rows, err := src.work.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	bytes, err := src.read(rows, asked, pages)
	if err != nil {
		return err
	}
	n := 0
	for _, page := range pages {
		n += len(page.Rows)
	}
	if n == 0 {
		return nil
	}
	size := bytes / int64(n)
	src.rowSize.Store(size)
	last := asked[len(asked)-1]
	if page := pages[last.place]; page.More && int64(last.limit-len(page.Rows))*size > spare {
		cancel() // the rest would be read before the connection is used again: another one costs less
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

// read fills the pages and returns their size. Rows come in the order of the requests; when the last page is full, the rest
// is left.
func (src *Source) read(rows *sql.Rows, asked []asked, pages []core.Page) (int64, error) {
	var total, bytes int64 // of all pages, of this one
	sc := newScanner(src.s.extra)
	at := 0
	for rows.Next() {
		var row core.Row
		if err := sc.scan(rows, &row); err != nil {
			return total, err
		}
		for asked[at].place != sc.place {
			if at++; at == len(asked) {
				return total, errors.New("the server gave rows in another order than asked for")
			}
			bytes = 0
		}
		page, a := &pages[sc.place], &asked[at]
		if n := len(page.Rows); n > 0 && page.Rows[n-1].Record.Seq >= row.Record.Seq {
			return total, errors.New("the server gave rows in another order than asked for")
		}
		if page.More = len(page.Rows) >= a.limit || a.MaxBytes > 0 && bytes >= a.MaxBytes; page.More {
			if at == len(asked)-1 {
				return total, nil
			}
			continue
		}
		page.Rows, page.Changes = append(page.Rows, row), max(page.Changes, sc.changes)
		size := int64(row.Record.Size())
		bytes, total = bytes+size, total+size
	}
	return total, rows.Err()
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
