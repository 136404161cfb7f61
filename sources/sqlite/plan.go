package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/connectd/connectd/core"
)

// nowMS is the database's clock: milliseconds since 1970 in UTC. It is written so that the producers' SQLite,
// which may be old, understands it as a column's default.
const nowMS = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"

// InitOptions is what only a person can answer.
type InitOptions struct {
	// Existing says what the rows are that an adopted table already has: "pending" or "published".
	Existing string
}

// ExistingRowsError says that the table has rows of which nothing tells whether they have been sent.
type ExistingRowsError struct{ Table string }

func (e *ExistingRowsError) Error() string {
	return fmt.Sprintf("table %s has rows already: say what they are with --existing pending (send them) or --existing published (they have been sent)", e.Table)
}

// object is an index, a trigger or a table of ours.
type object struct{ kind, name, sql, why string }

// relayColumn is a column of the outbox table that only the relay writes.
type relayColumn struct{ name, kind, byDefault string }

func (s *schema) relayColumns() []relayColumn {
	c := &s.cols
	list := []relayColumn{
		{c.state, "TEXT", "'pending'"}, {c.availableAt, "INTEGER", "0"}, {c.attempts, "INTEGER", "0"},
		{c.deliveries, "INTEGER", "0"}, {c.crashes, "INTEGER", "0"}, {c.lastError, "TEXT", ""},
		{c.failingSince, "INTEGER", ""}, {c.publishedAt, "INTEGER", ""},
	}
	if s.byTrigger {
		list = append(list, relayColumn{c.order, "INTEGER", ""})
	}
	return list
}

func (c relayColumn) definition() string {
	if c.byDefault == "" {
		return quote(c.name) + " " + c.kind
	}
	return quote(c.name) + " " + c.kind + " NOT NULL DEFAULT " + c.byDefault
}

func (s *schema) pendingIndex() string { return "connectd_" + s.table + "_pending" }
func (s *schema) stoppedIndex() string { return "connectd_" + s.table + "_stopped" }
func (s *schema) triggerName() string  { return "connectd_" + s.table + "_seq" }

func (s *schema) relayObjects() []object {
	t, order, state := quote(s.table), quote(s.cols.order), quote(s.cols.state)
	list := append(slices.Clone(relayTables),
		object{"index", s.pendingIndex(), "CREATE INDEX IF NOT EXISTS " + quote(s.pendingIndex()) + " ON " + t +
			"(" + order + ", " + quote(s.cols.availableAt) + ") WHERE " + state + " = 'pending'",
			"what a fetch reads: pending rows in order, however many others are kept"},
		object{"index", s.stoppedIndex(), "CREATE INDEX IF NOT EXISTS " + quote(s.stoppedIndex()) + " ON " + t +
			"(" + order + ") WHERE " + state + " = 'dead' OR " + state + " = 'held'",
			"dead and held rows, for people and for the keys they hold back"})
	if !s.byTrigger {
		return list
	}
	this := quote(s.cols.id) + " = NEW." + quote(s.cols.id)
	if !s.withoutRowid {
		this = "rowid = NEW.rowid"
	}
	tbl := literal(s.table)
	return append(list,
		object{"index", s.triggerName() + "_unique", "CREATE UNIQUE INDEX IF NOT EXISTS " + quote(s.triggerName()+"_unique") + " ON " + t +
			"(" + order + ")", "a row is settled by its " + s.cols.order},
		object{"trigger", s.triggerName(), "CREATE TRIGGER IF NOT EXISTS " + quote(s.triggerName()) + " AFTER INSERT ON " + t +
			" WHEN NEW." + order + " IS NULL BEGIN" +
			" UPDATE connectd_outbox SET last_seq = last_seq + 1 WHERE tbl = " + tbl + ";" +
			" UPDATE " + t + " SET " + order + " = (SELECT last_seq FROM connectd_outbox WHERE tbl = " + tbl + ") WHERE " + this + "; END",
			"numbers each new row; the table's rowid will not do, since SQLite gives that of a deleted row again and VACUUM may change it"})
}

