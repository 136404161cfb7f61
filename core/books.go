package core

import (
	"context"
	"time"
)

// Books is the view of an outbox table that closes its chain: consumers' receipts, and the removal of what is done. A
// source implements it beside Source and Operator. All methods may be called from several goroutines at once and from
// several workers; times are the database's.
type Books interface {
	// Clean looks at rows in seq order and removes those whose time has come, in one short transaction: with each row
	// its history goes, the ledger counts it, and the ids of rows that have a receipt are kept beside the receipts.
	// It removes a row only if Retention.Judge says so, and never a pending or a held one. It waits for nobody's row:
	// one that another transaction has locked stays for a later call. Only the worker that holds the lease of
	// partition 0 cleans, so that it is one at a time; others get ErrLeaseNotOwned. The lease is read and not locked,
	// since two at once do no harm: each row is removed, and counted, once.
	Clean(ctx context.Context, req CleanRequest) (Cleaned, error)

	// CleanReceipts looks at receipts in the order of their keys and removes those that nobody needs any more: their
	// row is gone, and their own retention has passed since they came and since the row was cleaned. It is for the
	// same worker as Clean.
	CleanReceipts(ctx context.Context, req ReceiptsRequest) (CleanedReceipts, error)

	// SaveReceipts stores at most MaxReceipts receipts in one transaction and answers for each, in their order, as if
	// they had come one after the other.
	SaveReceipts(ctx context.Context, list []Receipt) ([]ReceiptResult, error)

	// Receipts lists receipts in the order of their keys, with what is known of their rows.
	Receipts(ctx context.Context, f ReceiptFilter) ([]Receipt, error)
}

// Forever is a retention that never ends.
const Forever time.Duration = -1

// Retention is how long a connector's rows and receipts stay when they are done. A negative duration is Forever.
type Retention struct {
	// Published is counted from the delivery. Rows that were published before connectd knew the table, and have no
	// time of it, stay.
	Published time.Duration
	// RequireReceipt keeps a published row until a receipt with status done is stored, whichever consumer's. Rows that
	// connectd has never sent need none.
	RequireReceipt bool
	// Dead and Skipped are counted from the last line of the row's history, which buried it or skipped it; a row
	// without history stays.
	Dead, Skipped time.Duration
	// Receipts is counted from the receipt's coming or its row's cleaning, whichever was later.
	Receipts time.Duration
}

// KeepsRows says that no row is ever cleaned.
func (r Retention) KeepsRows() bool { return r.soonest() < 0 }

// soonest is the shortest retention that ends, Forever without one.
func (r Retention) soonest() time.Duration {
	soonest := Forever
	for _, d := range []time.Duration{r.Published, r.Dead, r.Skipped} {
		if d >= 0 && (soonest < 0 || d < soonest) {
			soonest = d
		}
	}
	return soonest
}

// Kept is a row as a cleaner sees it.
type Kept struct {
	State State
	// Since is how long the row has been in that state; negative when nobody knows.
	Since time.Duration
	// Receipt says that no receipt is owed for it any more: one with status done is stored, or connectd has never sent the
	// row, which was published when it came.
	Receipt bool
}

// How long a row that waits for its receipt is left alone. It grows with what it has waited, so that rows that never
// get one are looked at ever more seldom.
const (
	receiptWaitMin = time.Second
	receiptWaitMax = time.Hour
)

// keptWait is how long a row is left alone that only a person can make due, if no retention is longer: a table of which
// most is kept for ever is not read again and again.
const keptWait = time.Hour

// Judge says whether a row may be removed now, or else when it is worth another look. A row that may still change
// can end no earlier than the shortest retention from now; one that a person makes due may be seen up to keptWait later.
func (r Retention) Judge(k Kept) (goes bool, again time.Duration) {
	stay := Forever
	switch k.State {
	case Published:
		stay = r.Published
	case Dead:
		stay = r.Dead
	case Skipped:
		stay = r.Skipped
	}
	final := k.State == Published || k.State == Dead || k.State == Skipped
	switch over := k.Since - stay; {
	case final && (stay < 0 || k.Since < 0):
		return false, max(r.soonest(), keptWait)
	case stay < 0 || k.Since < 0:
		return false, max(r.soonest(), receiptWaitMin)
	case over < 0:
		return false, -over
	case k.State == Published && r.RequireReceipt && !k.Receipt:
		return false, min(max(over/4, receiptWaitMin), receiptWaitMax)
	}
	return true, 0
}

// CleanRequest is a stretch of a table to clean.
type CleanRequest struct {
	Owner     string // who asks
	Retention Retention
	// After and UpTo bound the stretch: After < seq <= UpTo. UpTo 0 is the table's end.
	After, UpTo int64
	// Limit is how many rows are looked at, at least 1; Most how many are removed, 0 for as many.
	Limit, Most int
}

// Full says that no more rows may be removed than those.
func (r CleanRequest) Full(removed int) bool { return r.Most > 0 && removed >= r.Most }

// Cleaned is what became of a stretch.
type Cleaned struct {
	Removed map[State]int
	// Looked is how many rows were looked at, Last the seq of the last one. Fewer than the limit: the stretch ended.
	Looked int
	Last   int64
	// Left is how many of these rows stay; Again is when one of them may be worth another look, 0 at once.
	Left  int
	Again time.Duration
	// Held is how long rows were locked.
	Held time.Duration
}

// Leave counts a row that stays and is worth another look then.
func (c *Cleaned) Leave(again time.Duration) {
	if c.Left++; c.Left == 1 || again < c.Again {
		c.Again = again
	}
}

// LeaveLocked counts rows that may go and stay for now, since another transaction has them or changed them.
func (c *Cleaned) LeaveLocked(n int) {
	for range n {
		c.Leave(lockedWait)
	}
}

// lockedWait is how long a row is left alone that another transaction has locked.
const lockedWait = 10 * time.Second

// ReceiptsRequest is a stretch of the receipts.
type ReceiptsRequest struct {
	Owner     string
	Retention time.Duration
	After     ReceiptKey
	Limit     int // at least 1
}

// CleanedReceipts is what became of a stretch of receipts.
type CleanedReceipts struct {
	Removed map[RowPlace]int // by where their row was
	Looked  int              // fewer than the limit: these were the last
	Last    ReceiptKey
	// Unknown are receipts that stay and whose command no outbox table of the database has, nor cleaned with a receipt.
	// Those that are or may be another table's are not among them, and are not removed.
	Unknown []Receipt
	Held    time.Duration
}
