package mysql

import (
	"fmt"
	"strings"
)

// relayTable is a table that stands beside the outbox tables of a database.
type relayTable struct{ name, sql, why string }

// relayColumn is a column that init adds to a table that is there.
type relayColumn struct{ name, kind, byDefault string }

const stateKind = "enum('pending','published','dead','held','skipped')"

// epoch stands for no time. Columns that change when a row is sent have a fixed width and are never NULL, so that the row
// is changed where it lies: one that grows makes InnoDB split its page, which costs ten times the log.
const epoch = "1970-01-01 00:00:00"

func (s *schema) relayColumns() []relayColumn {
	c := &s.cols
	return []relayColumn{
		{c.State, stateKind, "pending"},
		{c.AvailableAt, "datetime(6)", epoch},
		{c.Attempts, "int", "0"},
		{c.Deliveries, "int", "0"},
		{c.Crashes, "smallint", "0"},
		{c.LastError, "varchar(1024)", ""},
		{c.FailingSince, "datetime(6)", epoch},
		{c.PublishedAt, "datetime(6)", epoch},
		{c.Partition, "smallint", ""},
	}
}

func (s *schema) definition(c relayColumn, byDefault string) string {
	switch {
	case c.name == s.cols.Partition:
		return quote(c.name) + " " + c.kind + " GENERATED ALWAYS AS (" + s.partitionExpr() + ")"
	case c.name == s.cols.LastError:
		return quote(c.name) + " " + c.kind + " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL"
	default:
		return quote(c.name) + " " + c.kind + " NOT NULL DEFAULT '" + byDefault + "'"
	}
}

// partitionExpr computes a row's partition from the bytes of its key. Rows without a key are spread by their id, but for one
// that is AUTO_INCREMENT, which the servers let no generated column refer to: such rows are all in the first partition.
// So is a row that has neither, which must still be found, to be buried.
func (s *schema) partitionExpr() string {
	hash := "0"
	if id := s.found[strings.ToLower(s.cols.ID)]; !id.auto && !strings.EqualFold(s.cols.ID, s.cols.Order) {
		hash = s.hash(s.cols.ID)
	}
	if s.cols.Key != "" {
		hash = "IF(" + quote(s.cols.Key) + " IS NULL, " + hash + ", " + s.hash(s.cols.Key) + ")"
	}
	return fmt.Sprintf("COALESCE(%s, 0) MOD %d", hash, s.partitions)
}

// hash is a column's. The SQL mode may add spaces to a char, which MariaDB does not let an index depend on.
func (s *schema) hash(name string) string {
	if s.found[strings.ToLower(name)].kind == "char" {
		return "CRC32(RTRIM(" + quote(name) + "))"
	}
	return "CRC32(" + quote(name) + ")"
}

// pendingIndex is what a fetch reads, and everything that looks for rows by state. The due time at its end counts due rows
// without reading them. orderIndex is there where init added the order column.
const (
	pendingIndex = "connectd_pending"
	orderIndex   = "connectd_order"
)

func (s *schema) pendingKey() string {
	c := &s.cols
	return fmt.Sprintf("KEY %s (%s, %s, %s, %s)", pendingIndex, quote(c.State), quote(c.Partition), quote(c.Order), quote(c.AvailableAt))
}

// own is one of the relay's own tables.
func (s *schema) own(name string) string {
	return quote(s.table.database) + "." + quote("connectd_"+name)
}

