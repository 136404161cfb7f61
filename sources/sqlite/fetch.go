package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/connectd/connectd/core"
)

// Fetch reads one page. Each row's memory is its own.
func (src *Source) Fetch(ctx context.Context, req core.FetchRequest) (core.Page, error) {
	page, err := src.fetch(ctx, req)
	if err != nil {
		return core.Page{}, fmt.Errorf("sqlite: fetch: %w", err)
	}
	return page, nil
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
	sc := newScanner()
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

// jsonHex writes each key's bytes as SQLite's hex() does.
func jsonHex(keys []string) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, key := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + strings.ToUpper(hex.EncodeToString([]byte(key))) + `"`)
	}
	b.WriteByte(']')
	return b.String()
}

// scanner reads rows of rowColumns; it is used for one page.
type scanner struct {
	id, key, route, kind, headers text
	payload                       blob
	created                       instant
	seq, wait, failing            int64
	dest                          []any
	deliveries, attempts, crashes int
}

func newScanner() *scanner {
	s := &scanner{}
	s.dest = []any{&s.seq, &s.id, &s.key, &s.route, &s.kind, &s.payload, &s.headers, &s.created,
		&s.deliveries, &s.attempts, &s.crashes, &s.wait, &s.failing}
	return s
}

func (s *scanner) scan(rows *sql.Rows, row *core.Row) error {
	if err := rows.Scan(s.dest...); err != nil {
		return err
	}
	row.Record = core.Record{
		ID: s.id.s, Key: s.key.s, Keyed: s.key.there, Route: s.route.s, Type: s.kind.s,
		Payload: s.payload, CreatedAt: s.created.t, Seq: s.seq,
	}
	row.Deliveries, row.Attempts, row.Crashes = s.deliveries, s.attempts, s.crashes
	row.Wait = time.Duration(s.wait) * time.Millisecond
	if s.attempts > 0 {
		row.Failing = time.Duration(s.failing) * time.Millisecond
	}
	row.Invalid = s.check()
	if s.headers.there {
		var err error
		if row.Record.Headers, err = core.ParseHeaders([]byte(s.headers.s)); err != nil {
			row.Invalid = err.Error()
		}
	}
	return nil
}

// check says what keeps the row from being a record.
func (s *scanner) check() string {
	switch {
	case !s.id.there:
		return "id is NULL"
	case !utf8.ValidString(s.id.s):
		return "id is not UTF-8"
	case !utf8.ValidString(s.key.s):
		return "key is not UTF-8"
	case !utf8.ValidString(s.route.s):
		return "route is not UTF-8"
	case !utf8.ValidString(s.kind.s):
		return "type is not UTF-8"
	default:
		return ""
	}
}

// text is a column read as text; a NULL is not there.
type text struct {
	s     string
	there bool
}

// Scan implements sql.Scanner.
func (t *text) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		*t = text{}
	case string:
		*t = text{v, true}
	default:
		return fmt.Errorf("text comes as %T", value)
	}
	return nil
}

// blob is a column read as bytes. It keeps the driver's slice, which database/sql would copy for a []byte: the driver
// makes a new one for each value (TestPayloadsArePrivate watches that).
type blob []byte

// Scan implements sql.Scanner.
func (b *blob) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		*b = nil
	case []byte:
		*b = v
	case string:
		*b = []byte(v)
	default:
		return fmt.Errorf("bytes come as %T", value)
	}
	return nil
}

// instant is a time as applications write it into SQLite: an integer of seconds, milliseconds or microseconds since
// 1970 (told apart by size), a Julian day, or text as SQLite's own functions write it, UTC unless it has a zone. What
// cannot be read is no time: a row is not held up for it.
type instant struct{ t time.Time }

// Scan implements sql.Scanner.
func (i *instant) Scan(value any) error {
	i.t = time.Time{}
	switch v := value.(type) {
	case int64:
		i.t = sinceEpoch(v)
	case float64:
		if v < 1e8 { // a Julian day
			v = (v - 2440587.5) * 86400
		}
		i.t = time.UnixMilli(int64(v * 1000)).UTC()
	case string:
		i.t = parseTime(v)
	case []byte:
		i.t = parseTime(string(v))
	}
	return nil
}

func sinceEpoch(v int64) time.Time {
	switch {
	case v == 0:
		return time.Time{}
	case v > 1e14:
		return time.UnixMicro(v).UTC()
	case v > 1e11:
		return time.UnixMilli(v).UTC()
	default:
		return time.Unix(v, 0).UTC()
	}
}

func parseTime(v string) time.Time {
	for _, layout := range []string{"2006-01-02 15:04:05", time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, v); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}

// Blocking lists the keys with a held row, or with dead also those with a dead one.
func (src *Source) Blocking(ctx context.Context, part int, dead bool) ([]core.Block, error) {
	if part != 0 {
		return nil, ctx.Err()
	}
	rows, err := src.read.QueryContext(ctx, src.s.texts().fill(`SELECT CAST({key} AS TEXT), min({order}) FROM {table} INDEXED BY {stopped}
		WHERE ({state} = 'dead' OR {state} = 'held') AND ({state} = 'held' OR ?) AND {key} IS NOT NULL GROUP BY 1 ORDER BY 2`), dead)
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
