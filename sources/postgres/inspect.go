package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/connectd/connectd/core/layout"
)

// oldest is the lowest version of PostgreSQL that has all we use: snapshots with 64-bit transaction numbers came last.
const oldest = 13

// schemaVersion is the version of the schema that this program's init makes: see package layout.
const schemaVersion = 1

// schema is what the database says of an outbox table: as it is, and how its columns are used.
type schema struct {
	table  tableName
	exists bool
	cols   layout.Columns
	extra  []layout.HeaderColumn
	// bySequence: the order column is one that init added, filled by a sequence of ours.
	bySequence bool
	// fillCreated: the table has no time of insertion, and init adds one.
	fillCreated bool
	// byColumn: the partition is a generated column; else it is an expression, which the index holds.
	byColumn   bool
	partitions int
	trigger    bool // new rows are announced by a trigger
	keep       bool // published rows stay

	found       map[string]column
	unique      map[string]bool   // columns with a unique constraint of their own
	objects     map[string]bool   // our tables, indexes, sequences, triggers and constraints; false: an index that is not valid
	elsewhere   map[string]string // indexes of other tables that have a name of ours, and the table's
	registered  bool              // connectd_outbox and connectd_lease know the table
	version     int               // 0: not registered
	partitionBy string            // as registered
	notes       bool              // connectd_outbox has a column for the name of the id column
	idColumn    string            // as registered; "" when it is not
}

type column struct {
	name      string
	kind      string // type without its modifier; of a domain, the one it is made of
	byDefault string // expression, "" without one
	notNull   bool
	identity  bool
	generated bool
	sequence  string // that belongs to it
}

// inspect reads the schema and settles which column is what. It changes nothing.
func inspect(ctx context.Context, q querier, cfg Config) (*schema, error) {
	table, cols, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	s := &schema{
		table: table, cols: cols, extra: slices.Clone(cfg.HeaderColumns), trigger: cfg.Notify == NotifyTrigger, keep: !cfg.DeletePublished,
		found: map[string]column{}, unique: map[string]bool{}, objects: map[string]bool{}, elsewhere: map[string]string{},
	}
	for _, read := range []func(context.Context, querier) error{s.readTable, s.readColumns, s.readUnique, s.readObjects, s.readRegistration} {
		if err := read(ctx, q); err != nil {
			return nil, fmt.Errorf("read the schema of table %s: %w", cfg.Table, err)
		}
	}
	if !s.exists {
		s.byColumn = true
		return s, nil
	}
	if err := s.settleColumns(cfg); err != nil {
		return nil, fmt.Errorf("table %s: %w", s.table, err)
	}
	return s, nil
}

// readTable finds the table, and the schema it is or would be in.
func (s *schema) readTable(ctx context.Context, q querier) error {
	var version int
	var part, parent bool
	var schemaName, name, kind, persistence, current *string
	err := q.QueryRow(ctx, `SELECT current_setting('server_version_num')::int / 10000, n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text,
			coalesce(c.relispartition, false), EXISTS (SELECT 1 FROM pg_inherits WHERE inhparent = c.oid), coalesce(nullif($2::text, ''), current_schema()::text)
		FROM (SELECT to_regclass($1::text) AS oid) t LEFT JOIN pg_class c ON c.oid = t.oid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace`,
		s.table.quoted(), s.table.schema).Scan(&version, &schemaName, &name, &kind, &persistence, &part, &parent, &current)
	switch {
	case err != nil:
		return err
	case version < oldest:
		return fmt.Errorf("the server is PostgreSQL %d, and %d is the oldest that will do", version, oldest)
	case name != nil && *kind != "r":
		return fmt.Errorf("it is no ordinary table (pg_class.relkind is %q)", *kind)
	case part:
		return errors.New("it is no ordinary table but a partition of another")
	case parent:
		return errors.New("it is no ordinary table: others inherit from it, and no index of its own has their rows")
	case name != nil && *persistence != "p":
		return errors.New("it is a temporary or an unlogged table, whose rows do not outlive a crash")
	case name != nil:
		s.exists, s.table = true, tableName{*schemaName, *name}
		return nil
	case current == nil:
		return layout.Unfit(layout.Mismapped, "the search_path names no schema that is there: say schema.table")
	}
	s.table.schema = *current
	// Somebody who wrote CREATE TABLE Outbox has a table outbox.
	var other string
	err = q.QueryRow(ctx, `SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND lower(c.relname) = lower($2) AND c.relkind IN ('r', 'p', 'v', 'm', 'f') LIMIT 1`, s.table.schema, s.table.name).Scan(&other)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("there is no such table, but there is %s: names are taken as they are written", tableName{s.table.schema, other})
}

