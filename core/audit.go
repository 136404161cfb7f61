package core

import (
	"context"
	"time"
)

// Auditor is the view of an outbox table that proves its books. A source implements it beside Source, Operator and Books.
type Auditor interface {
	// Audit checks the laws of conservation in one snapshot of the database, by reads that lock nothing and that a
	// producer never waits for. It works while daemons and applications do. Its error means that nothing was proved: the
	// time was over, a right is missing, or the rule's SQL is wrong. Books that do not balance are no error.
	Audit(ctx context.Context, req AuditRequest) (Audit, error)
}

// AuditRequest is what the books must agree with.
type AuditRequest struct {
	// Events is where commands come from; nil when nobody said, and then some laws cannot be checked.
	Events *Events
	// ReceiptWithin is how long after its delivery a published row must have a receipt that is done; negative: never.
	ReceiptWithin time.Duration
	// Lease is how long the connector's leases last: a worker whose last heartbeat is older than two of them is dead.
	Lease time.Duration
	// Timeout bounds the whole, also in the server when this process is gone; it must be positive.
	Timeout time.Duration
	// Dry tries all that would be asked and reads nothing: the audit has no laws, and the error is that of a real one.
	Dry bool
	// Progress, if not nil, is told what is looked at next.
	Progress func(what string)
}

// Events is the rule that says which commands there must be. Where and Command are the operator's own SQL, in the words
// of the database; they see the events table's columns alone and run in the audit's read-only transaction with the
// rights of the source's user.
type Events struct {
	Table string // or a view; with its schema where it needs one
	Key   string // the column that identifies an event
	Where string // condition of the events that give a command; "": all do
	// Command computes the id of an event's command. Join is a column of the outbox table that holds the event's key.
	// One of the two is given.
	Command, Join string
}

// MaxAuditIDs is how many ids a breach names; its total is exact.
const MaxAuditIDs = 100

// Audit is the outcome of one audit.
type Audit struct {
	At   time.Time // when it began, by this machine's clock
	Took time.Duration
	Laws []Law // always the same ones, in the same order
}

// OK says that no law was found broken.
func (a Audit) OK() bool { return a.Findings() == 0 }

// Findings is how many breaches of laws there are.
func (a Audit) Findings() int {
	n := 0
	for _, law := range a.Laws {
		n += len(law.Breaches)
	}
	return n
}

// Law is one law of conservation and what came of it.
type Law struct {
	Name    string // one of the Law constants
	Say     string // the law as a sentence, or why it was not checked
	Checked bool
	Figures []Figure // what was counted
	// Breaches is empty when the law holds or was not checked.
	Breaches []Breach
}

// The laws.
const (
	LawEvents       = "events"       // each event that must give a command has exactly one
	LawOrigin       = "origin"       // each row comes from an event
	LawReceipts     = "receipts"     // each receipt names a row that is there or was cleaned
	LawCompletion   = "completion"   // each delivered command is completed in time
	LawConservation = "conservation" // what was inserted is all accounted for
	LawIdentity     = "identity"     // no id is there twice, nor again after its row was cleaned
	LawLeases       = "leases"       // what the relay notes of its work is consistent
)

// Figure is something that was counted.
type Figure struct {
	Name  string
	Count int64
}

// Breach is one way in which a law is broken.
type Breach struct {
	Total int64
	IDs   []string // at most MaxAuditIDs; ids of commands, or what Say calls them
	Say   string
	Do    string
}
