package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// DefaultPartitions is how many partitions a table gets unless it is told otherwise: as many workers can share it.
const DefaultPartitions = 16

// MaxPartitions bounds them. Each has its lease, and each is asked for rows.
const MaxPartitions = 1024

// InitOptions is what only a person can answer.
type InitOptions struct {
	// Existing says what the rows are that an adopted table already has: "pending" or "published". It may be empty
	// when there are none, or when the table has a column published that is true, or 1, in those that have been sent and
	// false, 0 or NULL in the others.
	Existing string
	// Partitions is the number of partitions of a table that has none yet; 0 is DefaultPartitions. It stays for good.
	Partitions int
	// Tell is told by Apply what it waits for or is at, once that takes longer than two seconds. It may be called on
	// several goroutines, and not after Apply has returned. Nil: nobody is told.
	Tell func(text string)
}

// Plan says what has to be done so that Open works: nothing, when it does already. It changes nothing.
func Plan(ctx context.Context, cfg Config, opt InitOptions) (core.Plan, error) {
	srv, conn, err := reach(ctx, cfg)
	if err != nil {
		return core.Plan{}, fmt.Errorf("postgres: plan: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := srv.takeTime(ctx, conn); err != nil {
		return core.Plan{}, fmt.Errorf("postgres: plan: %w", err)
	}
	steps, err := planOn(ctx, conn, cfg, opt)
	if err != nil {
		return core.Plan{}, fmt.Errorf("postgres: plan: %w", err)
	}
	return core.Plan{Steps: steps}, nil
}

func planOn(ctx context.Context, q querier, cfg Config, opt InitOptions) ([]core.PlanStep, error) {
	s, err := inspect(ctx, q, cfg)
	if err != nil {
		return nil, err
	}
	old, err := s.readOldRows(ctx, q)
	if err != nil {
		return nil, err
	}
	return s.plan(old, opt)
}

// oldRows is what has to be known of the rows of a table that is adopted.
type oldRows struct {
	count int64
	// unsent is a condition that is true for the rows that a column published calls unsent; "" when there is no such
	// column, or when it has other values.
	unsent string
}

func (s *schema) readOldRows(ctx context.Context, q querier) (oldRows, error) {
	var old oldRows
	if !s.exists || s.registered {
		return old, nil
	}
	lowest := "1"
	if _, numbered := s.found[s.cols.Order]; numbered {
		lowest = "coalesce(min(" + quote(s.cols.Order) + "), 1)"
	}
	var first int64
	if err := q.QueryRow(ctx, "SELECT count(*), "+lowest+" FROM "+s.table.quoted()).Scan(&old.count, &first); err != nil {
		return old, fmt.Errorf("count the rows of table %s: %w", s.table, err)
	}
	if err := layout.CheckNumbers(s.table.String(), s.cols.Order, first); err != nil {
		return old, err
	}
	switch flag := s.found["published"]; flag.kind {
	case "boolean":
		old.unsent = "published IS NOT TRUE"
	case "smallint", "integer", "bigint":
		var odd bool
		if err := q.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM "+s.table.quoted()+" WHERE published NOT IN (0, 1))").Scan(&odd); err != nil {
			return old, fmt.Errorf("read the column published of table %s: %w", s.table, err)
		}
		if !odd {
			old.unsent = "published IS DISTINCT FROM 1"
		}
	}
	return old, nil
}

