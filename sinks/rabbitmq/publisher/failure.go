package publisher

import (
	"errors"
	"fmt"
	"io"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Kind says why a message was not delivered.
type Kind string

// The kinds.
const (
	// KindInvalid is a message that Check refuses.
	KindInvalid Kind = "invalid"
	// KindNack is a message that the broker took and then refused: a queue is full, or could not store it.
	KindNack Kind = "nack"
	// KindReturned is a mandatory message that no queue took.
	KindReturned Kind = "returned"
	// KindMissingExchange is a message to an exchange that does not exist; of a connection: what Topology wants does not.
	KindMissingExchange Kind = "missing_exchange"
	// KindRefused is what the user may not do: write to the exchange; of a connection: log in, or use the virtual host.
	KindRefused Kind = "refused"
	// KindPrecondition is a message that the broker will never take; of a connection: what Topology declares exists already
	// and is different.
	KindPrecondition Kind = "precondition"
	// KindChannel is a message whose channel was closed for a reason that does not name it, or that was alone when an
	// internal error of the broker ended the connection.
	KindChannel Kind = "channel"
	// KindConnection is a message whose connection was lost, or for which there was none.
	KindConnection Kind = "connection"
	// KindTimeout is a message that was not confirmed in time.
	KindTimeout Kind = "timeout"
	// KindBlocked is a message that was not sent, or not confirmed in time, since the broker wants no messages now.
	KindBlocked Kind = "blocked"
	// KindNotAttempted is a message that was not sent: it is behind one of its key that was not delivered, or the call's time
	// had run out.
	KindNotAttempted Kind = "not_attempted"
)

// Error is why a message was not delivered, or why there is no connection.
type Error struct {
	Kind Kind
	// Unknown says that the message was sent and may be in its queue all the same.
	Unknown bool
	// Connecting says that a connection could not be made: that holds for every message.
	Connecting bool
	// OfExchange says that the broker named the message's exchange as the reason: whatever goes there fails so.
	OfExchange bool
	// Code is the reply code of AMQP 0-9-1 if the broker gave one, else 0: 403, 404, 406, 312.
	Code int
	// Text says it for people. It may have the broker's own words, which name exchanges, routing keys, users and virtual
	// hosts, and never has a password.
	Text string
}

func (e *Error) Error() string { return e.Text }

var errClosed = &Error{Kind: KindConnection, Text: "the publisher is closed"}

// hard are the reply codes with which the broker closes the whole connection though a single message may be to blame.
// https://www.rabbitmq.com/amqp-0-9-1-reference.html#constants
var hard = map[int]bool{
	amqp.FrameError: true, amqp.SyntaxError: true, amqp.CommandInvalid: true, amqp.UnexpectedFrame: true, amqp.NotImplemented: true,
}

// suspicious says that the broker may have closed the connection because of a message. An internal error may be the
// broker's own trouble as well, so that no message is condemned for it.
func suspicious(code int) bool { return hard[code] || code == amqp.InternalError }

// culprit is what is said of a message that was alone when the broker closed the connection for a suspicious reason, after it
// had done so before.
func (e *Error) culprit() *Error {
	c := &Error{Kind: KindPrecondition, Code: e.Code, Text: "RabbitMQ closes the connection when it gets this message: " + e.Text}
	if e.Code == amqp.InternalError {
		c.Kind, c.Unknown = KindChannel, true
	}
	return c
}

// exception is what the broker gave as the reason for closing a channel.
func exception(cause *amqp.Error) *Error {
	if cause == nil {
		return &Error{Kind: KindChannel, Text: "the channel was closed"}
	}
	e := &Error{Kind: KindChannel, Code: cause.Code, Text: "RabbitMQ closed the channel: " + reason(cause)}
	switch cause.Code {
	case amqp.NotFound:
		e.Kind = KindMissingExchange
	case amqp.AccessRefused:
		e.Kind = KindRefused
	case amqp.PreconditionFailed, amqp.ContentTooLarge:
		e.Kind = KindPrecondition
	}
	return e
}

// lost is why a connection ended.
func lost(cause *amqp.Error) *Error {
	switch {
	case cause == nil:
		return &Error{Kind: KindConnection, Text: "the connection was closed"}
	case cause.Server:
		return &Error{Kind: KindConnection, Code: cause.Code, Text: "RabbitMQ closed the connection: " + reason(cause)}
	}
	return &Error{Kind: KindConnection, Text: "the connection was lost: " + cause.Reason}
}

// unconnected is why a connection could not be made.
func unconnected(endpoint string, err error) *Error {
	e := &Error{Kind: KindConnection}
	var ours *Error
	var cause *amqp.Error
	switch {
	case errors.As(err, &ours):
		e.Kind, e.Code, e.Text = ours.Kind, ours.Code, ours.Text
	case errors.Is(err, amqp.ErrCredentials):
		// The broker closes the connection without a word.
		e.Kind, e.Code = KindRefused, amqp.AccessRefused
		e.Text = "the login was refused, or the connection ended while it was asked for: check the user's name, password and rights"
	case errors.As(err, &cause) && (cause.Code == amqp.AccessRefused || cause.Code == amqp.NotAllowed):
		e.Kind, e.Code, e.Text = KindRefused, cause.Code, reason(cause)
	case errors.As(err, &cause) && cause.Server:
		*e = *exception(cause)
		if e.Kind == KindChannel {
			e.Kind = KindConnection
		}
		e.Text = reason(cause)
	case errors.As(err, &cause) && strings.Contains(cause.Reason, io.EOF.Error()):
		e.Text = "the connection was closed in the handshake: is this a port for AMQP, and for TLS if that is on?"
	case errors.As(err, &cause):
		e.Text = cause.Reason
	default:
		e.Text = err.Error()
	}
	e.Connecting = true
	e.Text = fmt.Sprintf("connect to RabbitMQ at %s: %s", endpoint, e.Text)
	return e
}

// reason is the broker's own text, which begins with the name of its code.
func reason(cause *amqp.Error) string {
	const longest = 1024
	text := cause.Reason
	if len(text) > longest {
		text = text[:longest] + "..."
	}
	return fmt.Sprintf("%d %s", cause.Code, strings.ToValidUTF8(text, "?"))
}

// unknown is the error for a message that may be in its queue.
func (e *Error) unknown() *Error {
	if e.Unknown {
		return e
	}
	other := *e
	other.Unknown = true
	return &other
}
