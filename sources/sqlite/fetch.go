package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/connectd/connectd/core"
)

// Fetch reads each page by a statement of its own. Each row's memory is its own.
func (src *Source) Fetch(ctx context.Context, reqs []core.FetchRequest) ([]core.Page, error) {
	pages := make([]core.Page, len(reqs))
	for i, req := range reqs {
		var err error
		if pages[i], err = src.fetch(ctx, req); err != nil {
			return nil, fmt.Errorf("sqlite: fetch: %w", err)
		}
	}
	return pages, nil
}

func (src *Source) fetch(ctx context.Context, req core.FetchRequest) (core.Page, error) {
	var page core.Page
	if req.Part != 0 {
		return page, ctx.Err()
	}
	rows, err := src.query(ctx, req)
	if err != nil {
		return page, err
	}
	defer rows.Close()
	var bytes int64
	sc := newScanner(src.s.extra)
	for rows.Next() {
		if len(page.Rows) >= req.Limit || (req.MaxBytes > 0 && bytes >= req.MaxBytes) {
			page.More = true
			break
		}
		page.Rows = append(page.Rows, core.Row{})
		row := &page.Rows[len(page.Rows)-1]
		if err := sc.scan(rows, row); err != nil {
			return page, err
		}
		bytes += int64(row.Record.Size())
	}
	page.Changes = sc.changes
	return page, rows.Err()
}

func (src *Source) query(ctx context.Context, req core.FetchRequest) (*sql.Rows, error) {
	if len(req.Known) == 0 && len(req.Exclude) == 0 {
		return src.st.fetch.QueryContext(ctx, req.After, req.Limit)
	}
	return src.st.fetchSome.QueryContext(ctx, req.After, req.Limit, jsonSeqs(req.Known), jsonHex(req.Exclude))
}

// jsonSeqs writes seqs as a JSON array.
func jsonSeqs(seqs []int64) string {
	b := make([]byte, 0, 2+8*len(seqs))
	b = append(b, '[')
	for i, seq := range seqs {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, seq, 10)
	}
	return string(append(b, ']'))
}

// jsonHex writes each text's bytes as SQLite's hex() does.
func jsonHex(texts []string) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, text := range texts {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + strings.ToUpper(hex.EncodeToString([]byte(text))) + `"`)
	}
	b.WriteByte(']')
	return b.String()
}

// Blocking lists the keys with a held row, or with dead also those with a dead one.
func (src *Source) Blocking(ctx context.Context, part int, dead bool) ([]core.Block, error) {
	if part != 0 {
		return nil, ctx.Err()
	}
	which := `INDEXED BY {held} WHERE {state} = 'held'`
	if dead {
		which = `INDEXED BY {stopped} WHERE ({state} = 'dead' OR {state} = 'held')`
	}
	rows, err := src.read.QueryContext(ctx, src.text.fill(`SELECT CAST({key} AS TEXT) COLLATE BINARY, min({order})
		FROM {table} `+which+` AND {key} IS NOT NULL GROUP BY 1 ORDER BY 2`))
	if err != nil {
		return nil, fmt.Errorf("sqlite: blocking: %w", err)
	}
	defer rows.Close()
	var blocks []core.Block
	for rows.Next() {
		var b core.Block
		if err := rows.Scan(&b.Key, &b.Seq); err != nil {
			return nil, fmt.Errorf("sqlite: blocking: %w", err)
		}
		blocks = append(blocks, b)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("sqlite: blocking: %w", err)
	}
	return blocks, nil
}
