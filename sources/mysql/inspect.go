package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/connectd/connectd/core/layout"
)

// schemaVersion is the version of the schema that this program's init makes: see package layout.
const schemaVersion = 1

// schema is what the database says of an outbox table: as it is, and how its columns are used.
type schema struct {
	table  tableName
	exists bool
	rows   bool // there are rows
	cols   layout.Columns
	extra  []layout.HeaderColumn
	// addOrder: the table has no column that numbers its rows, and init adds one.
	addOrder bool
	// fillCreated: the table has no time of insertion, and init adds one.
	fillCreated bool
	partitions  int

	found       map[string]column // by lower-case name
	unique      map[string]string // column with a unique constraint of its own, lower case → the index
	indexes     map[string]bool
	beside      map[string]bool // the relay's own tables that are there
	version     int             // 0: not registered
	ready       bool            // init has ended
	partitionBy string          // as registered
	notes       bool            // connectd_outbox has a column for the name of the id column
	idColumn    string          // as registered; "" when it is not
}

// column is a column of the outbox table.
type column struct {
	name      string
	kind      string // type without length: varchar, bigint
	full      string // type as declared: bigint unsigned
	charset   string // "" for bytes, numbers and times
	byDefault string
	null      bool // may be NULL
	auto      bool // AUTO_INCREMENT
	generated bool
	touched   bool // set to the present whenever the row is changed, unless the statement sets it
	ours      bool // a time of insertion that init added
}