// relayTables stand beside the outbox tables, one set a file. Times are milliseconds since 1970, UTC.
var relayTables = []object{
	{"table", "connectd_outbox", `CREATE TABLE IF NOT EXISTS connectd_outbox (tbl TEXT NOT NULL PRIMARY KEY, partitions INTEGER NOT NULL DEFAULT 1, changes INTEGER NOT NULL DEFAULT 0, last_seq INTEGER NOT NULL DEFAULT 0)`,
		"the outbox tables of this file; changes counts operators' changes"},
	{"table", "connectd_lease", `CREATE TABLE IF NOT EXISTS connectd_lease (tbl TEXT NOT NULL, part INTEGER NOT NULL, owner TEXT, epoch INTEGER NOT NULL DEFAULT 0, lease_until INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (tbl, part)) WITHOUT ROWID`,
		"who may work on a table, and until when"},
	{"table", "connectd_worker", `CREATE TABLE IF NOT EXISTS connectd_worker (tbl TEXT NOT NULL, owner TEXT NOT NULL, heartbeat INTEGER NOT NULL, info BLOB, PRIMARY KEY (tbl, owner)) WITHOUT ROWID`,
		"which daemons live"},
	{"table", "connectd_inflight", `CREATE TABLE IF NOT EXISTS connectd_inflight (tbl TEXT NOT NULL, part INTEGER NOT NULL, epoch INTEGER NOT NULL, batch INTEGER NOT NULL, seqs TEXT NOT NULL, sent_at INTEGER NOT NULL, PRIMARY KEY (tbl, part, epoch, batch))`,
		"the rows that may have been sent and are not settled"},
	{"table", "connectd_attempt", `CREATE TABLE IF NOT EXISTS connectd_attempt (tbl TEXT NOT NULL, seq INTEGER NOT NULL, n INTEGER NOT NULL, at INTEGER NOT NULL, deliveries INTEGER NOT NULL, code TEXT NOT NULL, message TEXT NOT NULL, by TEXT NOT NULL, duration_ms INTEGER NOT NULL, PRIMARY KEY (tbl, seq, n)) WITHOUT ROWID`,
		"the history of failed attempts and of operators' changes"},
	{"table", "connectd_receipt", `CREATE TABLE IF NOT EXISTS connectd_receipt (command_id TEXT NOT NULL, consumer TEXT NOT NULL DEFAULT '', status TEXT NOT NULL DEFAULT 'done', result_ref TEXT, at INTEGER NOT NULL DEFAULT (` + nowMS + `), PRIMARY KEY (command_id, consumer)) WITHOUT ROWID`,
		"consumers' proofs that a command was completed"},
	{"table", "connectd_ledger", `CREATE TABLE IF NOT EXISTS connectd_ledger (tbl TEXT NOT NULL, day TEXT NOT NULL, state TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (tbl, day, state)) WITHOUT ROWID`,
		"how many rows were cleaned, for the audit"},
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
		add("readers and the writer do not wait for each other", "PRAGMA journal_mode = WAL")
	}
	// The relay's tables come first: filling the order column of an old table uses one.
	objects := s.relayObjects()
	for _, o := range objects[:len(relayTables)] {
		if !s.objects[o.name] {
			add(o.why, o.sql)
		}
	}
	tbl := literal(s.table)
	if !s.registered {
		add("registers table "+s.table, "INSERT INTO connectd_outbox (tbl) VALUES ("+tbl+") ON CONFLICT DO NOTHING")
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

func (s *schema) createTable() string {
	c := &s.cols
	defs := []string{quote(c.order) + " INTEGER PRIMARY KEY AUTOINCREMENT"}
	if !strings.EqualFold(c.order, c.id) {
		defs = append(defs, quote(c.id)+" TEXT NOT NULL UNIQUE")
	}
	for _, def := range []struct{ name, kind string }{
		{c.route, "TEXT"}, {c.key, "TEXT"}, {c.kind, "TEXT"}, {c.payload, "BLOB"}, {c.headers, "TEXT"},
		{c.created, "INTEGER NOT NULL DEFAULT (" + nowMS + ")"},
	} {
		if def.name != "" {
			defs = append(defs, quote(def.name)+" "+def.kind)
		}
	}
	for _, r := range s.relayColumns() {
		defs = append(defs, r.definition())
	}
	return "CREATE TABLE " + quote(s.table) + " (\n  " + strings.Join(defs, ",\n  ") + "\n)"
}

// adopt adds the relay's columns to a table that is there.
func (s *schema) adopt(opt InitOptions, add func(why, sql string)) error {
	t := quote(s.table)
	var added []relayColumn
	for _, c := range s.relayColumns() {
		old, found := s.found[strings.ToLower(c.name)]
		switch {
		case !found:
			added = append(added, c)
			add("the relay's own column", "ALTER TABLE "+t+" ADD COLUMN "+c.definition())
		case c.byDefault != "" && old.byDefault.String != c.byDefault:
			return fmt.Errorf("table %s has a column %s with a meaning of its own: map columns.%s to another name", s.table, old.name, s.ruleName(c.name))
		}
	}
	if slices.ContainsFunc(added, func(c relayColumn) bool { return c.name == s.cols.state }) && s.rows {
		if err := s.settleOldRows(opt, add); err != nil {
			return err
		}
	}
	if s.byTrigger && slices.ContainsFunc(added, func(c relayColumn) bool { return c.name == s.cols.order }) {
		s.numberOldRows(add)
	}
	return nil
}

// settleOldRows says which rows of an adopted table have been sent.
func (s *schema) settleOldRows(opt InitOptions, add func(why, sql string)) error {
	published, flagged := s.found["published"]
	where := ""
	switch {
	case opt.Existing == "published":
	case flagged && opt.Existing == "":
		where = " WHERE " + quote(published.name) + " = 1"
	case opt.Existing == "pending":
		return nil
	case opt.Existing == "":
		return &ExistingRowsError{Table: s.table}
	default:
		return fmt.Errorf("--existing is %q, must be pending or published", opt.Existing)
	}
	why := "the rows that are there have been sent"
	if where != "" {
		why = "rows with " + published.name + " = 1 have been sent, the others are pending"
	}
	add(why, "UPDATE "+quote(s.table)+" SET "+quote(s.cols.state)+" = 'published', "+quote(s.cols.publishedAt)+" = "+nowMS+where)
	return nil
}

func (s *schema) numberOldRows(add func(why, sql string)) {
	t, order, tbl := quote(s.table), quote(s.cols.order), literal(s.table)
	by, this := "rowid", "rowid = n.i"
	why := "rows that are there are numbered in the order of their rowid, the order of insertion"
	if s.withoutRowid {
		by = quote(s.cols.id)
		this = by + " = n.i"
		why = "rows that are there are numbered in the order of their id: a WITHOUT ROWID table does not know the order of insertion"
		if s.cols.created != "" {
			why = "rows that are there are numbered in the order of " + s.cols.created
		}
	}
	sort := by
	if s.withoutRowid && s.cols.created != "" {
		sort = quote(s.cols.created) + ", " + by
	}
	if s.rows {
		add(why, "UPDATE "+t+" SET "+order+" = n.n FROM (SELECT "+by+" AS i, row_number() OVER (ORDER BY "+sort+") AS n FROM "+t+") n WHERE "+this)
		add("later rows get higher numbers", "UPDATE connectd_outbox SET last_seq = (SELECT coalesce(max("+order+"), 0) FROM "+t+") WHERE tbl = "+tbl)
	}
}

func (s *schema) ruleName(column string) string {
	for _, r := range s.cols.rules() {
		if *r.to == column {
			return r.name
		}
	}
	return column
}

// Apply carries out a plan in one transaction, creating the file if need be. Steps that somebody else has done since
// are left out; when the plan no longer fits the file, nothing is changed.
func Apply(ctx context.Context, cfg Config, plan core.Plan) error {
	if len(plan.Steps) == 0 {
		return nil
	}
	if _, err := cfg.resolve(); err != nil {
		return err
	}
	db := connect(cfg.Path, access{mode: "rwc", busy: cfg.busy()})
	defer db.Close()
	// The journal mode cannot be changed in a transaction, and changing it twice does no harm.
	for _, step := range plan.Steps {
		if strings.HasPrefix(step.SQL, "PRAGMA ") {
			if _, err := db.ExecContext(ctx, step.SQL); err != nil {
				return fmt.Errorf("apply %q: %w", step.SQL, err)
			}
		}
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("apply: lock the file: %w", err)
	}
	defer tx.Rollback()
	if err := applyIn(ctx, tx, cfg, plan); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	return nil
}

func applyIn(ctx context.Context, tx *sql.Tx, cfg Config, plan core.Plan) error {
	s, err := inspect(ctx, tx, cfg)
	if err != nil {
		return err
	}
	// What is to be done now is known but for the answer the plan was made with: it holds for either or for none.
	needed := map[string]bool{}
	fits := false
	planned := map[string]bool{}
	for _, step := range plan.Steps {
		planned[step.SQL] = true
	}
	for _, existing := range []string{"", "pending", "published"} {
		steps, err := s.plan(InitOptions{Existing: existing})
		if err != nil {
			continue
		}
		all := true
		for _, step := range steps {
			needed[step.SQL] = true
			all = all && (planned[step.SQL] || strings.HasPrefix(step.SQL, "PRAGMA "))
		}
		fits = fits || all
	}
	if !fits {
		return fmt.Errorf("table %s has changed since the plan was made: plan again", cfg.Table)
	}
	for _, step := range plan.Steps {
		if !needed[step.SQL] || strings.HasPrefix(step.SQL, "PRAGMA ") {
			continue
		}
		if _, err := tx.ExecContext(ctx, step.SQL); err != nil {
			return fmt.Errorf("apply %q: %w", step.SQL, err)
		}
	}
	return nil
}
