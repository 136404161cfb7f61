package core

import (
	"context"
	"errors"
	"time"
)

// ErrLeaseNotOwned is returned by Step and Release when the fence refused: the lease, or one of those of a Step, has
// another owner, another epoch, or its deadline has passed. Nothing was changed.
var ErrLeaseNotOwned = errors.New("lease not owned")

// ErrNotInitialised is wrapped by the error of opening a source whose table or relay columns are not there. The error
// names what is missing.
var ErrNotInitialised = errors.New("not initialised, run `connectd init`")

// Lease is the right to work on one partition of an outbox table. Its deadline lives in the database and is
// computed and compared by the database's clock only.
type Lease struct {
	Part  int
	Epoch int64 // fencing number: rises with each acquisition of the partition
}

// Source is one outbox table with its leases, seen by one worker. It decides nothing: no retries, no backoff, no
// batching. Every method may be called from several goroutines at once, respects its context, and when it returns an
// error other than ErrLeaseNotOwned the effect is unknown: it may have happened, not happened, or happen yet. The
// engine repeats or drops such calls by the rules in package engine.
//
// The fence, in Step and Release, is: owner is mine AND epoch is mine AND lease_until > now, taken with a lock on the
// lease row in the same transaction and never by updating it. "now" is the database's clock, read after any wait.
type Source interface {
	// Partitions is the number of hash partitions, chosen when the table was initialised.
	Partitions(ctx context.Context) (int, error)

	// Heartbeat tells the other workers that owner lives, stores info (JSON, at most 64 KiB) where operators see
	// it, forgets workers silent for more than ten times ttl, and answers how many are live: those, owner
	// included, whose heartbeat is younger than ttl. One from the future is as old as it is early: the database's clock
	// was set back since, or it is forged, and the share of who is not there would have no worker.
	Heartbeat(ctx context.Context, owner string, info []byte, ttl time.Duration) (Pulse, error)

	// Leave removes owner's heartbeat.
	Leave(ctx context.Context, owner string) error

	// Acquire takes at most max partitions that are free or expired, in one transaction of separate statements:
	// lock the lease rows (skip those locked by others), set owner, epoch+1 and the deadline, and then, in a
	// statement that begins after the lock is held, for every row named by an inflight row of those partitions:
	// deliveries+1, crashes+1 and state dead (reason "crash", when crashes reached MaxCrashes), held (reason "uncertain", when hold)
	// or pending; and delete those inflight rows. Only rows that are still pending are touched.
	Acquire(ctx context.Context, owner string, max int, lease time.Duration, hold bool) ([]Acquired, error)

	// Renew sets the deadline of those leases that still have this owner and epoch to now + lease, also when it
	// has passed (a lease that ran out is not lost until somebody takes it), and returns the ones it found.
	Renew(ctx context.Context, owner string, leases []Lease, lease time.Duration) ([]Lease, error)

	// Release gives a lease back. Fenced. It touches no inflight row.
	Release(ctx context.Context, owner string, l Lease) error

	// Blocking lists, for one partition, each key with a held row, and with dead also those with a dead one: the
	// lowest such seq of each key. Rows without a key block nothing.
	Blocking(ctx context.Context, part int, dead bool) ([]Block, error)

	// Fetch reads pending rows of some partitions, for each request one page, in the order of the requests. A page is
	// in seq order and comes from one snapshot; one may serve all. An error is about all requests: there are no pages.
	// It writes nothing, locks nothing and needs no lease: what a stale owner reads it cannot announce.
	Fetch(ctx context.Context, reqs []FetchRequest) ([]Page, error)

	// Step settles what is finished and announces what goes next, for some partitions in one fenced transaction: all
	// changes or none. There is at most one change for a partition. The leases are locked in the order of their
	// partitions; when the fence refuses one of them, nothing is written and the error is ErrLeaseNotOwned.
	Step(ctx context.Context, owner string, changes []Change) error

	Close() error
}

// Waiter is a Source that can tell when there may be something new. Optional; a wake-up is a hint and polling goes on.
type Waiter interface {
	// Wait returns nil when rows may have been committed since the last call, or ctx's error. It may return for
	// nothing. One goroutine calls it.
	Wait(ctx context.Context) error
}

// MaxCrashes is how many crashes bury a row.
const MaxCrashes = 6

