package sqlite

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/connectd/connectd/core"
)

// scanner reads rows of rowColumns; it is used for one page.
type scanner struct {
	seq                           int64
	id, key, route, kind, headers text
	payload                       blob
	created                       instant
	past                          text
	dest                          []any
}

func newScanner() *scanner {
	s := &scanner{}
	s.dest = []any{&s.seq, &s.id, &s.key, &s.route, &s.kind, &s.payload, &s.headers, &s.created, &s.past}
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
	row.Invalid = s.check()
	if s.past.there {
		if err := readPast(s.past.s, row); err != nil {
			row.Invalid = err.Error() // it must not hold up the others
		}
	}
	if s.headers.there {
		var err error
		if row.Record.Headers, err = core.ParseHeaders([]byte(s.headers.s)); err != nil {
			row.Invalid = err.Error()
		}
	}
	return nil
}

// longestWait stands for every longer one, so that no time overflows.
const longestWait = 100 * 365 * 24 * time.Hour

// readPast reads what a row that is not new has behind it.
func readPast(text string, row *core.Row) error {
	var n [5]int64
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		return fmt.Errorf("read the relay's columns: %w", err)
	}
	row.Deliveries, row.Attempts, row.Crashes = int(n[0]), int(n[1]), int(n[2])
	row.Wait = time.Duration(min(n[3], longestWait.Milliseconds())) * time.Millisecond
	if row.Attempts > 0 {
		row.Failing = time.Duration(n[4]) * time.Millisecond
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
// makes a new one for each value (the suite watches that).
type blob []byte

// Scan implements sql.Scanner.
func (b *blob) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		*b = nil
	case []byte:
		if *b = v; v == nil {
			*b = []byte{} // the driver's empty blob; NULL comes as nil itself
		}
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
