package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/connectd/connectd/core/layout"
)

// queryer is a connection or a transaction.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// schema is what the file says of an outbox table: as it is, and how its columns are used.
type schema struct {
	table  string // as the file spells it, or as configured while it does not exist
	exists bool
	rows   bool  // there are rows
	lowest int64 // the lowest number of a row, 1 when no row has a number
	// oddFlags: there are rows whose column published is neither 0 nor 1 nor NULL.
	oddFlags bool
	cols     layout.Columns
	extra    []layout.HeaderColumn
	// byTrigger: the order column is filled by our trigger, not by AUTOINCREMENT.
	byTrigger bool
	// fillCreated: the table has no time of insertion, and init adds one since there is a trigger to fill it.
	fillCreated bool

	found        map[string]column // by lower-case name
	objects      map[string]bool   // tables, indexes and triggers, by lower-case name
	unique       map[string]bool   // columns with a unique constraint of their own, lower case
	rowidName    string            // the INTEGER PRIMARY KEY column
	autoRowid    bool              // it is AUTOINCREMENT
	withoutRowid bool
	registered   bool   // connectd_outbox and connectd_lease know the table
	notes        bool   // connectd_outbox has a column for the name of the id column
	idColumn     string // as registered; "" when it is not
	wal          bool
}

type column struct {
	name      string
	byDefault sql.NullString
}

// inspect reads the schema and settles which column is what. It changes nothing.
func inspect(ctx context.Context, q queryer, cfg Config) (*schema, error) {
	cols, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	s := &schema{table: cfg.Table, cols: cols, extra: slices.Clone(cfg.HeaderColumns), found: map[string]column{}, objects: map[string]bool{}, unique: map[string]bool{}}
	for _, read := range []func(context.Context, queryer) error{s.readObjects, s.readColumns, s.readUnique, s.readFile} {
		if err := read(ctx, q); err != nil {
			return nil, fmt.Errorf("read the schema of table %s: %w", cfg.Table, err)
		}
	}
	if !s.exists {
		return s, nil
	}
	if err := s.settleColumns(cfg); err != nil {
		return nil, fmt.Errorf("table %s: %w", s.table, err)
	}
	if err := s.readLowest(ctx, q); err != nil {
		return nil, fmt.Errorf("read the schema of table %s: %w", cfg.Table, err)
	}
	return s, nil
}

func (s *schema) readLowest(ctx context.Context, q queryer) error {
	s.lowest = 1
	if _, numbered := s.found[strings.ToLower(s.cols.Order)]; !numbered || s.registered {
		return nil
	}
	order := quote(s.cols.Order)
	return q.QueryRowContext(ctx, "SELECT coalesce(min("+order+"), 1) FROM "+quote(s.table)).Scan(&s.lowest)
}

func (s *schema) readObjects(ctx context.Context, q queryer) error {
	rows, err := q.QueryContext(ctx, "SELECT type, name, coalesce(sql, '') FROM sqlite_master")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var kind, name, text string
		if err := rows.Scan(&kind, &name, &text); err != nil {
			return err
		}
		s.objects[strings.ToLower(name)] = true
		if !strings.EqualFold(name, s.table) {
			continue
		}
		if kind != "table" || strings.HasPrefix(strings.ToUpper(text), "CREATE VIRTUAL") {
			return fmt.Errorf("it is a %s, not an ordinary table", kind)
		}
		s.exists, s.table, s.autoRowid = true, name, hasWord(text, "AUTOINCREMENT")
	}
	return rows.Err()
}

func (s *schema) readColumns(ctx context.Context, q queryer) error {
	rows, err := q.QueryContext(ctx, "SELECT name, upper(type), dflt_value, pk FROM pragma_table_xinfo(?) WHERE hidden <> 1", s.table)
	if err != nil {
		return err
	}
	defer rows.Close()
	keys := 0
	for rows.Next() {
		var c column
		var kind string
		var pk int
		if err := rows.Scan(&c.name, &kind, &c.byDefault, &pk); err != nil {
			return err
		}
		s.found[strings.ToLower(c.name)] = c
		if pk > 0 {
			keys++
		}
		if pk == 1 && kind == "INTEGER" {
			s.rowidName = c.name
		}
	}
	if keys != 1 {
		s.rowidName = "" // a key of several columns is no rowid
	}
	return rows.Err()
}

func (s *schema) readUnique(ctx context.Context, q queryer) error {
	rows, err := q.QueryContext(ctx, `SELECT max(lower(c.name)) FROM pragma_index_list(?) i, pragma_index_info(i.name) c
		WHERE i."unique" AND NOT i.partial GROUP BY i.name HAVING count(*) = 1 AND count(c.name) = 1`, s.table)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		s.unique[name] = true
	}
	return rows.Err()
}

