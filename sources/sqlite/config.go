package sqlite

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Config says which outbox table to read, and how.
type Config struct {
	// Path is the database file.
	Path string
	// Table is the outbox table's name, as it is: it is quoted where it is used.
	Table string
	// Columns gives the table's name for a column: id, key, route, type, payload, headers, order, created, and the
	// relay's own, state, available_at, attempts, deliveries, crashes, last_error, failing_since, published_at.
	// A column that is not mapped has its default name. A nil name says that the table has no such column, which
	// key, route, type, headers and created may be.
	Columns map[string]*string
	// DeletePublished deletes a row when it is published, instead of marking it.
	DeletePublished bool
	// BusyTimeout is how long a call waits for the file's write lock before it fails; 0 is 5 seconds.
	BusyTimeout time.Duration
}

const defaultBusyTimeout = 5 * time.Second

// columns are a table's column names; "" is a column it has not.
type columns struct {
	id, key, route, kind, payload, headers, order, created                                  string
	state, availableAt, attempts, deliveries, crashes, lastError, failingSince, publishedAt string
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
	}
}

// Validate says what cannot work, without a look at the file.
func (cfg Config) Validate() error {
	_, err := cfg.resolve()
	return err
}

// ownTables stand beside the outbox tables and are none.
var ownTables = []string{
	"connectd_outbox", "connectd_lease", "connectd_worker", "connectd_inflight", "connectd_attempt", "connectd_receipt", "connectd_ledger",
}

// resolve gives the mapping before the table is known: defaults for what is not mapped.
func (cfg Config) resolve() (columns, error) {
	var c columns
	if cfg.Path == "" || strings.HasPrefix(cfg.Path, ":memory:") {
		return c, errors.New("path must name a database file")
	}
	if cfg.Table == "" || strings.HasPrefix(strings.ToLower(cfg.Table), "sqlite_") || strings.ContainsRune(cfg.Table, 0) ||
		slices.Contains(ownTables, strings.ToLower(cfg.Table)) {
		return c, fmt.Errorf("table %q cannot be an outbox table's name", cfg.Table)
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
			return c, fmt.Errorf("columns.%s cannot be null", r.name)
		case name == nil:
			*r.to = ""
		case strings.ContainsRune(*name, 0):
			return c, fmt.Errorf("columns.%s: %q cannot be a column's name", r.name, *name)
		default:
			*r.to = *name
		}
		if *r.to == "" {
			continue
		}
		// The id may be the order column: an INTEGER PRIMARY KEY AUTOINCREMENT is both.
		if other := used[strings.ToLower(*r.to)]; other != "" && (other != "id" || r.name != "order") {
			return c, fmt.Errorf("columns.%s and columns.%s are both %q", other, r.name, *r.to)
		}
		used[strings.ToLower(*r.to)] = r.name
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Columns)) {
		if !known[name] {
			return c, fmt.Errorf("columns.%s is no column of an outbox table", name)
		}
	}
	return c, nil
}

// mapped says whether the configuration names the column itself.
func (cfg Config) mapped(name string) bool {
	n, found := cfg.Columns[name]
	return found && (n == nil || *n != "")
}

// quote makes a name an SQL identifier.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// literal makes text an SQL string.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
