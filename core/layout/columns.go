package layout

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Columns are the names of a table's columns; "" is a column it has not.
type Columns struct {
	ID, Key, Route, Type, Payload, Headers, Order, Created                                  string
	State, AvailableAt, Attempts, Deliveries, Crashes, LastError, FailingSince, PublishedAt string
	Partition                                                                               string
}

// Mapping gives a table's own names by the names in the configuration. A column that is not in it, or is "", has its
// default name; nil says that the table has no such column.
type Mapping map[string]*string

// HeaderColumn is a column whose text is sent as a header.
type HeaderColumn struct{ Header, Column string }

// rule is what holds for one column.
type rule struct {
	name      string // in the configuration
	byDefault string // in the table
	to        *string
	nullable  bool // may be mapped to null
	guess     bool // when it is neither mapped nor there, the table does without
}

// application is how many of the rules are about the application's columns; they come first.
const application = 8

func (c *Columns) rules() []rule {
	return []rule{
		{"id", "id", &c.ID, false, false},
		{"key", "aggregateid", &c.Key, true, false},
		{"route", "aggregatetype", &c.Route, true, true},
		{"type", "type", &c.Type, true, true},
		{"payload", "payload", &c.Payload, false, false},
		{"headers", "headers", &c.Headers, true, true},
		{"order", "seq", &c.Order, false, false},
		{"created", "created_at", &c.Created, true, true},
		{"state", "state", &c.State, false, false},
		{"available_at", "available_at", &c.AvailableAt, false, false},
		{"attempts", "attempts", &c.Attempts, false, false},
		{"deliveries", "deliveries", &c.Deliveries, false, false},
		{"crashes", "crashes", &c.Crashes, false, false},
		{"last_error", "last_error", &c.LastError, false, false},
		{"failing_since", "failing_since", &c.FailingSince, false, false},
		{"published_at", "published_at", &c.PublishedAt, false, false},
		{"partition", "part", &c.Partition, false, false},
	}
}

// All gives each column's name in the configuration with its name in the table.
func (c *Columns) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, r := range c.rules() {
			if !yield(r.name, *r.to) {
				return
			}
		}
	}
}

// ConfigName is what a configuration calls a column of the table.
func (c *Columns) ConfigName(column string) string {
	for name, is := range c.All() {
		if is == column {
			return name
		}
	}
	return column
}

// Has says whether the mapping says something of the column, be it that there is none.
func (m Mapping) Has(column string) bool {
	name, found := m[column]
	return found && (name == nil || *name != "")
}

// Resolve gives the names before the table is known, with defaults for what is not mapped. It refuses what no table can
// have, header columns included.
func (m Mapping) Resolve(headers []HeaderColumn, d Dialect) (Columns, error) {
	var c Columns
	for _, h := range headers {
		if h.Header == "" {
			return c, fmt.Errorf("the header of column %q has no name", h.Column)
		}
		if err := d.CheckName(h.Column); err != nil {
			return c, fmt.Errorf("header %s: %w", h.Header, err)
		}
	}
	known := map[string]bool{}
	used := map[string]string{}
	for _, r := range c.rules() {
		if r.to == &c.Partition && d.OnePartition {
			continue
		}
		known[r.name] = true
		*r.to = r.byDefault
		if m.Has(r.name) {
			name := m[r.name]
			if name == nil && !r.nullable {
				return c, fmt.Errorf("columns.%s cannot be null", r.name)
			}
			if name == nil {
				*r.to = ""
				continue
			}
			*r.to = *name
		}
		if err := d.CheckName(*r.to); err != nil {
			return c, fmt.Errorf("columns.%s: %w", r.name, err)
		}
		// The id may be the order column: a primary key that the database numbers is both.
		if other := used[d.fold(*r.to)]; other != "" && (other != "id" || r.name != "order") {
			return c, fmt.Errorf("columns.%s and columns.%s are both %q", other, r.name, *r.to)
		}
		used[d.fold(*r.to)] = r.name
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !known[name] {
			return c, fmt.Errorf("columns.%s is no column of an outbox table", name)
		}
	}
	return c, nil
}

// HeaderOnly are the columns that a table must have for the sake of headers alone, each once.
func (c *Columns) HeaderOnly(headers []HeaderColumn, d Dialect) []string {
	others := map[string]bool{}
	for _, name := range c.All() {
		others[d.fold(name)] = true
	}
	var list []string
	for _, h := range headers {
		if !others[d.fold(h.Column)] {
			others[d.fold(h.Column)] = true
			list = append(list, h.Column)
		}
	}
	return list
}

// Settle finds the application's columns, and those of headers, in a table that is there; the order is the source's to
// find. spelled looks for a column and gives its name as the table spells it, which it then has in c and in headers. What
// is neither mapped nor there, and may be done without, becomes "".
func (c *Columns) Settle(m Mapping, headers []HeaderColumn, spelled func(name string) (string, bool)) error {
	var lost []string
	flaw := Unusable
	for _, r := range c.rules()[:application] {
		if *r.to == "" || r.to == &c.Order {
			continue
		}
		is, found := spelled(*r.to)
		switch {
		case found:
			*r.to = is
		case r.guess && !m.Has(r.name):
			*r.to = ""
		case r.nullable:
			flaw = Mismapped
			lost = append(lost, fmt.Sprintf("no column %s for the %s (map columns.%s to a name, or to null if there is none)", *r.to, r.name, r.name))
		default:
			flaw = Mismapped
			lost = append(lost, fmt.Sprintf("no column %s for the %s (map columns.%s)", *r.to, r.name, r.name))
		}
	}
	for i, h := range headers {
		is, found := spelled(h.Column)
		if !found {
			lost = append(lost, fmt.Sprintf("no column %s for the header %s", h.Column, h.Header))
			continue
		}
		headers[i].Column = is
	}
	if lost != nil {
		return Unfit(flaw, "%s", strings.Join(lost, "; "))
	}
	return nil
}