func (s *schema) readFile(ctx context.Context, q queryer) error {
	var mode, encoding string
	if err := q.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return err
	}
	if err := q.QueryRowContext(ctx, "PRAGMA encoding").Scan(&encoding); err != nil {
		return err
	}
	if encoding != "UTF-8" {
		return fmt.Errorf("the file's text encoding is %s, only UTF-8 can be read byte for byte", encoding)
	}
	s.wal = mode == "wal"
	if s.objects["connectd_outbox"] && s.objects["connectd_lease"] {
		err := q.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM connectd_outbox o JOIN connectd_lease l USING (tbl) WHERE tbl = ?)", s.table).Scan(&s.registered)
		if err != nil {
			return err
		}
	}
	if err := q.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM pragma_table_info('connectd_outbox') WHERE name = 'id_column')").Scan(&s.notes); err != nil {
		return err
	}
	if s.notes {
		err := q.QueryRowContext(ctx, "SELECT coalesce(max(id_column), '') FROM connectd_outbox WHERE tbl = ?", s.table).Scan(&s.idColumn)
		if err != nil {
			return err
		}
	}
	if !s.exists {
		return nil
	}
	err := q.QueryRowContext(ctx, "SELECT wr FROM pragma_table_list(?) WHERE schema = 'main'", s.table).Scan(&s.withoutRowid)
	if err != nil {
		return err
	}
	if s.withoutRowid {
		s.rowidName = ""
	}
	if err := q.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM "+quote(s.table)+")").Scan(&s.rows); err != nil {
		return err
	}
	flag, flagged := s.found["published"]
	if _, ours := s.found[strings.ToLower(s.cols.State)]; !flagged || ours {
		return nil
	}
	return q.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM "+quote(s.table)+" WHERE "+quote(flag.name)+" NOT IN (0, 1))").Scan(&s.oddFlags)
}

// settleColumns finds the application's columns in an existing table. The relay's own may still be missing.
func (s *schema) settleColumns(cfg Config) error {
	created := s.cols.Created
	err := s.cols.Settle(cfg.Columns, s.extra, func(name string) (string, bool) {
		c, found := s.found[strings.ToLower(name)]
		return c.name, found
	})
	if err != nil {
		return err
	}
	s.fillCreated = s.cols.Created == "" && created != "" && !s.objects[strings.ToLower(s.triggerName())]
	if err := s.checkID(cfg); err != nil {
		return err
	}
	if err := s.settleOrder(cfg); err != nil {
		return err
	}
	if s.fillCreated = s.fillCreated && s.byTrigger; s.fillCreated {
		s.cols.Created = created
	}
	return nil
}

// checkID refuses an id that could be there twice, now or later.
func (s *schema) checkID(cfg Config) error {
	isRowid := strings.EqualFold(s.cols.ID, s.rowidName)
	switch {
	case isRowid && !s.autoRowid:
		return layout.Misfit("id", s.cols.ID, layout.GivenAnew, "is INTEGER PRIMARY KEY without AUTOINCREMENT: SQLite would give the id of a deleted row to a new one")
	case !isRowid && !s.unique[strings.ToLower(s.cols.ID)] && !cfg.ToAudit:
		return layout.Misfit("id", s.cols.ID, layout.NotUnique, "has no unique constraint of its own")
	}
	return nil
}

// settleOrder finds the column that gives the rows' order. Its values must never come twice, not even after a row is
// deleted, and must survive VACUUM: only an AUTOINCREMENT key does, or a column of ours that a trigger fills.
func (s *schema) settleOrder(cfg Config) error {
	c, found := s.found[strings.ToLower(s.cols.Order)]
	isRowid := found && strings.EqualFold(c.name, s.rowidName)
	switch {
	case isRowid && s.autoRowid:
		s.cols.Order = c.name
	case found && s.objects[strings.ToLower(s.triggerName())]:
		s.cols.Order, s.byTrigger = c.name, true
	case found:
		return layout.Misfit("order", c.name, layout.Mismapped, "is no INTEGER PRIMARY KEY AUTOINCREMENT, so its values could come twice (map columns.order to a name the table has not, and init adds such a column)")
	case s.rowidName != "" && s.autoRowid && !cfg.Columns.Has("order"):
		s.cols.Order = s.rowidName
	default:
		s.byTrigger = true
	}
	return nil
}

// missing lists what init would still have to make.
func (s *schema) missing() []string {
	if !s.exists {
		return []string{"table " + s.table}
	}
	var lost []string
	for _, c := range s.relayColumns() {
		if _, found := s.found[strings.ToLower(c.name)]; !found {
			lost = append(lost, "column "+c.name)
		}
	}
	for _, o := range s.relayObjects() {
		if !s.objects[strings.ToLower(o.name)] {
			lost = append(lost, o.kind+" "+o.name)
		}
	}
	switch {
	case lost != nil:
	case !s.registered:
		lost = []string{"the table's row in connectd_outbox"}
	case s.idColumn != s.cols.ID:
		lost = []string{"name of the id column in connectd_outbox"}
	}
	return lost
}

// hasWord finds a keyword in a CREATE TABLE text, outside of names, strings and comments.
func hasWord(text, word string) bool {
	ends := map[byte]string{'\'': "'", '"': `"`, '`': "`", '[': "]"}
	for text != "" {
		skip := 1
		switch end, quoted := ends[text[0]]; {
		case quoted:
			skip = 1 + past(text[1:], end)
		case strings.HasPrefix(text, "--"):
			skip = past(text, "\n")
		case strings.HasPrefix(text, "/*"):
			skip = past(text, "*/")
		case isWordByte(text[0]):
			for skip < len(text) && isWordByte(text[skip]) {
				skip++
			}
			if strings.EqualFold(text[:skip], word) {
				return true
			}
		}
		text = text[skip:]
	}
	return false
}

// past is the index behind the first end in text, or the text's length.
func past(text, end string) int {
	if i := strings.Index(text, end); i >= 0 {
		return i + len(end)
	}
	return len(text)
}

func isWordByte(b byte) bool {
	return b == '_' || b == '$' || b >= 0x80 || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}
