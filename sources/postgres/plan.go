package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/connectd/connectd/core"
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
}

// ExistingRowsError says that the table has rows of which nothing tells whether they have been sent.
type ExistingRowsError struct{ Table string }

func (e *ExistingRowsError) Error() string {
	return fmt.Sprintf("table %s has rows already: say what they are with --existing pending (send them) or --existing published (they have been sent)", e.Table)
}

// Plan says what has to be done so that Open works: nothing, when it does already. It changes nothing.
func Plan(ctx context.Context, cfg Config, opt InitOptions) (core.Plan, error) {
	_, conn, err := reach(ctx, cfg)
	if err != nil {
		return core.Plan{}, fmt.Errorf("postgres: plan: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
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
	if err := q.QueryRow(ctx, "SELECT count(*) FROM "+s.table.quoted()).Scan(&old.count); err != nil {
		return old, fmt.Errorf("count the rows of table %s: %w", s.table, err)
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
	if !s.exists {
		add("the outbox table", s.createTable())
	} else if err := s.adopt(old, opt, add); err != nil {
		return nil, err
	}
	for _, o := range objects[tables:] {
		valid, there := s.objects[o.name]
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

// register comes last: no daemon works on the table before.
func (s *schema) register(add func(why, sql string)) {
	tbl := literal(s.table.name)
	add("registers table "+s.table.name, fmt.Sprintf("INSERT INTO %s (tbl, version, partitions, partition_by) VALUES (%s, %d, %d, %s) ON CONFLICT DO NOTHING",
		s.beside("outbox"), tbl, schemaVersion, s.partitions, literal(s.partitionExpr())))
	add(fmt.Sprintf("the table has %d partitions, free at first", s.partitions), fmt.Sprintf("INSERT INTO %s (tbl, part) SELECT %s, generate_series(0, %d) ON CONFLICT DO NOTHING",
		s.beside("lease"), tbl, s.partitions-1))
}

// briefly runs statements that need the table for themselves in one transaction. It does not wait long for its lock, since
// whoever comes after it waits as well; it is tried again.
func briefly(statements ...string) string {
	return "BEGIN; SET LOCAL lock_timeout = '2s';\n" + strings.Join(statements, ";\n") + ";\nCOMMIT"
}

// adopt adds the relay's columns to a table that is there.
func (s *schema) adopt(old oldRows, opt InitOptions, add func(why, sql string)) error {
	var added []relayColumn
	for _, c := range s.relayColumns() {
		is, found := s.found[c.name]
		switch {
		case !found:
			added = append(added, c)
		case is.kind != c.kind || c.byDefault != "" && strings.TrimSuffix(is.byDefault, "::text") != c.byDefault:
			return fmt.Errorf("table %s has a column %s with a meaning of its own: map columns.%s to another name", s.table, c.name, s.ruleName(c.name))
		}
	}
	stateless := slices.ContainsFunc(added, func(c relayColumn) bool { return c.name == s.cols.state })
	answer, err := s.answer(old, opt, stateless)
	if err != nil {
		return err
	}
	if len(added) > 0 {
		why := "the relay's own columns; no row is rewritten. Rows inserted from now on are pending"
		if stateless && old.count > 0 {
			why += map[bool]string{true: ", those that are there are taken as sent", false: ", those that are there as well"}[answer != core.Pending]
		}
		add(why, briefly(s.addColumns(added, old, stateless && answer != core.Pending)...))
	}
	if !s.registered {
		s.settleOldRows(old, answer, add) // also when there seem to be none: applications may be at work
	}
	return nil
}

// answer says what the rows that are there are: pending, published, or "" for what their column published says.
func (s *schema) answer(old oldRows, opt InitOptions, stateless bool) (core.State, error) {
	switch {
	case opt.Existing != "" && opt.Existing != string(core.Pending) && opt.Existing != string(core.Published):
		return "", fmt.Errorf("--existing is %q, must be pending or published", opt.Existing)
	case opt.Existing != "":
		return core.State(opt.Existing), nil
	case old.unsent != "":
		return "", nil
	case stateless && old.count > 0:
		return "", &ExistingRowsError{Table: s.table.String()}
	default:
		return core.Pending, nil
	}
}

// addColumns adds columns without rewriting the table: a default that is a constant is noted once for all rows that are
// there, and what new rows get is set afterwards. All of it happens at one moment.
func (s *schema) addColumns(added []relayColumn, old oldRows, sent bool) []string {
	t := s.table.quoted()
	var columns, after []string
	for _, c := range added {
		def := c.definition()
		switch name := quote(c.name); c.name {
		case s.cols.state:
			if sent {
				def = strings.Replace(def, "'pending'", "'published'", 1)
				after = append(after, "ALTER COLUMN "+name+" SET DEFAULT 'pending'")
			}
		case s.cols.publishedAt:
			if sent {
				def += " DEFAULT now()"
				after = append(after, "ALTER COLUMN "+name+" DROP DEFAULT")
			}
		case s.cols.order:
			after = append(after, "ALTER COLUMN "+name+" SET DEFAULT nextval("+literal(s.sequence())+")")
		case s.cols.created:
			after = append(after, "ALTER COLUMN "+name+" SET DEFAULT clock_timestamp()")
		}
		columns = append(columns, "ADD COLUMN "+def)
	}
	statements := []string{"ALTER TABLE " + t + " " + strings.Join(columns, ", ")}
	if s.bySequence && strings.Contains(strings.Join(after, ""), "nextval") {
		statements = append(statements, fmt.Sprintf("CREATE SEQUENCE IF NOT EXISTS %s START WITH %d OWNED BY %s.%s",
			s.sequence(), firstNew(old.count), t, quote(s.cols.order)))
	}
	if after != nil {
		statements = append(statements, "ALTER TABLE "+t+" "+strings.Join(after, ", "))
	}
	return statements
}

func (s *schema) sequence() string { return quote(s.table.schema) + "." + quote(s.sequenceName()) }

// firstNew is the number of the first new row, above those that the old rows get: they are numbered when it is known which
// they are, and there may be some more by then.
func firstNew(count int64) int64 {
	n := int64(1000)
	for n <= 10*count {
		n *= 10
	}
	return n + 1
}

// settleOldRows makes pending, and numbers, the rows that are to be sent. It goes on where it was interrupted.
func (s *schema) settleOldRows(old oldRows, answer core.State, add func(why, sql string)) {
	t, order, state := s.table.quoted(), quote(s.cols.order), quote(s.cols.state)
	set, which, why := "", "", "the rows that are there"
	switch answer {
	case core.Published:
		return
	case "":
		set = state + " = 'pending', " + quote(s.cols.publishedAt) + " = NULL"
		which = state + " = 'published' AND " + old.unsent
		why = "the rows whose column published says that they have not been sent"
	case core.Pending:
		which = state + " = 'pending'"
	}
	if !s.bySequence {
		if set != "" {
			add(why+" are pending", "UPDATE "+t+" SET "+set+" WHERE "+which)
		}
		return
	}
	by, how := "ctid", "as they lie in the table, which is the order of insertion unless rows were updated or deleted"
	if c := s.cols.created; c != "" && !s.fillCreated {
		by, how = quote(c)+", ctid", "by "+c
	} else if numbered(s.found[s.cols.id]) {
		by, how = quote(s.cols.id), "by "+s.cols.id
	}
	if set != "" {
		set = ", " + set
	}
	add(why+" get their "+s.cols.order+" below those of new rows, "+how+"; a thousand rows a transaction", fmt.Sprintf(numberRows,
		order, t, order, literal(s.table.schema), literal(s.sequenceName()), t, order, which, by, t, order, set, order, which))
}

// numberRows: order, table, order, schema, sequence; table, order, which rows, sorted by what; table, order, more to set,
// order, which rows.
const numberRows = `DO $connectd$
DECLARE
  connectd_n bigint;
  connectd_at tid;
  connectd_again boolean := true;
BEGIN
  SELECT coalesce(max(%s), 0) INTO connectd_n FROM %s WHERE %s < (SELECT start_value FROM pg_sequences WHERE schemaname = %s AND sequencename = %s);
  WHILE connectd_again LOOP
    connectd_again := false;
    FOR connectd_at IN SELECT ctid FROM %s WHERE %s IS NULL AND %s ORDER BY %s LOOP
      UPDATE %s SET %s = connectd_n + 1%s WHERE ctid = connectd_at AND %s IS NULL AND %s;
      IF FOUND THEN connectd_n := connectd_n + 1; ELSE connectd_again := true; END IF;
      IF connectd_n %% 1000 = 0 THEN COMMIT; END IF;
    END LOOP;
    COMMIT;
  END LOOP;
END $connectd$`

// ruleName is what the configuration calls a column of the table.
func (s *schema) ruleName(column string) string {
	for _, r := range s.cols.rules() {
		if *r.to == column {
			return r.name
		}
	}
	return column
}
