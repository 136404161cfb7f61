package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// InitOptions is what only a person can answer.
type InitOptions struct {
	// Existing says what the rows are that an adopted table already has: "pending" or "published". It may be empty
	// when there are none, or when the table has a column published, which is 1 in those that have been sent and 0 or
	// NULL in the others.
	Existing string
}

// Plan says what has to be done so that Open works: nothing, when it does already. It changes nothing and creates no
// file.
func Plan(ctx context.Context, cfg Config, opt InitOptions) (core.Plan, error) {
	if _, err := cfg.resolve(); err != nil {
		return core.Plan{}, err
	}
	path := cfg.Path
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		path = "" // an empty database stands in for the file that is not there
	} else if err != nil {
		return core.Plan{}, fmt.Errorf("plan: %w", err)
	}
	db := connect(path, access{mode: "rw", busy: cfg.busy()})
	defer db.Close()
	s, err := inspect(ctx, db, cfg)
	if err != nil {
		return core.Plan{}, err
	}
	steps, err := s.plan(opt)
	return core.Plan{Steps: steps}, err
}

func (s *schema) plan(opt InitOptions) ([]core.PlanStep, error) {
	var steps []core.PlanStep
	add := func(why, sql string) { steps = append(steps, core.PlanStep{Why: why, SQL: sql}) }
	if !s.wal {
		add("readers and the writer do not wait for each other", setWAL)
	}
	// The relay's tables come first: filling the order column of an old table uses one.
	objects := s.relayObjects()
	for _, o := range objects[:len(relayTables)] {
		if !s.objects[o.name] {
			add(o.why, o.sql)
		}
	}
	tbl := literal(s.table)
	if s.objects["connectd_outbox"] && !s.notes {
		add("where the ids of each table are, so that a receipt of none is found", "ALTER TABLE connectd_outbox ADD COLUMN id_column TEXT")
	}
	if !s.registered || s.idColumn != s.cols.ID {
		add("registers table "+s.table+", whose ids are in "+s.cols.ID, "INSERT INTO connectd_outbox (tbl, id_column) VALUES ("+tbl+", "+literal(s.cols.ID)+") ON CONFLICT DO UPDATE SET id_column = excluded.id_column")
	}
	if !s.registered {
		add("the table is one partition, free at first", "INSERT INTO connectd_lease (tbl, part) VALUES ("+tbl+", 0) ON CONFLICT DO NOTHING")
	}
	if !s.exists {
		add("the outbox table", s.createTable())
	} else if err := s.adopt(opt, add); err != nil {
		return nil, err
	}
	for _, o := range objects[len(relayTables):] {
		if !s.objects[strings.ToLower(o.name)] {
			add(o.why, o.sql)
		}
	}
	return steps, nil
}

// adopt adds the relay's columns to a table that is there.
func (s *schema) adopt(opt InitOptions, add func(why, sql string)) error {
	if err := layout.CheckNumbers(s.table, s.cols.Order, s.lowest); err != nil {
		return err
	}
	t := quote(s.table)
	var added []relayColumn
	for _, c := range s.relayColumns() {
		old, found := s.found[strings.ToLower(c.name)]
		switch {
		case !found:
			added = append(added, c)
			add("the relay's own column", "ALTER TABLE "+t+" ADD COLUMN "+c.definition())
		case c.byDefault != "" && old.byDefault.String != c.byDefault:
			return fmt.Errorf("table %s has a column %s with a meaning of its own: map columns.%s to another name", s.table, old.name, s.cols.ConfigName(c.name))
		}
	}
	if slices.ContainsFunc(added, func(c relayColumn) bool { return c.name == s.cols.State }) && s.rows {
		if err := s.settleOldRows(opt, add); err != nil {
			return err
		}
	}
	if s.byTrigger && slices.ContainsFunc(added, func(c relayColumn) bool { return c.name == s.cols.Order }) {
		s.numberOldRows(add)
	}
	return nil
}

// settleOldRows says which rows of an adopted table have been sent.
func (s *schema) settleOldRows(opt InitOptions, add func(why, sql string)) error {
	published, flagged := s.found["published"]
	answer, err := layout.Existing(s.table, opt.Existing, flagged && !s.oddFlags, true)
	where := ""
	switch {
	case err != nil:
		return err
	case answer == core.Pending:
		return nil
	case answer == "":
		where = " WHERE " + quote(published.name) + " = 1"
	}
	why := "the rows that are there have been sent"
	if where != "" {
		why = "rows with " + published.name + " = 1 have been sent, the others are pending"
	}
	add(why, "UPDATE "+quote(s.table)+" SET "+quote(s.cols.State)+" = 'published', "+quote(s.cols.PublishedAt)+" = "+nowMS+where)
	return nil
}

// numberOldRows fills the order column of the rows that are there.
func (s *schema) numberOldRows(add func(why, sql string)) {
	if !s.rows {
		return
	}
	t, order := quote(s.table), quote(s.cols.Order)
	by, sort := "rowid", "rowid"
	why := "rows that are there are numbered in the order of their rowid, the order of insertion"
	switch {
	case s.withoutRowid && s.cols.Created != "" && !s.fillCreated:
		by = quote(s.cols.ID)
		sort = quote(s.cols.Created) + ", " + by
		why = "rows that are there are numbered in the order of " + s.cols.Created
	case s.withoutRowid:
		by, sort = quote(s.cols.ID), quote(s.cols.ID)
		why = "rows that are there are numbered in the order of their id: a WITHOUT ROWID table does not know the order of insertion"
	}
	add(why, "UPDATE "+t+" SET "+order+" = n.n FROM (SELECT "+by+" AS i, row_number() OVER (ORDER BY "+sort+") AS n FROM "+t+") n WHERE "+by+" = n.i")
	add("later rows get higher numbers", "UPDATE connectd_outbox SET last_seq = (SELECT coalesce(max("+order+"), 0) FROM "+t+") WHERE tbl = "+literal(s.table))
}
