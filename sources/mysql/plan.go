package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
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
	// when there are none, or when the table has a column published, which is 1 in those that have been sent and 0 or
	// NULL in the others.
	Existing string
	// Partitions is the number of partitions of a table that has none yet; 0 is DefaultPartitions. It stays for good.
	Partitions int
	// Tell is told by Apply what it waits for or is at, once that takes longer than two seconds. It may be called on
	// several goroutines, and not after Apply has returned. Nil: nobody is told.
	Tell func(text string)
}

// Plan says what has to be done so that Open works: nothing, when it does already. It changes nothing.
func Plan(ctx context.Context, cfg Config, opt InitOptions) (core.Plan, error) {
	var steps []core.PlanStep
	err := atLeisure(ctx, cfg, func(conn *sql.Conn) error {
		var err error
		steps, err = planOn(ctx, conn, cfg, opt)
		return err
	})
	if err != nil {
		return core.Plan{}, fmt.Errorf("mysql: plan: %w", discreet(err))
	}
	return core.Plan{Steps: steps}, nil
}

// withConn runs f on a connection of its own to a server that can be used.
func withConn(ctx context.Context, cfg Config, f func(conn *sql.Conn) error) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	from, err := newConnector(cfg)
	if err != nil {
		return err
	}
	db := from.pool(1)
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := checkServer(ctx, conn); err != nil {
		return err
	}
	return f(conn)
}

func planOn(ctx context.Context, q querier, cfg Config, opt InitOptions) ([]core.PlanStep, error) {
	s, err := inspect(ctx, q, cfg)
	if err != nil {
		return nil, err
	}
	if err := s.choosePartitions(opt); err != nil {
		return nil, err
	}
	if err := s.checkNumbers(ctx, q); err != nil {
		return nil, err
	}
	unsent, err := s.readFlag(ctx, q)
	if err != nil {
		return nil, err
	}
	return s.plan(opt, unsent)
}

func (s *schema) choosePartitions(opt InitOptions) error {
	switch {
	case opt.Partitions < 0 || opt.Partitions > MaxPartitions:
		return fmt.Errorf("%d partitions: must be 1 to %d", opt.Partitions, MaxPartitions)
	case s.version > 0 && opt.Partitions > 0 && opt.Partitions != s.partitions:
		return fmt.Errorf("table %s has %d partitions: the number is chosen once", s.table, s.partitions)
	case s.version > 0:
		return s.samePartitions()
	}
	if _, partitioned := s.found[strings.ToLower(s.cols.Partition)]; partitioned {
		return fmt.Errorf("table %s has a column %s with a meaning of its own: map columns.partition to another name", s.table, s.cols.Partition)
	}
	s.partitions = DefaultPartitions
	if opt.Partitions > 0 {
		s.partitions = opt.Partitions
	}
	return nil
}

// checkNumbers refuses rows that would never be read. No CHECK keeps them out later: no server lets one refer to an
// AUTO_INCREMENT column.
func (s *schema) checkNumbers(ctx context.Context, q querier) error {
	if !s.exists || s.ready || s.addOrder {
		return nil
	}
	var lowest int64
	if err := q.QueryRowContext(ctx, "SELECT COALESCE(MIN("+quote(s.cols.Order)+"), 1) FROM "+s.table.quoted()).Scan(&lowest); err != nil {
		return fmt.Errorf("read the lowest %s: %w", s.cols.Order, err)
	}
	return layout.CheckNumbers(s.table.String(), s.cols.Order, lowest)
}

// readFlag gives a condition that is true for the rows that a column published calls unsent; "" when there is no such
// column, or when it has other values.
func (s *schema) readFlag(ctx context.Context, q querier) (string, error) {
	flag, found := s.found["published"]
	if !found || s.ready || !slices.Contains([]string{"tinyint", "smallint", "mediumint", "int", "bigint", "bit"}, flag.kind) {
		return "", nil
	}
	var odd bool
	name := quote(flag.name) + " + 0"
	if err := q.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM "+s.table.quoted()+" WHERE "+name+" NOT IN (0, 1))").Scan(&odd); err != nil {
		return "", fmt.Errorf("read the column %s: %w", flag.name, err)
	}
	if odd {
		return "", nil
	}
	return "NOT (" + name + " <=> 1)", nil
}

// planner collects steps.
type planner struct {
	s     *schema
	steps []core.PlanStep
}

func (p *planner) add(why, sql string) {
	p.steps = append(p.steps, core.PlanStep{Why: why, SQL: sql})
}

// plan lists what is to be done. A failure half-way leaves some steps done; the table is not ready before the last, and
// each step is such that the next plan has what is left.
func (s *schema) plan(opt InitOptions, unsent string) ([]core.PlanStep, error) {
	p := &planner{s: s}
	for _, t := range s.relayTables() {
		if !s.beside[t.name] {
			p.add(t.why, t.sql)
		}
	}
	tbl := literal(s.table.name)
	if s.beside["connectd_outbox"] && !s.notes {
		p.add("where the ids of each table are, so that a receipt of none is found", "ALTER TABLE "+s.own("outbox")+" ADD COLUMN id_column varchar(64) NULL")
	}
	if s.version == 0 {
		p.add(fmt.Sprintf("table %s has %d partitions, for good", s.table.name, s.partitions), fmt.Sprintf(
			"INSERT INTO %s (tbl, version, partitions, partition_by, id_column) VALUES (%s, %d, %d, %s, %s)",
			s.own("outbox"), tbl, schemaVersion, s.partitions, literal(s.partitionExpr()), literal(s.cols.ID)))
	} else if s.idColumn != s.cols.ID {
		p.add("column "+s.cols.ID+" has the ids of table "+s.table.name, "UPDATE "+s.own("outbox")+" SET id_column = "+literal(s.cols.ID)+" WHERE tbl = "+tbl)
	}
	if !s.exists {
		for _, name := range []string{"inflight", "attempt"} {
			if s.version > 0 && s.beside["connectd_"+name] {
				p.add("what is left of an earlier table of that name, whose numbers come again", "DELETE FROM "+s.own(name)+" WHERE tbl = "+tbl)
			}
		}
		p.add("the outbox table", s.createTable())
	} else if err := p.adopt(opt, unsent); err != nil {
		return nil, err
	}
	if !s.ready {
		rows := make([]string, s.partitions)
		for part := range rows {
			rows[part] = fmt.Sprintf("(%s, %d)", tbl, part)
		}
		p.add("each partition has a lease, free at first", "INSERT INTO "+s.own("lease")+" (tbl, part) VALUES "+strings.Join(rows, ", ")+" ON DUPLICATE KEY UPDATE tbl = tbl")
		p.add("from now on daemons work on it", "UPDATE "+s.own("outbox")+" SET ready = TRUE WHERE tbl = "+tbl)
	}
	if s.version > 0 && s.version < schemaVersion {
		p.add(fmt.Sprintf("the schema of table %s has version %d from now on", s.table.name, schemaVersion),
			fmt.Sprintf("UPDATE %s SET version = %d WHERE tbl = %s AND version < %[2]d", s.own("outbox"), schemaVersion, tbl))
	}
	return p.steps, nil
}
