// Package outbox inserts messages into an outbox table, in the transaction of the facts they belong to. It is for
// applications, which may as well use plain INSERT statements: it computes nothing that they could not. What it adds is
// that a message which would fail later is refused at once, and that a duplicate id is an error of its own type.
//
//	table, err := outbox.New(outbox.PostgreSQL, "outbox", outbox.Options{})
//	...
//	tx, err := db.BeginTx(ctx, nil)
//	... // the facts
//	err = table.Enqueue(ctx, tx, outbox.Message{ID: "order-1", Key: "ada", Type: "order.placed", Payload: payload})
//	... // commit, or roll back after any error
//
// The package imports no driver. [Table.Enqueue] is for database/sql with whatever driver, [EnqueuePgx] for pgx.
package outbox

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Dialect is a kind of database, named as a source's plugin.
type Dialect string

// The databases that have sources. MySQL is MariaDB too.
const (
	PostgreSQL Dialect = "postgres"
	MySQL      Dialect = "mysql"
	SQLite     Dialect = "sqlite"
)

// PayloadType is what the payload column holds.
type PayloadType int

const (
	// Bytes are for bytea and blob columns, which `connectd init` makes.
	Bytes PayloadType = iota
	// Text is for text columns: payloads must be UTF-8 without NUL.
	Text
	// JSON is for json and jsonb columns: payloads must be JSON, in PostgreSQL without \u0000, which jsonb refuses.
	JSON
)

// Columns are the table's own names, as `columns` of the configuration has them. One that is "" has its default name: id,
// aggregateid, aggregatetype, type, payload and headers. A table may lack those that no message has a value for: only the
// others are named in the INSERT.
type Columns struct {
	ID, Key, Route, Type, Payload, Headers string
}

// Options say how a table differs from what `connectd init` makes.
type Options struct {
	// Schema is the table's schema (in MySQL its database, in SQLite the name of an attached one). "" leaves that to the
	// connection.
	Schema  string
	Columns Columns
	Payload PayloadType
	// MaxBytes refuses messages with more than this many bytes of id, key, route, type, payload and headers together. Set
	// it to what the destination takes: a larger one would be inserted, and be dead when it is sent. 0 is no limit.
	MaxBytes int
}

// Table is an outbox table. It does not change and may be used by all goroutines.
type Table struct {
	dialect  Dialect
	name     string // with schema, quoted
	bare     string // as SQLite's errors have it
	columns  Columns
	payload  PayloadType
	maxBytes int
}

// New refuses names that the database does not take. It does not look whether the table is there. Names are taken as they
// are, and quoted in statements.
func New(dialect Dialect, table string, o Options) (*Table, error) {
	c := &o.Columns
	switch {
	case dialect != PostgreSQL && dialect != MySQL && dialect != SQLite:
		return nil, fmt.Errorf("outbox: no dialect is named %q", dialect)
	case o.Payload != Bytes && o.Payload != Text && o.Payload != JSON:
		return nil, fmt.Errorf("outbox: no payload type has number %d", o.Payload)
	case o.MaxBytes < 0:
		return nil, fmt.Errorf("outbox: MaxBytes is %d, must not be negative", o.MaxBytes)
	}
	if err := dialect.checkName(table); err != nil {
		return nil, fmt.Errorf("outbox: table %q: %w", table, err)
	}
	name := dialect.quote(table)
	if o.Schema != "" {
		if err := dialect.checkName(o.Schema); err != nil {
			return nil, fmt.Errorf("outbox: schema %q: %w", o.Schema, err)
		}
		name = dialect.quote(o.Schema) + "." + name
	}
	used := map[string]bool{}
	for _, column := range []struct {
		name      *string
		byDefault string
	}{{&c.ID, "id"}, {&c.Key, "aggregateid"}, {&c.Route, "aggregatetype"}, {&c.Type, "type"}, {&c.Payload, "payload"}, {&c.Headers, "headers"}} {
		if *column.name == "" {
			*column.name = column.byDefault
		}
		if err := dialect.checkName(*column.name); err != nil {
			return nil, fmt.Errorf("outbox: column %q: %w", *column.name, err)
		}
		if used[*column.name] {
			return nil, fmt.Errorf("outbox: two columns are %q", *column.name)
		}
		used[*column.name] = true
	}
	return &Table{dialect: dialect, name: name, bare: table, columns: *c, payload: o.Payload, maxBytes: o.MaxBytes}, nil
}

// checkName refuses what the database would refuse, or, as PostgreSQL does, cut.
func (d Dialect) checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the name is empty")
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return fmt.Errorf("the name is not UTF-8 without NUL")
	case d == PostgreSQL && len(name) > 63:
		return fmt.Errorf("the name has %d bytes, PostgreSQL takes 63", len(name))
	case d == MySQL && utf8.RuneCountInString(name) > 64:
		return fmt.Errorf("the name has %d characters, MySQL takes 64", utf8.RuneCountInString(name))
	}
	return nil
}

func (d Dialect) quote(name string) string {
	mark := `"`
	if d == MySQL {
		mark = "`"
	}
	return mark + strings.ReplaceAll(name, mark, mark+mark) + mark
}
