package mysql

import (
	"bytes"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// scanner reads rows of a fetch; it is used for one.
type scanner struct {
	layout.Values
	place         int // of the request among those of the fetch
	changes       int64
	created       instant
	wait, failing int64
	dest          []any
}

func newScanner(extra []layout.HeaderColumn) *scanner {
	s := &scanner{Values: layout.NewValues(extra)}
	s.dest = []any{&s.place, &s.changes, &s.Seq, &s.ID, &s.Key, &s.Route, &s.Type, (*blob)(&s.Payload), &s.Headers, &s.created,
		&s.Deliveries, &s.Attempts, &s.Crashes, &s.wait, &s.failing}
	for i := range s.Extra {
		s.dest = append(s.dest, &s.Extra[i])
	}
	return s
}

func (s *scanner) scan(rows *sql.Rows, row *core.Row) error {
	if err := rows.Scan(s.dest...); err != nil {
		return err
	}
	s.Created, s.Wait, s.Failing = s.created.t, micros(s.wait), micros(s.failing)
	s.Row(row)
	return nil
}

// micros makes microseconds a duration.
func micros(n int64) time.Duration { return layout.Duration(n, time.Microsecond) }

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

// sinceEpoch is a time by its number, which for no time is 0 or less.
func sinceEpoch(n int64) time.Time { return layout.SinceEpoch(max(n, 0)) }

func parseTime(text string) time.Time {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return sinceEpoch(n)
	}
	if t := layout.ParseTime(text); !t.Equal(time.Unix(0, 0)) {
		return t
	}
	return time.Time{}
}
