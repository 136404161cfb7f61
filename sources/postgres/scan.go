package postgres

import (
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/connectd/connectd/core"
)

// scanner reads the rows of a fetch; it is used for one page.
type scanner struct {
	oldest, next                  int64
	seq                           pgtype.Int8 // NULL: there is no row
	id, key, route, kind, headers pgtype.Text
	payload                       []byte
	extra                         []pgtype.Text
	created                       pgtype.Timestamptz
	deliveries, attempts, crashes pgtype.Int4
	wait, failing                 int64 // microseconds
	names                         []HeaderColumn
	dest                          []any
}

func newScanner(names []HeaderColumn) *scanner {
	s := &scanner{names: names, extra: make([]pgtype.Text, len(names))}
	s.dest = []any{&s.oldest, &s.next, &s.seq, &s.id, &s.key, &s.route, &s.kind, &s.payload, &s.headers, &s.created,
		&s.deliveries, &s.attempts, &s.crashes, &s.wait, &s.failing}
	for i := range s.extra {
		s.dest = append(s.dest, &s.extra[i])
	}
	return s
}

// scan reads one row. It says whether there was one.
func (s *scanner) scan(rows pgx.Rows, row *core.Row) (bool, error) {
	if err := rows.Scan(s.dest...); err != nil || !s.seq.Valid {
		return false, err
	}
	row.Record = core.Record{
		ID: s.id.String, Key: s.key.String, Keyed: s.key.Valid, Route: s.route.String, Type: s.kind.String,
		Payload: s.payload, CreatedAt: utc(s.created), Seq: s.seq.Int64,
	}
	row.Deliveries, row.Attempts, row.Crashes = int(s.deliveries.Int32), int(s.attempts.Int32), int(s.crashes.Int32)
	row.Wait = microseconds(s.wait)
	if row.Attempts > 0 {
		row.Failing = max(microseconds(s.failing), 1)
	}
	row.Invalid = s.check()
	if s.headers.Valid {
		var err error
		if row.Record.Headers, err = core.ParseHeaders([]byte(s.headers.String)); err != nil {
			row.Invalid = err.Error()
		}
	}
	for i, value := range s.extra {
		if !value.Valid {
			continue
		}
		if !utf8.ValidString(value.String) {
			row.Invalid = fmt.Sprintf("column %s is not UTF-8", s.names[i].Column)
		}
		row.Record.Headers = append(row.Record.Headers, core.Header{Name: s.names[i].Header, Value: value.String})
	}
	return true, nil
}

// check says what keeps the row from being a record. Text that is no UTF-8 comes from a database that is SQL_ASCII.
func (s *scanner) check() string {
	switch {
	case !s.id.Valid:
		return "id is NULL"
	case !utf8.ValidString(s.id.String):
		return "id is not UTF-8"
	case !utf8.ValidString(s.key.String):
		return "key is not UTF-8"
	case !utf8.ValidString(s.route.String):
		return "route is not UTF-8"
	case !utf8.ValidString(s.kind.String):
		return "type is not UTF-8"
	default:
		return ""
	}
}

func microseconds(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(max(n, -most), most)) * time.Microsecond
}

// utc is a time as it is stored; what is infinite or NULL is none.
func utc(t pgtype.Timestamptz) time.Time {
	if !t.Valid || t.InfinityModifier != pgtype.Finite {
		return time.Time{}
	}
	return t.Time.UTC()
}
