package postgres

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// scanner reads the rows of a fetch; it is used for one fetch.
type scanner struct {
	layout.Values
	oldest, next, changes         int64
	request                       pgtype.Int8 // its place in the fetch, from 1
	seq                           pgtype.Int8 // NULL: there is no row
	created                       pgtype.Timestamptz
	deliveries, attempts, crashes pgtype.Int4
	wait, failing                 int64 // microseconds
	dest                          []any
}

func newScanner(extra []layout.HeaderColumn) *scanner {
	s := &scanner{Values: layout.NewValues(extra)}
	s.dest = []any{&s.oldest, &s.next, &s.changes, &s.request, &s.seq, text(&s.ID), text(&s.Key), text(&s.Route), text(&s.Type), &s.Payload, text(&s.Headers), &s.created,
		&s.deliveries, &s.attempts, &s.crashes, &s.wait, &s.failing}
	for i := range s.Extra {
		s.dest = append(s.dest, text(&s.Extra[i]))
	}
	return s
}

// text is a text as pgx scans it soonest.
func text(t *layout.Text) *pgtype.Text { return (*pgtype.Text)(t) }

// scan reads one row. It says whether there was one.
func (s *scanner) scan(rows pgx.Rows, row *core.Row) (bool, error) {
	if err := rows.Scan(s.dest...); err != nil || !s.seq.Valid {
		return false, err
	}
	s.Seq, s.Created = s.seq.Int64, utc(s.created)
	s.Deliveries, s.Attempts, s.Crashes = int(s.deliveries.Int32), int(s.attempts.Int32), int(s.crashes.Int32)
	s.Wait, s.Failing = microseconds(s.wait), microseconds(s.failing)
	s.Row(row)
	return true, nil
}

func microseconds(n int64) time.Duration { return layout.Duration(n, time.Microsecond) }

// utc is a time as it is stored; what is infinite or NULL is none.
func utc(t pgtype.Timestamptz) time.Time {
	if !t.Valid || t.InfinityModifier != pgtype.Finite {
		return time.Time{}
	}
	return t.Time.UTC()
}
