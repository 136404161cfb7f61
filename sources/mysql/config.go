package mysql

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Config says which outbox table to read, and how.
type Config struct {
	// DSN is user:password@tcp(host:port)/database?options as go-sql-driver takes it, or a URL
	// mysql://user:password@host:port/database?options. What the source relies on is set whatever the options say:
	// time zone, SQL mode, character set, isolation level, time-outs for locks, and how rows are counted.
	DSN string
	// Table is the outbox table's name, with its database where that is not the DSN's: table, database.table, or with
	// a part in backquotes that itself has a full stop.
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
	// MaxTransaction is how long applications' transactions that insert rows last at most; 0 is a minute. It only
	// matters where the user may not see the running transactions (the PROCESS privilege): rows of a longer one are
	// then found late, by the engine's reading from the start, and may come after later rows of their key.
	MaxTransaction time.Duration
}

// HeaderColumn is a column that is sent as a header.
type HeaderColumn struct{ Header, Column string }

const defaultMaxTransaction = time.Minute

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
	_, err := parseDSN(cfg.DSN)
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
	if slices.Contains(ownTables, strings.ToLower(table.name)) {
		return table, c, fmt.Errorf("table %q cannot be an outbox table's name", cfg.Table)
	}
	if cfg.MaxTransaction < 0 {
		return table, c, fmt.Errorf("the longest transaction is %v, must be positive", cfg.MaxTransaction)
	}
	for _, h := range cfg.HeaderColumns {
		if h.Header == "" {
			return table, c, fmt.Errorf("the header of column %q has no name", h.Column)
		}
		if err := checkName(h.Column); err != nil {
			return table, c, fmt.Errorf("header %s: %w", h.Header, err)
		}
	}
	return table, c, c.resolve(cfg.Columns)
}

func (c *columns) resolve(mapping map[string]*string) error {
	known := map[string]bool{}
	used := map[string]string{} // by lower-case name: columns have no case
	for _, r := range c.rules() {
		known[r.name] = true
		*r.to = r.byDefault
		name, mapped := mapping[r.name]
		switch {
		case !mapped || (name != nil && *name == ""):
		case name == nil && !r.nullable:
			return fmt.Errorf("columns.%s cannot be null", r.name)
		case name == nil:
			*r.to = ""
		default:
			*r.to = *name
		}
		if *r.to == "" {
			continue
		}
		if err := checkName(*r.to); err != nil {
			return fmt.Errorf("columns.%s: %w", r.name, err)
		}
		// The id may be the order column: an AUTO_INCREMENT primary key is both.
		if other := used[strings.ToLower(*r.to)]; other != "" && (other != "id" || r.name != "order") {
			return fmt.Errorf("columns.%s and columns.%s are both %q", other, r.name, *r.to)
		}
		used[strings.ToLower(*r.to)] = r.name
	}
	for _, name := range slices.Sorted(maps.Keys(mapping)) {
		if !known[name] {
			return fmt.Errorf("columns.%s is no column of an outbox table", name)
		}
	}
	return nil
}

// mapped says whether the configuration names the column itself.
func (cfg Config) mapped(name string) bool {
	n, found := cfg.Columns[name]
	return found && (n == nil || *n != "")
}

// tableName is a table and its database; the database is "" until the server has said it.
type tableName struct{ database, name string }

func (t tableName) String() string {
	if t.database == "" {
		return t.name
	}
	return t.database + "." + t.name
}

func (t tableName) quoted() string {
	if t.database == "" {
		return quote(t.name)
	}
	return quote(t.database) + "." + quote(t.name)
}

// parseTable reads table or database.table, each part as it is or in backquotes.
func parseTable(text string) (tableName, error) {
	var parts []string
	for rest, more := text, true; more; {
		part, after, err := cutName(rest)
		if err == nil {
			err = checkName(part)
		}
		if err != nil {
			return tableName{}, fmt.Errorf("table %q: %w", text, err)
		}
		parts = append(parts, part)
		rest, more = strings.CutPrefix(after, ".")
	}
	switch len(parts) {
	case 1:
		return tableName{name: parts[0]}, nil
	case 2:
		return tableName{database: parts[0], name: parts[1]}, nil
	default:
		return tableName{}, fmt.Errorf("table %q has %d parts, must be table or database.table (put a name that has a full stop in backquotes)", text, len(parts))
	}
}

// cutName takes one name off the front; what is left is empty or begins with a full stop.
func cutName(text string) (name, rest string, err error) {
	if !strings.HasPrefix(text, "`") {
		i := strings.IndexByte(text, '.')
		if i < 0 {
			return text, "", nil
		}
		return text[:i], text[i:], nil
	}
	for text = text[1:]; ; {
		part, after, closed := strings.Cut(text, "`")
		if !closed {
			return "", "", errors.New("a backquote is not closed")
		}
		name += part
		if text = after; !strings.HasPrefix(text, "`") {
			break
		}
		name += "`"
		text = text[1:]
	}
	if text != "" && text[0] != '.' {
		return "", "", errors.New("there is something behind the closing backquote")
	}
	return name, text, nil
}

// maxName is how many characters a name may have.
const maxName = 64

// checkName refuses what the servers refuse as a name:
// https://dev.mysql.com/doc/refman/8.4/en/identifiers.html
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("a name is empty")
	case utf8.RuneCountInString(name) > maxName:
		return fmt.Errorf("the name %q is longer than %d characters", name, maxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r == 0 || r > 0xffff }) || strings.HasSuffix(name, " "):
		return fmt.Errorf("%q cannot be a name", name)
	default:
		return nil
	}
}

// quote makes a name an SQL identifier.
func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// literal makes text an SQL string under our SQL mode, in which a backslash escapes.
func literal(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(text) + "'"
}
