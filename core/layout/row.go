package layout

import (
	"cmp"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/connectd/connectd/core"
)

// Text is a column read as text; a NULL is not Valid. Drivers scan into it.
type Text struct {
	String string
	Valid  bool
}

// Scan implements sql.Scanner.
func (t *Text) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		*t = Text{}
	case string:
		*t = Text{v, true}
	case []byte:
		*t = Text{string(v), true}
	default:
		return fmt.Errorf("text comes as %T", value)
	}
	return nil
}

// Values is a row as it was read. A source scans one row after the other into the same Values.
type Values struct {
	Seq                           int64
	ID, Key, Route, Type, Headers Text
	// Payload becomes the record's: each row brings its own.
	Payload                       []byte
	Created                       time.Time // zero: not known
	Deliveries, Attempts, Crashes int
	Wait, Failing                 time.Duration // as in core.Row
	// Extra are the values of the header columns.
	Extra []Text

	columns []HeaderColumn
}

// NewValues has room for what these header columns hold.
func NewValues(columns []HeaderColumn) Values {
	return Values{Extra: make([]Text, len(columns)), columns: columns}
}

// The most that the relay counts in a column. A larger number, or one below 0, is an application's: one more would not fit
// into every column.
const (
	MaxCount   = 1_000_000_000 // of deliveries and attempts
	MaxCrashes = 30_000
)

// count takes numbers that the relay has never written for 0, as the sources' statements do, and says which column has one.
func (v *Values) count() (odd string) {
	for _, c := range []struct {
		name string
		n    *int
		most int
	}{{"deliveries", &v.Deliveries, MaxCount}, {"attempts", &v.Attempts, MaxCount}, {"crashes", &v.Crashes, MaxCrashes}} {
		if *c.n < 0 || *c.n > c.most {
			*c.n, odd = 0, c.name+" has a value that the relay does not write: leave this column to it"
		}
	}
	return odd
}

// Row makes row of the values. What keeps it from being a record is no error, or it would hold up other rows: it is said in
// row.Invalid.
func (v *Values) Row(row *core.Row) {
	odd := v.count()
	*row = core.Row{
		Record: core.Record{
			ID: v.ID.String, Key: v.Key.String, Keyed: v.Key.Valid, Route: v.Route.String, Type: v.Type.String,
			Payload: v.Payload, CreatedAt: v.Created, Seq: v.Seq,
		},
		Deliveries: v.Deliveries, Attempts: v.Attempts, Crashes: v.Crashes, Wait: v.Wait, Invalid: cmp.Or(v.invalid(), odd),
	}
	if v.Attempts > 0 {
		row.Failing = max(v.Failing, time.Microsecond)
	}
	if v.Headers.Valid {
		var err error
		if row.Record.Headers, err = core.ParseHeaders([]byte(v.Headers.String)); err != nil {
			row.Invalid = err.Error()
		}
	}
	for i, value := range v.Extra {
		if value.Valid {
			row.Record.Headers = append(row.Record.Headers, core.Header{Name: v.columns[i].Header, Value: value.String})
		}
	}
}

// invalid says what keeps the values from being a record's, but for the headers column. Text that is not UTF-8 comes from
// databases that do not look at it.
func (v *Values) invalid() string {
	switch {
	case !v.ID.Valid:
		return "id is NULL"
	case !utf8.ValidString(v.ID.String):
		return "id is not UTF-8"
	case !utf8.ValidString(v.Key.String):
		return "key is not UTF-8"
	case !utf8.ValidString(v.Route.String):
		return "route is not UTF-8"
	case !utf8.ValidString(v.Type.String):
		return "type is not UTF-8"
	}
	for i, value := range v.Extra {
		if !utf8.ValidString(value.String) {
			return "header " + v.columns[i].Header + " is not UTF-8"
		}
	}
	return ""
}
