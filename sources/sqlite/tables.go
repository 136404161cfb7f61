package sqlite

import (
	"slices"
	"strings"
)

// nowMS is the database's clock: milliseconds since 1970 in UTC. It is written so that the producers' SQLite,
// which may be old, understands it as a column's default.
const nowMS = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"

// object is an index, a trigger or a table of ours.
type object struct{ kind, name, sql, why string }

// relayColumn is a column of the outbox table that only the relay writes.
type relayColumn struct{ name, kind, byDefault, check string }

func (s *schema) relayColumns() []relayColumn {
	c := &s.cols
	// A row in any other state would never be sent, and nobody would see it waiting.
	states := " CHECK (" + quote(c.State) + " IN ('pending', 'published', 'dead', 'held', 'skipped'))"
	list := []relayColumn{
		{name: c.State, kind: "TEXT", byDefault: "'pending'", check: states},
		{name: c.AvailableAt, kind: "INTEGER", byDefault: "0"},
		{name: c.Attempts, kind: "INTEGER", byDefault: "0"},
		{name: c.Deliveries, kind: "INTEGER", byDefault: "0"},
		{name: c.Crashes, kind: "INTEGER", byDefault: "0"},
		{name: c.LastError, kind: "TEXT"},
		{name: c.FailingSince, kind: "INTEGER"},
		{name: c.PublishedAt, kind: "INTEGER"},
	}
	if s.byTrigger {
		list = append(list, relayColumn{name: c.Order, kind: "INTEGER", check: s.numbered()})
	}
	if s.fillCreated {
		list = append(list, relayColumn{name: c.Created, kind: "INTEGER"})
	}
	return list
}

func (c relayColumn) definition() string {
	if c.byDefault == "" {
		return quote(c.name) + " " + c.kind + c.check
	}
	return quote(c.name) + " " + c.kind + " NOT NULL DEFAULT " + c.byDefault + c.check
}

// positive refuses a row that would never be read: fetches begin above 0.
func (s *schema) positive() string { return " CHECK (" + quote(s.cols.Order) + " > 0)" }

// numbered does so for a column that is not the rowid, which takes values of any type.
func (s *schema) numbered() string {
	order := quote(s.cols.Order)
	return " CHECK (" + order + " IS NULL OR typeof(" + order + ") = 'integer' AND " + order + " > 0)"
}

func (s *schema) pendingIndex() string { return "connectd_" + s.table + "_pending" }
func (s *schema) stoppedIndex() string { return "connectd_" + s.table + "_stopped" }
func (s *schema) heldIndex() string    { return "connectd_" + s.table + "_held" }
func (s *schema) triggerName() string  { return "connectd_" + s.table + "_seq" }

func (s *schema) relayObjects() []object {
	t, order, state := quote(s.table), quote(s.cols.Order), quote(s.cols.State)
	list := append(slices.Clone(relayTables),
		object{"index", s.pendingIndex(), "CREATE INDEX IF NOT EXISTS " + quote(s.pendingIndex()) + " ON " + t +
			"(" + order + ", " + quote(s.cols.AvailableAt) + ") WHERE " + state + " = 'pending'",
			"what a fetch reads: pending rows in order, however many others are kept"},
		object{"index", s.stoppedIndex(), "CREATE INDEX IF NOT EXISTS " + quote(s.stoppedIndex()) + " ON " + t +
			"(" + order + ") WHERE " + state + " = 'dead' OR " + state + " = 'held'",
			"dead and held rows, for people and for the keys they hold back"},
		object{"index", s.heldIndex(), "CREATE INDEX IF NOT EXISTS " + quote(s.heldIndex()) + " ON " + t +
			"(" + order + ") WHERE " + state + " = 'held'",
			"held rows alone, since dead ones may be kept for ever and the keys that held ones hold back are read often"})
	if !s.byTrigger {
		return list
	}
	this := quote(s.cols.ID) + " = NEW." + quote(s.cols.ID)
	if !s.withoutRowid {
		this = "rowid = NEW.rowid"
	}
	tbl, created := literal(s.table), ""
	if s.fillCreated {
		created = ", " + quote(s.cols.Created) + " = " + nowMS
	}
	return append(list,
		object{"index", s.triggerName() + "_unique", "CREATE UNIQUE INDEX IF NOT EXISTS " + quote(s.triggerName()+"_unique") + " ON " + t +
			"(" + order + ")", "a row is settled by its " + s.cols.Order},
		object{"trigger", s.triggerName(), "CREATE TRIGGER IF NOT EXISTS " + quote(s.triggerName()) + " AFTER INSERT ON " + t +
			" WHEN NEW." + order + " IS NULL BEGIN" +
			" UPDATE connectd_outbox SET last_seq = max(last_seq, (SELECT coalesce(max(" + order + "), 0) FROM " + t + ")) + 1 WHERE tbl = " + tbl + ";" +
			" UPDATE " + t + " SET " + order + " = (SELECT last_seq FROM connectd_outbox WHERE tbl = " + tbl + ")" + created + " WHERE " + this + "; END",
			"numbers each new row; the table's rowid will not do, since SQLite gives that of a deleted row again and VACUUM may change it"})
}