func (s *schema) readColumns(ctx context.Context, q querier) error {
	rows, err := q.Query(ctx, `SELECT a.attname::text, format_type(CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END, NULL),
			coalesce(pg_get_expr(d.adbin, d.adrelid), ''), a.attnotnull, a.attidentity <> '', a.attgenerated <> '',
			coalesce((SELECT relname::text FROM pg_class WHERE oid = pg_get_serial_sequence($1::text, a.attname)::regclass), '')
		FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		WHERE a.attrelid = to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, s.table.quoted())
	if err != nil {
		return err
	}
	var c column
	_, err = pgx.ForEachRow(rows, []any{&c.name, &c.kind, &c.byDefault, &c.notNull, &c.identity, &c.generated, &c.sequence}, func() error {
		s.found[c.name] = c
		return nil
	})
	return err
}

func (s *schema) readUnique(ctx context.Context, q querier) error {
	rows, err := q.Query(ctx, `SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
		WHERE i.indrelid = to_regclass($1::text) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indnkeyatts = 1`, s.table.quoted())
	if err != nil {
		return err
	}
	var name string
	_, err = pgx.ForEachRow(rows, []any{&name}, func() error {
		s.unique[name] = true
		return nil
	})
	return err
}

func (s *schema) readObjects(ctx context.Context, q querier) error {
	rows, err := q.Query(ctx, `SELECT c.relname::text, coalesce(i.indisvalid, true), CASE WHEN i.indrelid IS DISTINCT FROM to_regclass($2::text) THEN i.indrelid::regclass::text END
			FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
			WHERE c.relnamespace = to_regnamespace($1::text) AND c.relname LIKE 'connectd\_%'
		UNION ALL SELECT tgname::text, true, NULL FROM pg_trigger WHERE tgrelid = to_regclass($2::text) AND NOT tgisinternal
		UNION ALL SELECT conname::text, true, NULL FROM pg_constraint WHERE conrelid = to_regclass($2::text) AND contype = 'c'
		UNION ALL SELECT proname::text, true, NULL FROM pg_proc WHERE pronamespace = to_regnamespace($1::text) AND proname LIKE 'connectd\_%'`,
		quote(s.table.schema), s.table.quoted())
	if err != nil {
		return err
	}
	var name string
	var valid bool
	var other *string
	_, err = pgx.ForEachRow(rows, []any{&name, &valid, &other}, func() error {
		if other != nil {
			s.elsewhere[name] = *other
		} else {
			s.objects[name] = valid
		}
		return nil
	})
	return err
}

func (s *schema) readRegistration(ctx context.Context, q querier) error {
	if _, there := s.objects["connectd_outbox"]; !there {
		return nil
	}
	if _, there := s.objects["connectd_lease"]; !there {
		return nil
	}
	var leases int
	// The column id_column may not be there yet, nor the table's line.
	err := q.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass($1::text) AND attname = 'id_column' AND NOT attisdropped)`, s.beside("outbox")).Scan(&s.notes)
	if err != nil {
		return err
	}
	err = q.QueryRow(ctx, `SELECT version, partitions, partition_by, coalesce(to_jsonb(o) ->> 'id_column', ''), (SELECT count(*) FROM `+s.beside("lease")+` l WHERE l.tbl = o.tbl)
		FROM `+s.beside("outbox")+` o WHERE tbl = $1`, s.table.name).Scan(&s.version, &s.partitions, &s.partitionBy, &s.idColumn, &leases)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := layout.CheckVersion(s.version, schemaVersion); err != nil {
		return err
	}
	s.registered = leases == s.partitions
	return nil
}
