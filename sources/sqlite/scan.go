package sqlite

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// scanner reads rows of rowColumns; it is used for one page.
type scanner struct {
	layout.Values
	created instant
	past    layout.Text
	changes int64 // of the operators, as the last row tells that was sent before
	dest    []any
}

func newScanner(extra []layout.HeaderColumn) *scanner {
	s := &scanner{Values: layout.NewValues(extra)}
	s.dest = []any{&s.Seq, &s.ID, &s.Key, &s.Route, &s.Type, (*blob)(&s.Payload), &s.Headers, &s.created, &s.past}
	for i := range s.Extra {
		s.dest = append(s.dest, &s.Extra[i])
	}
	return s
}

func (s *scanner) scan(rows *sql.Rows, row *core.Row) error {
	if err := rows.Scan(s.dest...); err != nil {
		return err
	}
	s.Created = s.created.t
	s.Deliveries, s.Attempts, s.Crashes, s.Wait, s.Failing = 0, 0, 0, 0, 0
	if s.past.Valid {
		if err := s.readPast(); err != nil {
			return err
		}
	}
	s.Row(row)
	return nil
}

// readPast reads what a row that is not new has behind it.
func (s *scanner) readPast() error {
	var n [6]int64
	if err := json.Unmarshal([]byte(s.past.String), &n); err != nil {
		return fmt.Errorf("read the relay's columns: %w", err)
	}
	s.Deliveries, s.Attempts, s.Crashes = int(n[0]), int(n[1]), int(n[2])
	s.Wait, s.Failing = layout.Duration(n[3], time.Millisecond), layout.Duration(n[4], time.Millisecond)
	s.changes = n[5]
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
		i.t = layout.SinceEpoch(v)
	case float64:
		if v < 1e8 { // a Julian day
			v = (v - 2440587.5) * 86400
		}
		if v > 0 && v < 253370764800 { // the year 9999
			i.t = time.UnixMilli(int64(v * 1000)).UTC()
		}
	case string:
		i.t = layout.ParseTime(v)
	case []byte:
		i.t = layout.ParseTime(string(v))
	}
	return nil
}