func (s *schema) plan(old oldRows, opt InitOptions) ([]core.PlanStep, error) {
	if err := s.choosePartitions(opt); err != nil {
		return nil, err
	}
	var steps []core.PlanStep
	add := func(why, sql string) { steps = append(steps, core.PlanStep{Why: why, SQL: sql}) }
	objects := s.relayObjects()
	tables := len(s.relayTables())
	for _, o := range objects[:tables] {
		if _, there := s.objects[o.name]; !there {
			add(o.why, o.sql)
		}
	}
	if _, there := s.objects["connectd_outbox"]; there && !s.notes {
		add("where the ids of each table are, so that a receipt of none is found", briefly("ALTER TABLE "+s.beside("outbox")+" ADD COLUMN IF NOT EXISTS id_column text"))
	}
	if !s.exists {
		s.forget(add)
		add("the outbox table", s.createTable())
	} else if err := s.adopt(old, opt, add); err != nil {
		return nil, err
	}
	for _, o := range objects[tables:] {
		valid, there := s.objects[o.name]
		if other, taken := s.elsewhere[o.name]; taken {
			// As when a table was renamed, and a new one is to have its name.
			return nil, fmt.Errorf("index %s belongs to another table, %s: rename the index, then init again", o.name, other)
		}
		switch {
		case there && !valid:
			add("the index is there, but making it did not end well", "REINDEX INDEX CONCURRENTLY "+quote(s.table.schema)+"."+quote(o.name))
		case there:
		case !s.exists:
			add(o.why, strings.NewReplacer(" CONCURRENTLY", "", " NOT VALID", "").Replace(o.sql)) // nobody is there to be kept waiting
		case o.kind == "index":
			add(o.why, o.sql)
		default:
			add(o.why, briefly(o.sql))
		}
	}
	if !s.registered {
		s.register(add)
	}
	if s.version > 0 && s.idColumn != s.cols.ID {
		add("column "+s.cols.ID+" has the ids of table "+s.table.name, fmt.Sprintf("UPDATE %s SET id_column = %s WHERE tbl = %s", s.beside("outbox"), literal(s.cols.ID), literal(s.table.name)))
	}
	if s.version > 0 && s.version < schemaVersion {
		add(fmt.Sprintf("the schema of table %s has version %d from now on", s.table.name, schemaVersion),
			fmt.Sprintf("UPDATE %s SET version = %d WHERE tbl = %s AND version < %[2]d", s.beside("outbox"), schemaVersion, literal(s.table.name)))
	}
	return steps, nil
}

func (s *schema) choosePartitions(opt InitOptions) error {
	switch {
	case opt.Partitions < 0 || opt.Partitions > MaxPartitions:
		return fmt.Errorf("%d partitions: must be 1 to %d", opt.Partitions, MaxPartitions)
	case s.version > 0 && opt.Partitions > 0 && opt.Partitions != s.partitions:
		return fmt.Errorf("table %s has %d partitions: the number is chosen once", s.table, s.partitions)
	case s.version > 0:
		return s.samePartitions()
	default:
		s.partitions = DefaultPartitions
		if opt.Partitions > 0 {
			s.partitions = opt.Partitions
		}
		return nil
	}
}

// samePartitions refuses a mapping under which rows of a key would be in other partitions than init put them.
func (s *schema) samePartitions() error {
	if s.partitionBy != s.partitionExpr() {
		return fmt.Errorf("table %s was initialised with its rows in partitions by %s, the columns mapped now would give %s: map columns.id and columns.key as they were",
			s.table, s.partitionBy, s.partitionExpr())
	}
	return nil
}

// forget removes what is left of a table of that name that was dropped. The numbers of its rows come again: a row that
// has never been sent would be taken for one that was announced.
func (s *schema) forget(add func(why, sql string)) {
	if s.version == 0 {
		return
	}
	for _, name := range []string{"inflight", "attempt"} {
		if _, there := s.objects["connectd_"+name]; there {
			add("what is left of an earlier table of that name, whose numbers come again", "DELETE FROM "+s.beside(name)+" WHERE tbl = "+literal(s.table.name))
		}
	}
}

// register comes last: no daemon works on the table before.
func (s *schema) register(add func(why, sql string)) {
	tbl := literal(s.table.name)
	add("registers table "+s.table.name, fmt.Sprintf("INSERT INTO %s (tbl, version, partitions, partition_by, id_column) VALUES (%s, %d, %d, %s, %s) ON CONFLICT DO NOTHING",
		s.beside("outbox"), tbl, schemaVersion, s.partitions, literal(s.partitionExpr()), literal(s.cols.ID)))
	add(fmt.Sprintf("the table has %d partitions, free at first", s.partitions), fmt.Sprintf("INSERT INTO %s (tbl, part) SELECT %s, generate_series(0, %d) ON CONFLICT DO NOTHING",
		s.beside("lease"), tbl, s.partitions-1))
}

// briefly runs statements that need the table for themselves in one transaction. It does not wait long for its lock,
// since whoever comes after it waits as well; it is tried again.
func briefly(statements ...string) string {
	return "BEGIN; SET LOCAL lock_timeout = '2s';\n" + strings.Join(statements, ";\n") + ";\nCOMMIT"
}
