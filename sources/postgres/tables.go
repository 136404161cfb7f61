package postgres

import (
	"fmt"
	"hash/fnv"
	"strings"
	"unicode/utf8"
)

// object is an index, a trigger, a constraint or a table of ours, with the statement that makes it.
type object struct{ kind, name, sql, why string }

// relayColumn is a column that init adds to a table that is there.
type relayColumn struct{ name, kind, byDefault string }

func (s *schema) relayColumns() []relayColumn {
	c := &s.cols
	list := []relayColumn{
		{c.State, "text", "'pending'"},
		{c.AvailableAt, "timestamp with time zone", ""},
		{c.Attempts, "integer", "0"},
		{c.Deliveries, "integer", "0"},
		{c.Crashes, "integer", "0"},
		{c.LastError, "text", ""},
		{c.FailingSince, "timestamp with time zone", ""},
		{c.PublishedAt, "timestamp with time zone", ""},
	}
	if s.bySequence {
		list = append(list, relayColumn{c.Order, "bigint", ""})
	}
	if s.fillCreated {
		list = append(list, relayColumn{c.Created, "timestamp with time zone", ""})
	}
	return list
}

func (c relayColumn) definition() string {
	if c.byDefault == "" {
		return quote(c.name) + " " + c.kind
	}
	return quote(c.name) + " " + c.kind + " NOT NULL DEFAULT " + c.byDefault
}

// objectName names something of ours that belongs to the table. It stays below the server's bound for names.
func (s *schema) objectName(suffix string) string {
	name := "connectd_" + s.table.name + "_" + suffix
	if len(name) <= maxName {
		return name
	}
	h := fnv.New32a()
	h.Write([]byte(s.table.name))
	cut := s.table.name[:maxName-len("connectd___")-8-len(suffix)]
	for !utf8.ValidString(cut) {
		cut = cut[:len(cut)-1]
	}
	return fmt.Sprintf("connectd_%s_%08x_%s", cut, h.Sum32(), suffix)
}

func (s *schema) sequenceName() string { return s.objectName("seq") }

// beside is one of the tables that stand beside the outbox tables of a schema.
func (s *schema) beside(name string) string {
	return quote(s.table.schema) + "." + quote("connectd_"+name)
}

// channel is the channel on which rows of the table are announced.
func (s *schema) channel() string {
	name := "connectd." + s.table.schema + "." + s.table.name
	if len(name) <= maxName {
		return name
	}
	return s.objectName("rows")
}

// partitionExpr computes a row's partition. Rows of one key are in one partition, and rows without a key are spread by
// their id. The collation makes the hash one of bytes. A row that has neither must still be found, to be buried.
func (s *schema) partitionExpr() string {
	var of []string
	for _, name := range []string{s.cols.Key, s.cols.ID} {
		if name != "" {
			of = append(of, quote(name)+"::text")
		}
	}
	return fmt.Sprintf(`(hashtext(coalesce(%s, '') COLLATE "C") & 2147483647) %% %d`, strings.Join(of, ", "), s.partitions)
}

// partition is how statements say a row's partition. In an adopted table it is an expression, since adding a generated
// column would rewrite the table under a lock that keeps everybody out.
func (s *schema) partition() string {
	if s.byColumn {
		return quote(s.cols.Partition)
	}
	return "(" + s.partitionExpr() + ")"
}

// position is a row's place in its partition. It is the order column, said so that no index but our own has it: to a
// server that takes the table for empty, walking through the rows of all partitions by their numbers would look as
// cheap.
func (s *schema) position() string { return "(" + quote(s.cols.Order) + " + 0)" }

// relayObjects are the table's indexes, constraints and triggers, in the order in which they are made.
func (s *schema) relayObjects() []object {
	t, order, state := s.table.quoted(), quote(s.cols.Order), quote(s.cols.State)
	pending, stopped, unique := s.objectName("pending"), s.objectName("stopped"), s.objectName("order")
	list := append(s.relayTables(), object{"constraint", s.objectName("state"),
		"ALTER TABLE " + t + " ADD CONSTRAINT " + quote(s.objectName("state")) + " CHECK (" + state + " IN ('pending', 'published', 'dead', 'held', 'skipped')) NOT VALID",
		"a row in any other state would never be sent, and nobody would see it waiting"})
	if s.bySequence {
		list = append(list,
			object{"constraint", s.objectName("numbered"),
				"ALTER TABLE " + t + " ADD CONSTRAINT " + quote(s.objectName("numbered")) + " CHECK (" + state + " <> 'pending' OR coalesce(" + order + ", 0) > 0) NOT VALID",
				"a pending row without a number above 0 would never be sent"},
			object{"index", unique, "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS " + quote(unique) + " ON " + t + " (" + order + ")",
				"a row is settled by its " + s.cols.Order})
	}
	list = append(list,
		object{"index", pending, "CREATE INDEX CONCURRENTLY IF NOT EXISTS " + quote(pending) + " ON " + t +
			" (" + s.partition() + ", " + s.position() + ") WHERE " + state + " = 'pending'",
			"what a fetch reads: a partition's pending rows in order, however many others are kept"},
		object{"index", stopped, "CREATE INDEX CONCURRENTLY IF NOT EXISTS " + quote(stopped) + " ON " + t +
			" (" + s.partition() + ", " + state + ", " + s.position() + ") WHERE " + state + " IN ('dead', 'held')",
			"dead and held rows, for people and for the keys they hold back"})
	if !s.trigger {
		return list
	}
	f := quote(s.table.schema) + "." + quote(s.objectName("notify"))
	return append(list,
		object{"function", s.objectName("notify"), "CREATE OR REPLACE FUNCTION " + f + "() RETURNS trigger LANGUAGE plpgsql AS $connectd$\n" +
			"BEGIN PERFORM pg_notify(" + literal(s.channel()) + ", ''); RETURN NULL; END $connectd$", "wakes the relay"},
		object{"trigger", s.objectName("inserted"), "CREATE TRIGGER " + quote(s.objectName("inserted")) + " AFTER INSERT ON " + t +
			" FOR EACH STATEMENT EXECUTE FUNCTION " + f + "()",
			"once for each statement; commits that notify wait for each other"})
}

