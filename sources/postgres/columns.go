package postgres

import (
	"fmt"
	"slices"
	"strings"

	"github.com/connectd/connectd/core/layout"
)

// settleColumns finds the application's columns in an existing table. The relay's own may still be missing.
func (s *schema) settleColumns(cfg Config) error {
	created := s.cols.Created
	err := s.cols.Settle(cfg.Columns, s.extra, func(name string) (string, bool) {
		_, found := s.found[name]
		return name, found
	})
	if err != nil {
		return err
	}
	if s.cols.Created == "" && created != "" {
		s.cols.Created, s.fillCreated = created, true
	}
	if err := s.checkTypes(cfg); err != nil {
		return err
	}
	if err := s.settleOrder(cfg); err != nil {
		return err
	}
	part, found := s.found[s.cols.Partition]
	s.byColumn = found && part.generated && strings.Contains(part.byDefault, "hashtext")
	return nil
}

// plainKinds have a text that depends on nothing but the value, so that it can be hashed in an index.
var plainKinds = []string{"text", "character varying", "character", "uuid", "smallint", "integer", "bigint", "citext"}

// timeKinds are the types of a time of insertion; one without a zone is taken for UTC.
var timeKinds = []string{"timestamp with time zone", "timestamp without time zone"}

func (s *schema) checkTypes(cfg Config) error {
	id := s.found[s.cols.ID]
	if !s.unique[id.name] && !cfg.ToAudit {
		return layout.Misfit("id", id.name, layout.NotUnique, "has no unique constraint of its own")
	}
	for name, col := range map[string]string{"id": s.cols.ID, "key": s.cols.Key} {
		if c, found := s.found[col]; found && !slices.Contains(plainKinds, c.kind) {
			return fmt.Errorf("the %s column %s is of type %s, must be one of %s", name, c.name, c.kind, strings.Join(plainKinds, ", "))
		}
	}
	if c, found := s.found[s.cols.Created]; found && !slices.Contains(timeKinds, c.kind) {
		return layout.Unfit(layout.Mismapped, "the column %s is of type %s, which is no time (map columns.created to another column, or to null)", c.name, c.kind)
	}
	return nil
}

// settleOrder finds the column that gives the rows' order. Its values must never come twice, not even after a row is
// deleted: the server gives them, from a sequence.
func (s *schema) settleOrder(cfg Config) error {
	c, found := s.found[s.cols.Order]
	id := s.found[s.cols.ID]
	switch {
	case found && c.sequence == s.sequenceName():
		s.bySequence = true
	case found && !numbered(c):
		return layout.Misfit("order", c.name, layout.Mismapped, "is no integer that the server numbers, NOT NULL and with a sequence or as an identity (map columns.order to a name the table has not, and init adds such a column)")
	case found && !s.unique[c.name]:
		return layout.Misfit("order", c.name, layout.NotUnique, "has no unique constraint of its own")
	case found:
	case numbered(id) && !cfg.Columns.Has("order"):
		s.cols.Order = id.name
	default:
		s.bySequence = true
	}
	return nil
}

func numbered(c column) bool {
	return slices.Contains([]string{"smallint", "integer", "bigint"}, c.kind) && c.notNull &&
		(c.identity || strings.HasPrefix(c.byDefault, "nextval("))
}

// missing lists what init would still have to make.
func (s *schema) missing() []string {
	if !s.exists {
		return []string{"table " + s.table.String()}
	}
	var lost []string
	for _, c := range s.relayColumns() {
		if _, found := s.found[c.name]; !found {
			lost = append(lost, "column "+c.name)
		}
	}
	for _, o := range s.relayObjects() {
		switch valid, there := s.objects[o.name]; {
		case !there:
			lost = append(lost, o.kind+" "+o.name)
		case !valid:
			lost = append(lost, "valid "+o.kind+" "+o.name)
		}
	}
	switch {
	case lost != nil:
	case !s.registered:
		lost = []string{"row of the table in " + s.beside("outbox")}
	case s.idColumn != s.cols.ID:
		lost = []string{"name of the id column in " + s.beside("outbox")}
	case s.version < schemaVersion:
		lost = []string{fmt.Sprintf("schema of version %d", schemaVersion)}
	}
	return lost
}
