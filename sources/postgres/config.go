package postgres

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// Config says which outbox table to read, and how.
type Config struct {
	// DSN is a connection string as libpq and pgx take it: a URL or key=value pairs. pool_max_conns bounds the
	// connections that read and settle (8 unless it is given); renewals and heartbeats have three of their own.
	// default_query_exec_mode chooses pgx's query mode; without it prepared statements are used, and behind a
	// transaction pooler, which is noticed, none.
	DSN string
	// Table is the outbox table's name, with its schema where it needs one: table, schema.table, or with a part in
	// double quotes that itself has a full stop. Names are taken as they are: Table and table are two tables.
	Table string
	// Columns gives the table's name for a column: id, key, route, type, payload, headers, order, created, and the
	// relay's own, partition, state, available_at, attempts, deliveries, crashes, last_error, failing_since,
	// published_at. A column that is not mapped has its default name. A nil name says that the table has no such
	// column, which key, route, type, headers and created may be.
	Columns map[string]*string
	// HeaderColumns are columns whose text is sent as a header, after those of the headers column. A NULL is a
	// header that is not there.
	HeaderColumns []HeaderColumn
	// DeletePublished deletes a row when it is published, instead of marking it.
	DeletePublished bool
	// CommitOrder holds a row back while a transaction runs that could still commit an earlier one: see HeldBack.
	CommitOrder bool
	// Notify says whether new rows are announced by NOTIFY. Polling goes on in any case.
	Notify Notify
	// Poll bounds the pause between two looks for new rows; zero is 20ms and 500ms.
	Poll Poll
	// Log gets what is neither an error nor a result, such as that NOTIFY does not come through. Nil: nothing.
	Log *slog.Logger
}

// HeaderColumn is a column that is sent as a header.
type HeaderColumn struct{ Header, Column string }

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

// columns are a table's column names; "" is a column it has not.
type columns struct {
	id, key, route, kind, payload, headers, order, created                                  string
	state, availableAt, attempts, deliveries, crashes, lastError, failingSince, publishedAt string
	part                                                                                    string
}

// columnRule is one line of the mapping.
type columnRule struct {
	name      string // in the configuration
	byDefault string // in the table
	to        *string
	nullable  bool // may be mapped to null
	// guess: when it is neither mapped nor there, the table does without. Not so the key: a row without one has no
	// order, and that must be said.
	guess bool
}

// applicationColumns is how many of the rules are about the application's columns; they come first.
const applicationColumns = 8

func (c *columns) rules() []columnRule {
	return []columnRule{
		{"id", "id", &c.id, false, false},
		{"key", "aggregateid", &c.key, true, false},
		{"route", "aggregatetype", &c.route, true, true},
		{"type", "type", &c.kind, true, true},
		{"payload", "payload", &c.payload, false, false},
		{"headers", "headers", &c.headers, true, true},
		{"order", "seq", &c.order, false, false},
		{"created", "created_at", &c.created, true, true},
		{"state", "state", &c.state, false, false},
		{"available_at", "available_at", &c.availableAt, false, false},
		{"attempts", "attempts", &c.attempts, false, false},
		{"deliveries", "deliveries", &c.deliveries, false, false},
		{"crashes", "crashes", &c.crashes, false, false},
		{"last_error", "last_error", &c.lastError, false, false},
		{"failing_since", "failing_since", &c.failingSince, false, false},
		{"published_at", "published_at", &c.publishedAt, false, false},
		{"partition", "part", &c.part, false, false},
	}
}

// Validate says what cannot work, without a look at the server.
func (cfg Config) Validate() error {
	if _, _, err := cfg.resolve(); err != nil {
		return err
	}
	_, err := cfg.connection()
	return err
}

// ownTables stand beside the outbox tables and are none.
var ownTables = []string{
	"connectd_outbox", "connectd_lease", "connectd_worker", "connectd_inflight", "connectd_attempt", "connectd_receipt", "connectd_ledger",
}

// resolve gives the names before the table is known: defaults for what is not mapped.
func (cfg Config) resolve() (tableName, columns, error) {
	var c columns
	table, err := parseTable(cfg.Table)
	if err != nil {
		return table, c, err
	}
	if slices.Contains(ownTables, table.name) {
		return table, c, fmt.Errorf("table %q cannot be an outbox table's name", cfg.Table)
	}
	switch cfg.Notify {
	case NotifyOff, NotifyProducer, NotifyTrigger:
	default:
		return table, c, fmt.Errorf("notify is %q, must be producer or trigger", string(cfg.Notify))
	}
	if err := cfg.checkHeaders(); err != nil {
		return table, c, err
	}
	known := map[string]bool{}
	used := map[string]string{}
	for _, r := range c.rules() {
		known[r.name] = true
		*r.to = r.byDefault
		name, mapped := cfg.Columns[r.name]
		switch {
		case !mapped || (name != nil && *name == ""):
		case name == nil && !r.nullable:
			return table, c, fmt.Errorf("columns.%s cannot be null", r.name)
		case name == nil:
			*r.to = ""
		default:
			*r.to = *name
		}
		if *r.to == "" {
			continue
		}
		if err := checkName(*r.to); err != nil {
			return table, c, fmt.Errorf("columns.%s: %w", r.name, err)
		}
		// The id may be the order column: an identity column that is the primary key is both.
		if other := used[*r.to]; other != "" && (other != "id" || r.name != "order") {
			return table, c, fmt.Errorf("columns.%s and columns.%s are both %q", other, r.name, *r.to)
		}
		used[*r.to] = r.name
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Columns)) {
		if !known[name] {
			return table, c, fmt.Errorf("columns.%s is no column of an outbox table", name)
		}
	}
	return table, c, nil
}

func (cfg Config) checkHeaders() error {
	for _, h := range cfg.HeaderColumns {
		if h.Header == "" {
			return fmt.Errorf("the header of column %q has no name", h.Column)
		}
		if err := checkName(h.Column); err != nil {
			return fmt.Errorf("header %s: %w", h.Header, err)
		}
	}
	return nil
}

// mapped says whether the configuration names the column itself.
func (cfg Config) mapped(name string) bool {
	n, found := cfg.Columns[name]
	return found && (n == nil || *n != "")
}

// logger is where to log.
func (cfg Config) logger() *slog.Logger {
	if cfg.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return cfg.Log
}
