package producer

import (
	"time"

	"github.com/segmentio/kafka-go"
)

// ByKey as a Message's Partition leaves the choice to the producer.
const ByKey int32 = -1

// Message is one message. What it refers to belongs to the caller and is only read, until Produce returns.
type Message struct {
	Topic string
	// Key decides the partition as the Java client's default does: by its murmur2 hash. Nil is no key, and any partition
	// will do; an empty key is a key.
	Key []byte
	// Partition is ByKey or the partition's number.
	Partition int32
	// Value is nil for a tombstone; an empty value is a value.
	Value   []byte
	Headers []Header
	// Time is the message's timestamp, in milliseconds on the wire.
	Time time.Time
}

// Header is a name and bytes. Names may repeat; their order is kept.
type Header struct {
	Name  string
	Value []byte
}

// Result is what became of one message.
type Result struct {
	// Partition and Offset are where it was written. The offset is -1 when the broker had the message already from an
	// earlier try and no longer knows where.
	Partition int32
	Offset    int64
	// Err is nil when the message was written.
	Err *Error
	// NotSent, with an Err, says that it was not this message's turn: one before it in its partition was not written, or
	// time ran out before it was tried. The Err is why.
	NotSent bool
}

// Class says what a failure is about and whether the same message may be sent again.
type Class uint8

// The classes.
const (
	// Retry may work later, unchanged: no leader, too few replicas, a lost connection.
	Retry Class = iota
	// Permanent never works for this message as it is: too large, refused by the broker's validation.
	Permanent
	// Throttled asks to send less; Error.RetryAfter says when to go on.
	Throttled
	// Sink is about more than the message, until somebody mends it: no broker can be reached, wrong credentials, no
	// permission. Error.Code tells whether it is about the topic (kafka.TopicAuthorizationFailed, kafka.PolicyViolation,
	// kafka.UnsupportedForMessageFormat) or about all.
	Sink
	// UnknownTopic is a topic that does not exist, yet.
	UnknownTopic
)

func (c Class) String() string {
	switch c {
	case Retry:
		return "retry"
	case Permanent:
		return "permanent"
	case Throttled:
		return "throttled"
	case Sink:
		return "sink"
	case UnknownTopic:
		return "unknown topic"
	default:
		return "?"
	}
}

// Error is why a message was not written.
type Error struct {
	Class Class
	// Code is the broker's word, zero if it said none.
	Code kafka.Error
	// Unknown says that the message may have been written all the same.
	Unknown bool
	// RetryAfter is when to try again; zero leaves it to the caller.
	RetryAfter time.Duration
	// Text says what happened and what to do. It holds no secrets.
	Text string
	// Err is the cause, if there is one beside Code.
	Err error
}

func (e *Error) Error() string { return e.Text }

// Unwrap gives the cause, so that errors.Is finds a kafka.Error or a context's end.
func (e *Error) Unwrap() []error {
	var causes []error
	if e.Code != 0 {
		causes = append(causes, e.Code)
	}
	if e.Err != nil {
		causes = append(causes, e.Err)
	}
	return causes
}
