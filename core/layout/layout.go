// Package layout knows what an outbox table is made of, whatever database it is in: its columns and what they may be
// called, the relay's own tables beside it, and how the values of a row become a core.Row. A source adds the SQL.
//
// # The columns
//
// A configuration calls the columns by the names on the left. In the table they have the names on the right unless a
// Mapping says otherwise:
//
//	id             id             the command's identity
//	key            aggregateid    the ordering key
//	route          aggregatetype
//	type           type
//	payload        payload
//	headers        headers        a JSON object
//	order          seq            the row's place
//	created        created_at     the time of insertion
//	state, available_at, attempts, deliveries, crashes, last_error, failing_since, published_at    the same
//	partition      part           where tables have partitions
//
// Those down to created are the application's, the others the relay's. A table may lack key, route, type, headers and
// created. All of these but the key need not be mapped to null then: a row without a key has no order, and that must be
// said.
//
// # Versions of the schema
//
// On a server, connectd_outbox says which version of the schema each table has: that of the program whose init came last.
// A program of version N works on tables of version N and N+1, so that daemons of two neighbouring versions can run side
// by side. For that the init of N+1 only adds what N does not mind (a column with a default, or one that may be NULL; an
// index; a table), changes the meaning of nothing that N reads or writes, and leaves in its place what N looks for; what
// only N needs is dropped by N+2 at the earliest.
//
// An upgrade is the init of the new version beside the daemons of the old one, then their replacement one by one. The way
// back is the same, without an init: none ever lowers a version. A program does not start on a schema older than its
// own: it says what is missing and stands by until its init has run. On a schema newer than N+1 program N changes nothing:
// it does not open the table, and a daemon that already runs, which learns the version with each heartbeat, finishes what
// is on its way, gives its leases back and stands by with the reason. Who skips a version stops the old daemons before the
// init: until their next heartbeat they would work on a schema they do not know.
//
// A SQLite file has no version: its daemon is stopped for an upgrade, init is run, and it is started again.
package layout

import (
	"slices"
	"strings"
)

// Dialect is how a kind of database takes names.
type Dialect struct {
	// CheckName refuses what the database does not take for a column's name.
	CheckName func(name string) error
	// IgnoreCase: names that differ in the case of letters only are one name.
	IgnoreCase bool
	// OnePartition: tables have one partition, and no column for it.
	OnePartition bool
}

func (d Dialect) fold(name string) string {
	if d.IgnoreCase {
		return strings.ToLower(name)
	}
	return name
}

// IsRelayTable says that a table of this name is one of the relay's own, and no outbox table.
func (d Dialect) IsRelayTable(name string) bool {
	return slices.Contains(RelayTables(), d.fold(name))
}

// RelayTables are the names of the tables that stand beside outbox tables.
func RelayTables() []string {
	return []string{
		"connectd_outbox", "connectd_lease", "connectd_worker", "connectd_inflight", "connectd_attempt", "connectd_revision", "connectd_receipt", "connectd_cleaned", "connectd_ledger",
	}
}