// relayTables stand beside the outbox tables of a database, one set for all. Inflight rows are looked up by the whole key,
// whose end only rises. The ledger is by partition, so that workers do not wait for each other's line.
func (s *schema) relayTables() []relayTable {
	list := []relayTable{
		{"connectd_outbox", "tbl varchar(64) NOT NULL PRIMARY KEY, version int NOT NULL, partitions int NOT NULL, partition_by varchar(1024) NOT NULL, ready boolean NOT NULL DEFAULT FALSE, adopted bigint NOT NULL DEFAULT 0, changes bigint NOT NULL DEFAULT 0, id_column varchar(64) NULL",
			"the outbox tables of this database; changes counts operators' changes, adopted is the last row that was there before init, id_column has the ids that the receipts of all are told apart by"},
		{"connectd_lease", "tbl varchar(64) NOT NULL, part smallint NOT NULL, owner varchar(255) NULL, epoch bigint NOT NULL DEFAULT 0, lease_until datetime(6) NOT NULL DEFAULT '" + epoch + "', PRIMARY KEY (tbl, part)",
			"who may work on a partition, and until when"},
		{"connectd_worker", "tbl varchar(64) NOT NULL, owner varchar(255) NOT NULL, heartbeat datetime(6) NOT NULL, info mediumblob NULL, PRIMARY KEY (tbl, owner)",
			"which daemons live"},
		{"connectd_inflight", "tbl varchar(64) NOT NULL, part smallint NOT NULL, epoch bigint NOT NULL, batch bigint NOT NULL, seqs longtext CHARACTER SET ascii NOT NULL, sent_at datetime(6) NOT NULL, PRIMARY KEY (tbl, part, epoch, batch)",
			"the rows that may have been sent and are not settled; seqs is a JSON array"},
		{"connectd_attempt", "tbl varchar(64) NOT NULL, seq bigint NOT NULL, n bigint NOT NULL AUTO_INCREMENT, at datetime(6) NOT NULL, deliveries int NOT NULL, code varchar(1024) NOT NULL, message varchar(1024) NOT NULL, `by` varchar(1024) NOT NULL, duration_us bigint NOT NULL, PRIMARY KEY (tbl, seq, n), KEY (n)",
			"the history of failed attempts and of operators' changes"},
		{"connectd_revision", "tbl varchar(64) NOT NULL, seq bigint NOT NULL, n int NOT NULL, at datetime(6) NOT NULL, `by` varchar(1024) NOT NULL, why varchar(1024) NOT NULL, payload longblob NULL, headers longtext NULL, PRIMARY KEY (tbl, seq, n)",
			"what rows were before people edited them"},
		{"connectd_receipt", "command_id varchar(255) NOT NULL, consumer varchar(255) NOT NULL DEFAULT '', status varchar(64) NOT NULL DEFAULT 'done', result_ref varchar(1024) NULL, at datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)), PRIMARY KEY (command_id, consumer), " + receiptChecks,
			"consumers' proofs that a command was completed"},
		{"connectd_cleaned", "tbl varchar(64) NOT NULL, command_id varchar(255) NOT NULL, at datetime(6) NOT NULL, PRIMARY KEY (tbl, command_id)",
			"the ids of cleaned rows that have a receipt, as long as they have one"},
		{"connectd_ledger", "tbl varchar(64) NOT NULL, day date NOT NULL, state varchar(16) NOT NULL, part smallint NOT NULL, count bigint NOT NULL, PRIMARY KEY (tbl, day, state, part)",
			"how many rows were cleaned, for the audit"},
	}
	for i, t := range list {
		list[i].sql = "CREATE TABLE IF NOT EXISTS " + quote(s.table.database) + "." + t.name + " (" + t.sql + ")" + tableOptions
	}
	return list
}

// receiptChecks refuse receipts that would count for nothing. The server takes text for equal that differs in blanks at its
// end, but for LIKE, and consumers and the relay do not. MySQL before 8.0.16 does not check.
const receiptChecks = "CONSTRAINT `a receipt is done, failed or started` CHECK (status LIKE 'done' OR status LIKE 'failed' OR status LIKE 'started'), " +
	"CONSTRAINT `command_id and consumer do not end with a blank` CHECK (command_id NOT LIKE '% ' AND consumer NOT LIKE '% ')"

// tableOptions: names and ids differ when their bytes do.
const tableOptions = " ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

// createTable makes a new table. Rows lie in the order in which they are read and settled.
func (s *schema) createTable() string {
	c := &s.cols
	defs := []string{quote(c.Order) + " bigint NOT NULL AUTO_INCREMENT PRIMARY KEY"}
	if !strings.EqualFold(c.Order, c.ID) {
		defs = append(defs, quote(c.ID)+" varchar(255) NOT NULL UNIQUE")
	}
	for _, def := range []struct{ name, kind string }{
		{c.Route, "varchar(255) NULL"}, {c.Key, "varchar(255) NULL"}, {c.Type, "varchar(255) NULL"}, {c.Payload, "longblob NULL"}, {c.Headers, "longtext NULL"},
		{c.Created, "datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))"},
	} {
		if def.name != "" {
			defs = append(defs, quote(def.name)+" "+def.kind)
		}
	}
	for _, name := range c.HeaderOnly(s.extra, dialect()) {
		defs = append(defs, quote(name)+" varchar(1024) NULL")
	}
	for _, r := range s.relayColumns() {
		def := s.definition(r, r.byDefault)
		if r.name == c.Partition {
			def += " STORED"
		}
		defs = append(defs, def)
	}
	defs = append(defs, s.pendingKey())
	return "CREATE TABLE " + s.table.quoted() + " (\n  " + strings.Join(defs, ",\n  ") + "\n)" + tableOptions
}
