package mysql

import (
	"bytes"
	"database/sql"
	"fmt"
	"strconv"
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
	deliveries, attempts, crashes int
	wait, failing                 int64
	names                         []string // of the headers that have columns of their own
	extra                         []text
	dest                          []any
}

func newScanner(extra []HeaderColumn) *scanner {
	s := &scanner{extra: make([]text, len(extra))}
	s.dest = []any{&s.seq, &s.id, &s.key, &s.route, &s.kind, &s.payload, &s.headers, &s.created,
		&s.deliveries, &s.attempts, &s.crashes, &s.wait, &s.failing}
	for i, h := range extra {
		s.names = append(s.names, h.Header)
		s.dest = append(s.dest, &s.extra[i])
	}
	return s
}

// longestWait stands for every longer one, so that no time overflows.
const longestWait = 100 * 365 * 24 * time.Hour

func (s *scanner) scan(rows *sql.Rows, row *core.Row) error {
	if err := rows.Scan(s.dest...); err != nil {
		return err
	}
	row.Record = core.Record{
		ID: s.id.s, Key: s.key.s, Keyed: s.key.there, Route: s.route.s, Type: s.kind.s,
		Payload: s.payload, CreatedAt: s.created.t, Seq: s.seq,
	}
	row.Deliveries, row.Attempts, row.Crashes = s.deliveries, s.attempts, s.crashes
	row.Wait = micros(s.wait)
	if s.attempts > 0 {
		row.Failing = max(micros(s.failing), time.Microsecond)
	}
	row.Invalid = s.check()
	if s.headers.there {
		var err error
		if row.Record.Headers, err = core.ParseHeaders([]byte(s.headers.s)); err != nil {
			row.Invalid = err.Error()
		}
	}
	for i, value := range s.extra {
		if value.there {
			row.Record.Headers = append(row.Record.Headers, core.Header{Name: s.names[i], Value: value.s})
		}
	}
	return nil
}

// micros makes microseconds a duration.
func micros(n int64) time.Duration {
	return time.Duration(max(min(n, longestWait.Microseconds()), -longestWait.Microseconds())) * time.Microsecond
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
	}
	for i, value := range s.extra {
		if !utf8.ValidString(value.s) {
			return "header " + s.names[i] + " is not UTF-8"
		}
	}
	return ""
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
	case []byte:
		*t = text{string(v), true}
	case string:
		*t = text{v, true}
	default:
		return fmt.Errorf("text comes as %T", value)
	}
	return nil
}

// blob is a column read as bytes. The driver gives a part of its buffer, which it uses again.
type blob []byte

// Scan implements sql.Scanner.
func (b *blob) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		*b = nil
	case []byte:
		*b = bytes.Clone(v)
	case string:
		*b = []byte(v)
	default:
		return fmt.Errorf("bytes come as %T", value)
	}
	return nil
}

// instant is a time as applications write it: DATETIME or TIMESTAMP, which come as text in the session's zone, UTC; or an
// integer of seconds, milliseconds or microseconds since 1970, told apart by size; or text of either. What cannot be read
// is no time: a row is not held up for it. Nor is the epoch one.
type instant struct{ t time.Time }

// Scan implements sql.Scanner.
func (i *instant) Scan(value any) error {
	i.t = time.Time{}
	switch v := value.(type) {
	case int64:
		i.t = sinceEpoch(v)
	case uint64:
		i.t = sinceEpoch(int64(min(v, 1<<62)))
	case []byte:
		i.t = parseTime(string(v))
	case string:
		i.t = parseTime(v)
	}
	return nil
}

func sinceEpoch(v int64) time.Time {
	switch {
	case v <= 0:
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
	if n, err := strconv.ParseInt(v, 10, 64); err == nil {
		return sinceEpoch(n)
	}
	for _, layout := range []string{"2006-01-02 15:04:05", time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02"} {
		if t, err := time.Parse(layout, v); err == nil {
			if t.Unix() == 0 && t.Nanosecond() == 0 {
				return time.Time{}
			}
			return t.UTC()
		}
	}
	return time.Time{}
}