// relayTables stand beside the outbox tables of a schema, one set for all. What is written often and stays small is
// vacuumed early. Inflight rows are looked up by the whole key, whose end only rises, so dead ones are not met;
// connectd_ledger gets lines and no updates, which would wait for each other.
func (s *schema) relayTables() []object {
	const eager = "autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500"
	list := []object{
		{"table", "connectd_outbox", "tbl text PRIMARY KEY, version integer NOT NULL, partitions integer NOT NULL, partition_by text NOT NULL, changes bigint NOT NULL DEFAULT 0, id_column text)",
			"the outbox tables of this schema; changes counts operators' changes, id_column has the ids that the receipts of all are told apart by"},
		{"table", "connectd_lease", "tbl text NOT NULL, part integer NOT NULL, owner text, epoch bigint NOT NULL DEFAULT 0, lease_until timestamp with time zone NOT NULL DEFAULT 'epoch', PRIMARY KEY (tbl, part)) WITH (fillfactor = 20, " + eager + ")",
			"who may work on a partition, and until when"},
		{"table", "connectd_worker", "tbl text NOT NULL, owner text NOT NULL, heartbeat timestamp with time zone NOT NULL, info bytea, PRIMARY KEY (tbl, owner)) WITH (fillfactor = 50, " + eager + ")",
			"which daemons live"},
		{"table", "connectd_inflight", "tbl text NOT NULL, part integer NOT NULL, epoch bigint NOT NULL, batch bigint NOT NULL, seqs bigint[] NOT NULL, sent_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (tbl, part, epoch, batch)) WITH (" + eager + ")",
			"the rows that may have been sent and are not settled"},
		{"table", "connectd_attempt", "tbl text NOT NULL, seq bigint NOT NULL, n bigint GENERATED ALWAYS AS IDENTITY, at timestamp with time zone NOT NULL, deliveries integer NOT NULL, code text NOT NULL, message text NOT NULL, by text NOT NULL, duration_us bigint NOT NULL, PRIMARY KEY (tbl, seq, n))",
			"the history of failed attempts and of operators' changes"},
		{"table", "connectd_revision", "tbl text NOT NULL, seq bigint NOT NULL, n integer NOT NULL, at timestamp with time zone NOT NULL, by text NOT NULL, why text NOT NULL, payload bytea, headers text, PRIMARY KEY (tbl, seq, n))",
			"what rows were before people edited them"},
		{"table", "connectd_receipt", "command_id text NOT NULL, consumer text NOT NULL DEFAULT '', status text NOT NULL DEFAULT 'done', result_ref text, at timestamp with time zone NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (command_id, consumer), CONSTRAINT \"a receipt is done, failed or started\" CHECK (status IN ('done', 'failed', 'started')))",
			"consumers' proofs that a command was completed"},
		{"table", "connectd_cleaned", "tbl text NOT NULL, command_id text NOT NULL, at timestamp with time zone NOT NULL, PRIMARY KEY (tbl, command_id))",
			"the ids of cleaned rows that have a receipt, as long as they have one"},
		{"table", "connectd_ledger", "tbl text NOT NULL, day date NOT NULL, state text NOT NULL, n bigint GENERATED BY DEFAULT AS IDENTITY, count bigint NOT NULL, PRIMARY KEY (tbl, day, state, n))",
			"how many rows were cleaned, for the audit; n 0 is the sum, the others are not yet added to it"},
	}
	for i := range list {
		list[i].sql = "CREATE TABLE IF NOT EXISTS " + quote(s.table.schema) + "." + list[i].name + " (" + list[i].sql
	}
	return list
}

// positive refuses a row that would never be read: fetches begin above 0.
func (s *schema) positive() string { return " CHECK (" + quote(s.cols.Order) + " > 0)" }

// createTable makes a new table. Where published rows stay, each page keeps room for the new version of some: that
// saves a third of the log that publishing writes, and no space in the end.
func (s *schema) createTable() string {
	c := &s.cols
	var defs []string
	if c.Order == c.ID {
		defs = append(defs, quote(c.ID)+" bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"+s.positive())
	} else {
		defs = append(defs, quote(c.Order)+" bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"+s.positive(), quote(c.ID)+" text NOT NULL UNIQUE")
	}
	for _, def := range []struct{ name, kind string }{
		{c.Route, "text"}, {c.Key, "text"}, {c.Type, "text"}, {c.Payload, "bytea"}, {c.Headers, "jsonb"},
		{c.Created, "timestamp with time zone NOT NULL DEFAULT clock_timestamp()"},
	} {
		if def.name != "" {
			defs = append(defs, quote(def.name)+" "+def.kind)
		}
	}
	for _, name := range c.HeaderOnly(s.extra, dialect()) {
		defs = append(defs, quote(name)+" text")
	}
	defs = append(defs, quote(c.Partition)+" integer GENERATED ALWAYS AS ("+s.partitionExpr()+") STORED")
	for _, r := range s.relayColumns() {
		defs = append(defs, r.definition())
	}
	options := ""
	if s.keep {
		options = " WITH (fillfactor = 85)"
	}
	return "CREATE TABLE " + s.table.quoted() + " (\n  " + strings.Join(defs, ",\n  ") + "\n)" + options
}