// Reasons the relay itself gives for a dead or held row; a sink's permanent outcome brings its own code.
const (
	ReasonCrash     = "crash"     // in flight when its worker or plugin died, MaxCrashes times
	ReasonUncertain = "uncertain" // may have been sent, and the connector holds such rows for a person
	ReasonGaveUp    = "gave_up"   // failed until retry.give_up_after or retry.max_attempts
	ReasonInvalid   = "invalid"   // the row cannot be made into a record
	ReasonTooLarge  = "too_large" // larger than the sink's limit
)

// Pulse is what a heartbeat learns.
type Pulse struct {
	Live    int   // live workers, this one included
	Changes int64 // rises when an operator changed rows, so that the engine looks again from the start
}

// Acquired is a partition just taken.
type Acquired struct {
	Lease Lease
	// TakenOver is true when the lease had expired under an owner, false when it was free.
	TakenOver bool
	// Recovered are the rows that may have been sent under an earlier lease, as they stand now.
	Recovered []Recovered
}

// Recovered is a row that was announced and not settled when its partition changed hands.
type Recovered struct {
	Seq     int64
	State   State
	Crashes int
}

// Block is a key and its lowest row that holds back later ones.
type Block struct {
	Key string
	Seq int64
}

// FetchRequest says what to read of one partition: pending rows with seq > After, not in Known, whose key is NULL or not in
// Exclude. A seq is of one row and a key of one partition, so that a source may put the lists of several requests together.
type FetchRequest struct {
	Part    int
	After   int64
	Known   []int64  // seqs in memory, ascending
	Exclude []string // keys that must wait
	Limit   int      // rows at most, at least 1
	// MaxBytes ends the page with the row that reaches it; the first row always comes. 0: no limit.
	MaxBytes int64
}

// Page is the answer to a FetchRequest, in seq order.
type Page struct {
	Rows []Row
	// More is true when Limit or MaxBytes cut the page.
	More bool
	// Changes is Pulse.Changes in the page's snapshot, or 0 when none of the rows was sent before. Who reads on from where
	// it was sees by it that rows which came back may have others before them that came back too.
	Changes int64
	// Horizon belongs to the page's snapshot. Nil means that writers are serial: no row can still commit with a
	// seq below one that is visible.
	Horizon *Horizon
}

// Horizon tells which transactions a snapshot could not see yet. Rows that the snapshot does not show belong to
// transactions numbered Oldest or later; all transactions started later get Next or a higher number. So when a later
// snapshot's Oldest has reached an earlier one's Next, everything that was running then has ended. A source without
// transaction numbers may use microseconds: Next the present, Oldest the present less its longest transaction.
type Horizon struct {
	Oldest, Next int64
}

// Change is what a transaction does to one partition. Announce and settle share it in steady flow; either may be empty.
type Change struct {
	Lease Lease
	// Settle lists what became of rows. Each is written only WHERE state = 'pending' AND deliveries = Deliveries;
	// a row found changed is left alone, without error.
	Settle []Settlement
	// Finished are the batches whose inflight rows go.
	Finished []Finished
	// Announce names the batches that will be sent when this transaction is known to have committed. Inserting
	// one that exists already does nothing.
	Announce []Announcement
}

// Announcement is the content of one inflight row. Batch only rises within an epoch and is never used again.
type Announcement struct {
	Batch int64
	Seqs  []int64
}

// Finished names an inflight row to remove. With Keep it is emptied instead of deleted, so that a late copy of its
// announcement inserts nothing; the next acquisition sweeps it.
type Finished struct {
	Batch int64
	Keep  bool
}

// Settlement is what the engine writes back for one row, in absolute values; the new deliveries is Deliveries+1.
type Settlement struct {
	Seq        int64
	Deliveries int // as last known: the guard
	State      State
	Attempts   int
	Crashes    int
	// Delay, if positive, makes the row due at the database's now + Delay; else available_at stays as it is.
	Delay time.Duration
	// Failure is set for everything but a delivery: it becomes last_error and one row of the attempt history.
	Failure *Failure
	// Receipt, if not empty, is the consumer in whose name a receipt with status done is stored with a delivery, in the
	// same transaction and only if this settlement is written. One that the consumer has for the command already stays as
	// it is, whatever its status. Receipt.Check has no objection to it.
	Receipt string
}

// Failure is what went wrong with one send, or kept it from happening, for people.
type Failure struct {
	// Code is a short stable word: a Reason constant, a sink's code, or an outcome's name.
	Code string
	// Message is valid UTF-8 without control characters, at most MaxErrorText bytes.
	Message string
	// Duration is how long the call took.
	Duration time.Duration
	// Unsent says that the engine refused the record and no sink has seen it.
	Unsent bool
}

// MaxErrorText bounds a failure's message, in bytes.
const MaxErrorText = 1024