// inspect reads the schema and settles which column is what. It changes nothing.
func inspect(ctx context.Context, q querier, cfg Config) (*schema, error) {
	table, cols, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	s := &schema{
		table: table, cols: cols, extra: slices.Clone(cfg.HeaderColumns),
		found: map[string]column{}, unique: map[string]string{}, indexes: map[string]bool{}, beside: map[string]bool{},
	}
	for _, read := range []func(context.Context, querier) error{s.readTable, s.readColumns, s.readIndexes, s.readRegistration} {
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
	return s, nil
}

func (s *schema) readTable(ctx context.Context, q querier) error {
	if s.table.database == "" {
		if err := q.QueryRowContext(ctx, `SELECT database()`).Scan(&s.table.database); err != nil {
			return err
		}
	}
	// Names are compared as the server compares them: by letter case or not.
	same := s.table.name
	return collect(ctx, q, func(rows *sql.Rows) error {
		var name, kind string
		var engine sql.NullString
		if err := rows.Scan(&name, &kind, &engine); err != nil {
			return err
		}
		if slices.Contains(layout.RelayTables(), name) {
			s.beside[name] = true
			return nil
		}
		if kind != "BASE TABLE" {
			return fmt.Errorf("it is a %s, not an ordinary table", strings.ToLower(kind))
		}
		if !strings.EqualFold(engine.String, "InnoDB") {
			return fmt.Errorf("its engine is %s, which has no transactions: only InnoDB has what is needed", engine.String)
		}
		s.exists, s.table.name = true, name
		return nil
	}, `SELECT table_name, table_type, engine FROM information_schema.tables WHERE table_schema = ?
		AND (table_name IN ('`+strings.Join(layout.RelayTables(), "', '")+`') OR IF(@@lower_case_table_names = 0, CAST(table_name AS BINARY) = CAST(? AS BINARY), lower(table_name) = lower(?)))`, s.table.database, same, same)
}

func (s *schema) readColumns(ctx context.Context, q querier) error {
	if !s.exists {
		return nil
	}
	err := collect(ctx, q, func(rows *sql.Rows) error {
		var c column
		var charset, byDefault sql.NullString
		var extra, comment string
		if err := rows.Scan(&c.name, &c.kind, &c.full, &charset, &byDefault, &extra, &comment, &c.null); err != nil {
			return err
		}
		extra = strings.ToLower(extra)
		c.kind, c.full, c.charset = strings.ToLower(c.kind), strings.ToLower(c.full), charset.String
		c.byDefault = strings.Trim(byDefault.String, "'")
		if !byDefault.Valid || c.byDefault == "NULL" { // MariaDB writes it
			c.byDefault = ""
		}
		c.ours = comment == createdComment
		c.touched = strings.Contains(extra, "on update")
		c.auto = strings.Contains(extra, "auto_increment")
		c.generated = strings.Contains(extra, "virtual") || strings.Contains(extra, "stored generated") || strings.Contains(extra, "persistent")
		s.found[strings.ToLower(c.name)] = c
		return nil
	}, `SELECT column_name, data_type, column_type, character_set_name, column_default, extra, column_comment, is_nullable = 'YES' FROM information_schema.columns
		WHERE table_schema = ? AND table_name = ?`, s.table.database, s.table.name)
	if err != nil {
		return err
	}
	return q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM `+s.table.quoted()+`)`).Scan(&s.rows)
}

func (s *schema) readIndexes(ctx context.Context, q querier) error {
	if !s.exists {
		return nil
	}
	parts := map[string][]string{}
	whole := map[string]bool{}
	err := collect(ctx, q, func(rows *sql.Rows) error {
		var index string
		var column sql.NullString // NULL: an expression
		var repeats, prefix bool
		if err := rows.Scan(&index, &column, &repeats, &prefix); err != nil {
			return err
		}
		s.indexes[index] = true
		parts[index] = append(parts[index], strings.ToLower(column.String))
		whole[index] = !repeats && !prefix && column.Valid
		return nil
	}, `SELECT index_name, column_name, non_unique, sub_part IS NOT NULL FROM information_schema.statistics
		WHERE table_schema = ? AND table_name = ? ORDER BY index_name, seq_in_index`, s.table.database, s.table.name)
	for index, columns := range parts {
		if whole[index] && len(columns) == 1 {
			s.unique[columns[0]] = index
		}
	}
	return err
}

func (s *schema) readRegistration(ctx context.Context, q querier) error {
	if !s.beside["connectd_outbox"] {
		return nil
	}
	err := q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = ? AND table_name = 'connectd_outbox' AND column_name = 'id_column')`, s.table.database).
		Scan(&s.notes)
	if err != nil {
		return err
	}
	idColumn := `''`
	if s.notes {
		idColumn = `COALESCE(id_column, '')`
	}
	err = q.QueryRowContext(ctx, `SELECT version, partitions, partition_by, ready, `+idColumn+` FROM `+s.own("outbox")+` WHERE tbl = ?`, s.table.name).
		Scan(&s.version, &s.partitions, &s.partitionBy, &s.ready, &s.idColumn)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return layout.CheckVersion(s.version, schemaVersion)
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
	if s.cols.Created == "" && created != "" {
		s.cols.Created, s.fillCreated = created, true
	}
	if s.unique[strings.ToLower(s.cols.ID)] == "" && !cfg.ToAudit {
		return layout.Misfit("id", s.cols.ID, layout.NotUnique, "has no unique constraint of its own")
	}
	for _, name := range []string{s.cols.ID, s.cols.Key} {
		if c := s.found[strings.ToLower(name)]; name != "" && !c.canIdentify() {
			return fmt.Errorf("column %s is %s, which cannot be an id or a key: char, varchar, text, binary(16), varbinary, uuid and integers can", name, c.full)
		}
	}
	return s.settleOrder(cfg)
}

// settleOrder finds the column that gives the rows' order. Only AUTO_INCREMENT gives no value twice, as long as the table
// is not truncated.
func (s *schema) settleOrder(cfg Config) error {
	c, found := s.found[strings.ToLower(s.cols.Order)]
	var auto column
	for _, each := range s.found {
		if each.auto {
			auto = each
		}
	}
	switch {
	case found && !c.auto:
		return layout.Misfit("order", c.name, layout.Mismapped, "is not AUTO_INCREMENT, so its values could come twice (map columns.order to a name the table has not, and init adds such a column)")
	case !found && auto.name != "" && cfg.Columns.Has("order"):
		return layout.Unfit(layout.Mismapped, "it has no column %s, and can get none since a table has only one AUTO_INCREMENT column: map columns.order to %s", s.cols.Order, auto.name)
	case !found && auto.name == "":
		s.addOrder = true
		return nil
	}
	if s.unique[strings.ToLower(auto.name)] == "" {
		return layout.Misfit("order", auto.name, layout.NotUnique, "has no unique constraint of its own")
	}
	s.cols.Order = auto.name
	return nil
}

