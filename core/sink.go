package core

import (
	"context"
	"errors"
	"time"
)

// Sink is a destination. The same interface is implemented by a sink's author, by the host's client for a sink's
// process, and in memory for tests.
//
// Life: Describe at any time; Configure once with success; Open; Deliver and Health, concurrently, any number of times;
// Close, also after a failed Open, and more than once. After Close nothing else is called.
type Sink interface {
	// Describe is pure and fast and needs no settings; after Configure its limits and preferences may be others.
	Describe(ctx context.Context) (Description, error)
	// Configure checks the settings, a JSON object, and keeps them. It does no I/O, so `connectd check` can call it
	// alone. Problems are diagnostics; an error means that the question itself failed.
	Configure(ctx context.Context, settings []byte) ([]Diagnostic, error)
	// Open connects. An error is tried again later with backoff; one that wraps ErrInUse soon and steadily.
	Open(ctx context.Context) error
	// Deliver sends a batch and answers with one outcome for each record, in the batch's order. It keeps the order
	// of each key within the batch, and after a record that was not delivered it attempts none of that key's later
	// ones (NotAttempted). Batches that run at the same time never share a key. It must return soon after ctx is
	// done; what it cannot know by then is Retryable with Unknown set.
	//
	// An error means that nothing is known about any record of the batch, unless it wraps ErrNotSent.
	// The batch, its payloads and headers belong to the caller and must not be kept or changed.
	Deliver(ctx context.Context, batch []Record) ([]Outcome, error)
	// Health asks whether the destination can be reached now. It is called at times when nothing is delivered
	// and after a call that timed out. A sink that cannot tell answers with an error that wraps ErrNoHealth.
	Health(ctx context.Context) error
	// Close flushes and frees everything within ctx.
	Close(ctx context.Context) error
}

// CrashExpecter is a Sink that wants to know when what it is sent is suspected of killing it, so that its supervisor does
// not take the death for a fault of the sink. Optional.
type CrashExpecter interface {
	// ExpectCrash is called before each call of Deliver.
	ExpectCrash(on bool)
}

var (
	// ErrNotSent is wrapped by an error of Deliver when no record of the batch can have been sent: the sink's
	// process was not running, or the call was refused before it left.
	ErrNotSent = errors.New("batch not sent")
	// ErrNoHealth is wrapped by an error of Health when the sink has no way to ask. It is no good word: after a call that
	// timed out nobody knows then whether the record or the destination is to blame.
	ErrNoHealth = errors.New("the sink cannot tell whether its destination can be reached")
	// ErrInUse is wrapped by an error of Open when the destination takes one sink at a time and another has it, which is no
	// fault: this one stands by.
	ErrInUse = errors.New("another sink is writing to it")
	// ErrSinkDied is wrapped by an error of Deliver when the sink's process ended during the call.
	ErrSinkDied = errors.New("sink process died")
)

// Description is what a sink says of itself.
type Description struct {
	Name    string
	Version string
	// Schema is the JSON Schema (draft 2020-12) of the settings.
	Schema  []byte
	Limits  Limits
	Prefers Preferences
}

// Preferences are what suits a sink best where the operator has no say; zero leaves it to the engine. A sink that sends
// record by record may prefer small batches and many of them: then a slow record holds up few others.
type Preferences struct {
	MaxRecords int // in a batch
	InFlight   int // concurrent Deliver calls
}

// Limits are ceilings a sink asks for; zero means none.
type Limits struct {
	MaxRecords     int   // in a batch
	MaxBytes       int64 // of a batch, by Record.Size
	MaxRecordBytes int64 // of a record; a larger one is never sent
	MaxInFlight    int   // concurrent Deliver calls
}

// Diagnostic is one problem in a sink's settings.
type Diagnostic struct {
	// Pointer is the place, as an RFC 6901 JSON pointer into the settings; "" is the whole.
	Pointer string
	// Message says what is wrong and what to do, without the value if that may be secret.
	Message string
	// Warning marks what is worth saying but no reason to refuse.
	Warning bool
}

// OutcomeKind is a sink's word on one record.
type OutcomeKind uint8

// The kinds. The zero value is none of them, so that a forgotten outcome is never taken for a delivery.
const (
	Unspecified  OutcomeKind = iota // treated as Retryable with Unknown
	Delivered                       // the destination confirmed this very record
	Retryable                       // failed, may work later; counts as an attempt
	Permanent                       // will never work; the record is buried
	Throttled                       // asked to wait; counts nothing
	NotAttempted                    // behind a record of its key that was not delivered, or the sink is down; counts nothing
)

func (k OutcomeKind) String() string {
	switch k {
	case Delivered:
		return "delivered"
	case Retryable:
		return "retryable"
	case Permanent:
		return "permanent"
	case Throttled:
		return "throttled"
	case NotAttempted:
		return "not_attempted"
	default:
		return "unspecified"
	}
}

// Scope says what a failure is about.
type Scope uint8

// The scopes. ScopeDefault is the record, for Throttled the sink.
const (
	ScopeDefault Scope = iota
	ScopeRecord
	ScopeKey  // other keys may go on
	ScopeSink // nothing can be delivered now (a wrong password, no connection): the connector pauses, no row is charged
)

func (s Scope) String() string {
	switch s {
	case ScopeRecord:
		return "record"
	case ScopeKey:
		return "key"
	case ScopeSink:
		return "sink"
	default:
		return ""
	}
}

// Outcome is a sink's answer for one record.
type Outcome struct {
	Kind  OutcomeKind
	Scope Scope
	// Unknown, with Retryable, says that the record may have taken effect all the same.
	Unknown bool
	// Completed, with Delivered, says that the destination's answer means more than that it has the record: what the
	// command says is done. The engine then stores a receipt. It is for sinks whose operator has said so in their settings.
	Completed bool
	// RetryAfter is a lower bound for the next try; zero leaves it to the engine.
	RetryAfter time.Duration
	// Code is a short stable word for the failure, Message a sentence for people without secrets.
	Code    string
	Message string
}

// AboutSink reports whether the outcome is one that every record would have now: the connector waits.
func (o Outcome) AboutSink() bool {
	return o.Kind != Delivered && o.Scope == ScopeSink || o.Kind == Throttled && o.Scope == ScopeDefault
}
