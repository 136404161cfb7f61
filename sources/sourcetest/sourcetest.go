// Package sourcetest is the suite that every source passes: what core.Source, core.Operator and core.Waiter promise,
// tested against the real database. A source's own test calls Run and adds what only its database has.
package sourcetest

import (
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

// Harness is one source under test.
type Harness struct {
	// New makes an empty, initialised outbox table for one test, which nobody else uses. What it needs it gives back
	// in t.Cleanup; the sources that the suite opens are closed by then.
	New func(t *testing.T, o Options) Table

	// AnyText says that the database's text columns take bytes that are not UTF-8, and NUL.
	AnyText bool
	// Overlap says that applications' transactions can overlap, so that a row may commit after one with a higher seq.
	Overlap bool
	// AnyHeaders says that its headers column takes text that is no JSON.
	AnyHeaders bool
}

// Options are how a test wants its table.
type Options struct {
	// DeletePublished: publishing deletes the row.
	DeletePublished bool
	// OwnReceipts: no other table shares its receipts.
	OwnReceipts bool
}

// Table is one outbox table. Its functions may be called from several goroutines; the optional ones may be nil, and
// the suite then says in its log what it could not test.
type Table struct {
	// Open opens the table as another worker's process would, with connections of its own where it has any. The
	// source must be a core.Operator too. The suite closes it.
	Open func(t *testing.T) core.Source
	// Insert commits rows in one transaction, as an application does.
	Insert func(t *testing.T, rows ...Row)

	// Begin opens an application's transaction. Where writers are serial only one is open at a time.
	Begin func(t *testing.T) Tx

	// NextSeq (optional) makes the next row's seq this one.
	NextSeq func(t *testing.T, seq int64)
	// Announce (optional) does the first half of what Step does for an announcement: in a transaction it takes the
	// fence's lock and inserts the inflight row. The function it returns commits.
	Announce func(t *testing.T, l core.Lease, a core.Announcement) (commit func())
	// Receipt (optional) stores a consumer's receipt for an id; its time is the database's.
	Receipt func(t *testing.T, id string, r core.Receipt)
	// Lock (optional) keeps every transaction that writes waiting until the function it returns is called.
	Lock func(t *testing.T) (unlock func())
	// Ahead (optional) moves every heartbeat ahead by d, which is how they stand when the database's clock was set back.
	Ahead func(t *testing.T, d time.Duration)

	// Ledger reads how many rows were cleaned, by state.
	Ledger func(t *testing.T) map[core.State]int
	// Lines (optional) counts the lines of history and the revisions of all rows.
	Lines func(t *testing.T) int
	// AgeReceipts (optional) makes every receipt so much older.
	AgeReceipts func(t *testing.T, d time.Duration)

	// Beside makes another outbox table in the same database, "beside" being in its name, whose id column is called
	// otherwise; it has no Beside.
	Beside func(t *testing.T) Table
	// Drop (optional) drops the table, and leaves what the relay knows of it.
	Drop func(t *testing.T)

	// Vandal is for RunAudit.
	Vandal *Vandal
}

// Tx is an application's open transaction.
type Tx interface {
	Insert(t *testing.T, rows ...Row)
	Commit(t *testing.T)
	Rollback(t *testing.T)
}

// Row is what an application inserts.
type Row struct {
	ID string
	// Key is the ordering key; the column is NULL unless Keyed.
	Key   string
	Keyed bool
	// Route and Type are NULL when empty.
	Route, Type string
	// Payload is stored in a column of bytes. Nil is empty, not NULL.
	Payload []byte
	// Headers is the column's text, NULL when empty.
	Headers string
}

// test is one guarantee.
type test struct {
	name string
	run  func(*testing.T, Harness)
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"lease", leaseTests},
		{"takeover", takeoverTests},
		{"announce", announceTests},
		{"settle", settleTests},
		{"group", groupTests},
		{"fetch", fetchTests},
		{"visibility", visibilityTests},
		{"data", dataTests},
		{"worker", workerTests},
		{"operator", operatorTests},
		{"edit", editTests},
		{"trace", traceTests},
		{"life", lifeTests},
		{"clean", cleanTests},
		{"receipts", receiptTests},
		{"beside", besideTests},
		{"complete", completeTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) { test.run(t, h) })
			}
		})
	}
}
