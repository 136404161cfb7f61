package core

import (
	"context"
	"errors"
	"time"
)

// ErrNoRow is returned when no row has the id.
var ErrNoRow = errors.New("no such row")

// ErrLocked is returned when a change waited some seconds for another transaction that has the row locked; nothing was
// changed.
var ErrLocked = errors.New("another transaction has it locked: try again when that has ended")

// Operator is the view of an outbox table for people: what the CLI and the API show and change. A source implements
// it beside Source. It works while daemons run, and never harms them: it changes dead and held rows only, each by one
// UPDATE guarded by the state it saw, and deliveries and crashes stay.
type Operator interface {
	// Lag counts what is not yet published. Counts may stop at a bound (see Lag.Capped).
	Lag(ctx context.Context) (Lag, error)
	// List returns rows in seq order.
	List(ctx context.Context, f Filter) ([]RowInfo, error)
	// Show returns the row with this id and its attempt history, or ErrNoRow.
	Show(ctx context.Context, id string) (RowInfo, []Attempt, error)
	// Workers and Leases show who is there and who holds what.
	Workers(ctx context.Context) ([]WorkerInfo, error)
	Leases(ctx context.Context) ([]LeaseInfo, error)
	// Queue tells what a pending row waits behind. Earlier rows of its key hold it back when they are pending or in one
	// of the states held; without any, rows have no order and no key is looked at.
	Queue(ctx context.Context, row RowInfo, held ...State) (Queue, error)
	// Trace tells what is known of an id besides its row, which need not be there.
	Trace(ctx context.Context, id string) (Trace, error)
	// Retry turns a dead row into a pending, due one with attempts 0. ReleaseRow turns a held row into a pending one
	// (Release is what a Source does to a lease). Skip settles a dead or held row as skipped. Each returns ErrNoRow, or a
	// *StateError when the row was not in such a state, or ErrLocked.
	Retry(ctx context.Context, act Act) error
	ReleaseRow(ctx context.Context, act Act) error
	Skip(ctx context.Context, act Act) error
	// Edit gives a dead row other content and makes it pending and due as Retry does, in one transaction in which what
	// the row was is kept as a Revision. It returns what Retry returns, or a *ContentError when the row cannot have that
	// content, and then nothing is changed. A held row may have been delivered, and is not edited.
	Edit(ctx context.Context, act Act, edit Edit) error
	// Revisions returns what the row with this id was before its edits, oldest first, or ErrNoRow.
	Revisions(ctx context.Context, id string) ([]Revision, error)
}

// StateError says that a row is not in a state that allows the change.
type StateError struct {
	ID    string
	State State
	Want  string // "dead", "held", "dead or held"
}

func (e *StateError) Error() string {
	return "row " + e.ID + " is " + string(e.State) + ", not " + e.Want
}

// Lag is what is waiting.
type Lag struct {
	Pending   int64         // rows pending
	Due       int64         // of these, rows due now
	Dead      int64         // rows dead
	Held      int64         // rows held
	InFlight  int64         // rows named by inflight rows
	OldestDue time.Duration // age of the oldest due row, by the database's clock; 0 without one
	Oldest    time.Duration // age of the oldest pending row
	// Capped is true when counting stopped at the bound and the true figures are higher.
	Capped bool
}

// Holdup is what keeps rows from being sent in commit order, in sources that can keep it. Such a source has a method
// HeldBack(context.Context) (*Holdup, error), which returns nil when nothing does.
type Holdup struct {
	Rows  int64 // pending rows that wait
	After int64 // they are those with a seq above this
	// Holder says whose transaction it is and, where the server tells, since when it runs, for people; For is how long it has
	// run, or has been seen.
	Holder string
	For    time.Duration
}

// Filter selects rows to list; zero fields do not restrict.
type Filter struct {
	State State
	Key   string
	Type  string
	// Reason is text that last_error contains, to the letter.
	Reason string
	// Older and Newer bound the age: the time since created_at, by the database's clock. A row that was created exactly so
	// long ago is both; one of which nobody knows when is neither.
	Older, Newer time.Duration
	After, UpTo  int64 // After < seq <= UpTo; UpTo 0 is the table's end
	Limit        int   // 0: 100
}

// ByAge says that the filter bounds the age.
func (f Filter) ByAge() bool { return f.Older > 0 || f.Newer > 0 }

// TakesAge says whether the filter's bounds of the age take a row.
func (f Filter) TakesAge(created, now time.Time) bool {
	age := now.Sub(created)
	return !f.ByAge() || !created.IsZero() && (f.Older <= 0 || age >= f.Older) && (f.Newer <= 0 || age <= f.Newer)
}

// Most is how many rows are listed at most.
func (f Filter) Most() int {
	if f.Limit <= 0 {
		return 100
	}
	return f.Limit
}

// RowInfo is a row as shown to people. Payload and Headers are set by Show only.
type RowInfo struct {
	Seq         int64
	ID          string
	Key         string
	Keyed       bool
	Route       string
	Type        string
	State       State
	Sending     bool // named by an inflight row
	Part        int
	Attempts    int
	Deliveries  int
	Refused     int // of Deliveries, those that the engine refused without sending them, as far back as the history goes
	Crashes     int
	LastError   string
	CreatedAt   time.Time
	AvailableAt time.Time // zero: due since the beginning
	PublishedAt time.Time // zero: not published
	Size        int64     // payload bytes
	Payload     []byte
	Headers     string // the column's text as it is
}

// MaxHistory bounds a row's attempt history; the oldest entries go first.
const MaxHistory = 50

// Attempt is one entry of a row's history: failed sends, takeovers that buried or held it (see Interrupted), and
// operators' changes.
type Attempt struct {
	At time.Time
	// Deliveries is the send's own number; 0 for a record that the engine refused without sending it.
	Deliveries int
	Code       string
	Message    string
	By         string // owner id of the worker, or who changed it
	Duration   time.Duration
}

// WorkerInfo is one worker's heartbeat.
type WorkerInfo struct {
	Owner string
	Age   time.Duration // since its last heartbeat, by the database's clock; negative when that was set back since
	Info  []byte        // what it published, JSON
}

// Live says that w was heard within ttl, as Source.Heartbeat counts.
func (w WorkerInfo) Live(ttl time.Duration) bool { return w.Age.Abs() < ttl }

// Refused says that it is of a record that the engine refused without sending it.
func (a Attempt) Refused() bool {
	return a.Deliveries == 0 && (a.Code == ReasonInvalid || a.Code == ReasonTooLarge)
}

// LeaseInfo is one lease row.
type LeaseInfo struct {
	Part     int
	Owner    string // "": free
	Epoch    int64
	Left     time.Duration // until the deadline; negative: since when it is expired or free; 0: free and never leased
	InFlight int           // rows announced
}

// Plan is what `init` would do: SQL statements in order, each preceded by a sentence on why.
type Plan struct {
	Steps []PlanStep
}

// PlanStep is one statement of a Plan.
type PlanStep struct {
	Why string
	SQL string
}
