package postgres

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/connectd/connectd/core/layout"
)

// Config says which outbox table to read, and how.
type Config struct {
	// DSN is a connection string as libpq and pgx take it: a URL or key=value pairs. pool_max_conns bounds the
	// connections that read and settle (4 unless it is given); renewals and heartbeats have three of their own.
	// default_query_exec_mode chooses pgx's query mode; without it prepared statements are used, and behind a
	// transaction pooler, which is noticed, none.
	DSN string
	// Table is the outbox table's name, with its schema where it needs one: table, schema.table, or with a part in
	// double quotes that itself has a full stop. Names are taken as they are: Table and table are two tables.
	Table string
	// Columns gives the table's own names of its columns. Package outbox lists the columns, the application's and the
	// relay's, with their default names.
	Columns layout.Mapping
	// HeaderColumns are columns whose text is sent as a header, after those of the headers column. A NULL is a
	// header that is not there.
	HeaderColumns []layout.HeaderColumn
	// DeletePublished deletes a row when it is published, instead of marking it.
	DeletePublished bool
	// ToAudit opens the table although its id has lost its unique constraint: an audit must find what came of that. Nothing
	// else is to be done with such a source.
	ToAudit bool
	// CommitOrder holds a row back while a transaction that has written to the table could still commit an earlier one: see
	// HeldBack.
	CommitOrder bool
	// Notify says whether new rows are announced by NOTIFY. Polling goes on in any case.
	Notify Notify
	// Poll bounds the pause between two looks for new rows; zero is 20ms and 500ms.
	Poll Poll
	// Log gets what is neither an error nor a result, such as that NOTIFY does not come through. Nil: nothing.
	Log *slog.Logger
}

// Notify is who sends a NOTIFY when rows are inserted.
type Notify string

// The producers that send a NOTIFY pay for it: such commits wait for each other in the whole cluster, which takes 25 to
// 65 percent of single-row inserts. It is for outboxes that are quiet and must be quick.
const (
	NotifyOff Notify = ""
	// NotifyProducer: applications call pg_notify('connectd.SCHEMA.TABLE', '') in the inserting transaction. Where that is
	// longer than a name may be, the channel is another, which the log names.
	NotifyProducer Notify = "producer"
	NotifyTrigger  Notify = "trigger" // a trigger does, once for each INSERT statement; init makes it
)

// Poll bounds a pause: Min after something was found, doubling up to Max.
type Poll struct{ Min, Max time.Duration }

func (p Poll) orDefault() Poll {
	if p.Min <= 0 {
		p.Min = 20 * time.Millisecond
	}
	if p.Max <= 0 {
		p.Max = 500 * time.Millisecond
	}
	p.Max = max(p.Max, p.Min)
	return p
}

// dialect is how PostgreSQL takes names.
func dialect() layout.Dialect { return layout.Dialect{CheckName: checkName} }

// Validate says what cannot work, without a look at the server.
func (cfg Config) Validate() error {
	if _, _, err := cfg.resolve(); err != nil {
		return err
	}
	_, err := cfg.connection()
	return err
}

// resolve gives the names before the table is known: defaults for what is not mapped.
func (cfg Config) resolve() (tableName, layout.Columns, error) {
	table, err := parseTable(cfg.Table)
	if err != nil {
		return table, layout.Columns{}, err
	}
	if dialect().IsRelayTable(table.name) {
		return table, layout.Columns{}, fmt.Errorf("table %q cannot be an outbox table's name", cfg.Table)
	}
	switch cfg.Notify {
	case NotifyOff, NotifyProducer, NotifyTrigger:
	default:
		return table, layout.Columns{}, fmt.Errorf("notify is %q, must be producer or trigger", string(cfg.Notify))
	}
	cols, err := cfg.Columns.Resolve(cfg.HeaderColumns, dialect())
	return table, cols, err
}

// logger is where to log.
func (cfg Config) logger() *slog.Logger {
	if cfg.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return cfg.Log
}