// missing lists what init would still have to make.
func (s *schema) missing() []string {
	var lost []string
	for _, t := range s.relayTables() {
		if !s.beside[t.name] {
			lost = append(lost, "table "+t.name)
		}
	}
	if !s.exists {
		return append(lost, "table "+s.table.String())
	}
	for _, c := range s.relayColumns() {
		if _, found := s.found[strings.ToLower(c.name)]; !found {
			lost = append(lost, "column "+c.name)
		}
	}
	if s.addOrder {
		lost = append(lost, "column "+s.cols.Order)
	}
	if s.fillCreated {
		lost = append(lost, "column "+s.cols.Created)
	}
	if !s.indexes[pendingIndex] {
		lost = append(lost, "index "+pendingIndex)
	}
	switch {
	case lost != nil:
	case !s.ready:
		lost = []string{"the table's row in connectd_outbox"}
	case s.idColumn != s.cols.ID:
		lost = []string{"name of the id column in connectd_outbox"}
	case s.version < schemaVersion:
		lost = []string{fmt.Sprintf("schema of version %d", schemaVersion)}
	}
	return lost
}

// samePartitions refuses a mapping under which rows of a key would be in other partitions than init put them.
func (s *schema) samePartitions() error {
	if s.partitionBy != s.partitionExpr() {
		return fmt.Errorf("table %s was initialised with its rows in partitions by %s, the columns mapped now would give %s: map columns.id and columns.key as they were",
			s.table, s.partitionBy, s.partitionExpr())
	}
	return nil
}

// textKinds are types whose values are text or bytes; the server converts text to the connection's character set.
var textKinds = []string{"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "json",
	"varbinary", "tinyblob", "blob", "mediumblob", "longblob"}

// isUUID says that the column holds a uuid's 16 bytes.
func (c column) isUUID() bool { return c.full == "binary(16)" }

func (c column) canIdentify() bool {
	return c.isUUID() || slices.Contains(textKinds, c.kind) && c.kind != "json" ||
		slices.Contains([]string{"uuid", "tinyint", "smallint", "mediumint", "int", "bigint"}, c.kind)
}

// uuidText is a uuid's bytes as text, in the order in which they are stored, as BIN_TO_UUID(x) does it.
func uuidText(bytes string) string {
	return "LOWER(INSERT(INSERT(INSERT(INSERT(HEX(" + bytes + "), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-'))"
}

// like is an expression of another table as the column's text is, where both hold a uuid's bytes.
func (c column) like(expression string) string {
	if !c.isUUID() {
		return expression
	}
	return fmt.Sprintf("IF(CHARSET(%[1]s) = 'binary' AND LENGTH(%[1]s) = 16, %[2]s, %[1]s)", expression, uuidText(expression))
}

// text is the column as text.
func (c column) text() string {
	name := quote(c.name)
	switch {
	case c.isUUID():
		return uuidText(name)
	case slices.Contains(textKinds, c.kind) || c.kind == "binary":
		return name
	default:
		return "CAST(" + name + " AS CHAR)"
	}
}

// bytes is the column as the bytes of its text, so that collations have no say in what is equal.
func (c column) bytes() string {
	if c.charset == "" && !c.isUUID() && slices.Contains(textKinds, c.kind) {
		return quote(c.name)
	}
	return "CAST(CONVERT(" + c.text() + " USING utf8mb4) AS BINARY)"
}