// relayTables stand beside the outbox tables, one set a file. Times are milliseconds since 1970, UTC.
var relayTables = []object{
	{"table", "connectd_outbox", `CREATE TABLE IF NOT EXISTS connectd_outbox (tbl TEXT NOT NULL PRIMARY KEY, partitions INTEGER NOT NULL DEFAULT 1, changes INTEGER NOT NULL DEFAULT 0, last_seq INTEGER NOT NULL DEFAULT 0, id_column TEXT)`,
		"the outbox tables of this file; changes counts operators' changes, id_column has the ids that the receipts of all are told apart by"},
	{"table", "connectd_lease", `CREATE TABLE IF NOT EXISTS connectd_lease (tbl TEXT NOT NULL, part INTEGER NOT NULL, owner TEXT, epoch INTEGER NOT NULL DEFAULT 0, lease_until INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (tbl, part)) WITHOUT ROWID`,
		"who may work on a table, and until when"},
	{"table", "connectd_worker", `CREATE TABLE IF NOT EXISTS connectd_worker (tbl TEXT NOT NULL, owner TEXT NOT NULL, heartbeat INTEGER NOT NULL, info BLOB, PRIMARY KEY (tbl, owner)) WITHOUT ROWID`,
		"which daemons live"},
	{"table", "connectd_inflight", `CREATE TABLE IF NOT EXISTS connectd_inflight (tbl TEXT NOT NULL, part INTEGER NOT NULL, epoch INTEGER NOT NULL, batch INTEGER NOT NULL, seqs TEXT NOT NULL, sent_at INTEGER NOT NULL, PRIMARY KEY (tbl, part, epoch, batch))`,
		"the rows that may have been sent and are not settled"},
	{"table", "connectd_attempt", `CREATE TABLE IF NOT EXISTS connectd_attempt (tbl TEXT NOT NULL, seq INTEGER NOT NULL, n INTEGER NOT NULL, at INTEGER NOT NULL, deliveries INTEGER NOT NULL, code TEXT NOT NULL, message TEXT NOT NULL, by TEXT NOT NULL, duration_ms INTEGER NOT NULL, PRIMARY KEY (tbl, seq, n)) WITHOUT ROWID`,
		"the history of failed attempts and of operators' changes"},
	{"table", "connectd_revision", `CREATE TABLE IF NOT EXISTS connectd_revision (tbl TEXT NOT NULL, seq INTEGER NOT NULL, n INTEGER NOT NULL, at INTEGER NOT NULL, by TEXT NOT NULL, why TEXT NOT NULL, payload BLOB, headers TEXT, PRIMARY KEY (tbl, seq, n))`,
		"what rows were before people edited them"},
	{"table", "connectd_receipt", `CREATE TABLE IF NOT EXISTS connectd_receipt (command_id TEXT NOT NULL, consumer TEXT NOT NULL DEFAULT '', status TEXT NOT NULL DEFAULT 'done', result_ref TEXT, at INTEGER NOT NULL DEFAULT (` + nowMS + `), PRIMARY KEY (command_id, consumer),
		CONSTRAINT "a receipt is text, not bytes" CHECK (typeof(command_id) = 'text' AND typeof(consumer) = 'text' AND typeof(status) = 'text'),
		CONSTRAINT "a receipt is done, failed or started" CHECK (status IN ('done', 'failed', 'started'))) WITHOUT ROWID`,
		"consumers' proofs that a command was completed"},
	{"table", "connectd_cleaned", `CREATE TABLE IF NOT EXISTS connectd_cleaned (tbl TEXT NOT NULL, command_id TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (tbl, command_id)) WITHOUT ROWID`,
		"the ids of cleaned rows that have a receipt, as long as they have one"},
	{"table", "connectd_ledger", `CREATE TABLE IF NOT EXISTS connectd_ledger (tbl TEXT NOT NULL, day TEXT NOT NULL, state TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (tbl, day, state)) WITHOUT ROWID`,
		"how many rows were cleaned, for the audit"},
}

func (s *schema) createTable() string {
	c := &s.cols
	defs := []string{quote(c.Order) + " INTEGER PRIMARY KEY AUTOINCREMENT" + s.positive()}
	if !strings.EqualFold(c.Order, c.ID) {
		defs = append(defs, quote(c.ID)+" TEXT NOT NULL UNIQUE")
	}
	for _, def := range []struct{ name, kind string }{
		{c.Route, "TEXT"}, {c.Key, "TEXT"}, {c.Type, "TEXT"}, {c.Payload, "BLOB"}, {c.Headers, "TEXT"},
		{c.Created, "INTEGER NOT NULL DEFAULT (" + nowMS + ")"},
	} {
		if def.name != "" {
			defs = append(defs, quote(def.name)+" "+def.kind)
		}
	}
	for _, name := range c.HeaderOnly(s.extra, dialect()) {
		defs = append(defs, quote(name)+" TEXT")
	}
	for _, r := range s.relayColumns() {
		defs = append(defs, r.definition())
	}
	return "CREATE TABLE " + quote(s.table) + " (\n  " + strings.Join(defs, ",\n  ") + "\n)"
}
