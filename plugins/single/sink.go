// Package single makes a sink of a function that sends one record. It is for destinations that take and confirm records
// one by one: a line protocol, Redis or Valkey streams, SMTP, a REST API.
//
// The author describes the settings by the tags of a struct (package settings), opens a connection, and sends a record
// over it:
//
//	type config struct {
//		Address string `json:"address" required:"true" doc:"host:port of the server"`
//	}
//
//	func main() {
//		plugins.Serve(single.New("mine", "1.0.0", connect))
//	}
//
//	func connect(ctx context.Context, c config) (single.Conn, error) { ... }
//
//	func (c *conn) Send(ctx context.Context, r core.Record) error { ... }
//	func (c *conn) Close() error                                  { ... }
//
// The rest of core.Sink's contract is kept here: the schema and the checks of the settings, the order of each key, what a
// failure is about, deadlines, connections that are opened again, secrets in error texts, the end. A destination that
// takes many records in one request is faster with a sink of its own.
package single

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/settings"
)

// Sink is a core.Sink that delivers a batch record by record. S is the struct of its settings. The fields may be set
// before it is used.
//
// Each call of Deliver has a connection of its own, which is kept for the next call. So there are never more of them than
// the connector has batches in flight (delivery.in_flight), and one more for Health. One that has not been used for 30 s
// is not used again.
type Sink[S any] struct {
	// Limits are the ceilings the sink asks for, if any.
	Limits core.Limits
	// Check, if set, finds in settings that agree with their tags what the tags cannot say. It does no I/O.
	Check func(s S) []core.Diagnostic

	name, version string
	connect       func(ctx context.Context, s S) (Conn, error)

	mu       sync.Mutex
	settings *S    // nil until Configure succeeded
	pool     *pool // nil unless open
}

// New returns a sink. Name and version are what it says of itself.
//
// Connect opens a connection and logs in. It is called at any time from any goroutine. It must end with ctx, which is
// done after 10 s at the latest, and also when connect has returned: a connection must not hang on it. With an error, it
// may return a connection that has to be closed. Where a handshake cannot be given the context, close what it waits for:
//
//	defer context.AfterFunc(ctx, func() { conn.Close() })()
func New[S any](name, version string, connect func(ctx context.Context, s S) (Conn, error)) *Sink[S] {
	return &Sink[S]{name: name, version: version, connect: connect}
}

// Conn is a connection to the destination. Send and Ping are called by one goroutine at a time.
type Conn interface {
	// Send sends one record and waits for the destination's word that it has it. Nil means delivered; nothing else does.
	//
	// A Failure is the destination's answer that it has not; the connection goes on to be used. After any other error it
	// is closed, and the record may or may not have arrived: it is sent again as a possible duplicate, and counts as one
	// failed attempt. An error that wraps core.ErrNotSent says that nothing of the record has left: the trouble is the
	// connection's alone, so the connector waits and the record is charged nothing.
	//
	// When ctx is done the connection is closed under Send, which must then return. r may be read until Send returns;
	// what is kept must be copied.
	Send(ctx context.Context, r core.Record) error
	// Close is called once, also while Send or Ping runs, which must then return. It must not wait for the destination.
	Close() error
}

// Pinger is a Conn that can ask whether the destination answers, without a record. With it, a connection that broke while
// it rested is found before a record is sent over it. Without it Health says only whether connect works.
type Pinger interface {
	Ping(ctx context.Context) error
}

// Failure is the destination's answer to a record it did not take, as an error for Send to return:
//
//	return single.Failure{Kind: core.Permanent, Code: "refused", Message: answer}
type Failure core.Outcome

func (f Failure) Error() string {
	o := f.outcome()
	return o.Code + ": " + o.Message
}

// outcome is the failure with what its author left out. It is never a delivery.
func (f Failure) outcome() core.Outcome {
	o := core.Outcome(f)
	switch o.Kind {
	case core.Retryable:
	case core.Permanent, core.Throttled, core.NotAttempted:
		o.Unknown = false
	default:
		o.Kind, o.Unknown = core.Retryable, true
	}
	o.RetryAfter = max(o.RetryAfter, 0)
	if o.Code == "" {
		o.Code = o.Kind.String()
	}
	if o.Message == "" {
		o.Message = "the destination gave no reason"
	}
	return o
}

// Describe gives the name, the version, the limits, and the schema of S. It prefers batches of one record: a slow one then
// holds up nothing but its key.
func (s *Sink[S]) Describe(context.Context) (core.Description, error) {
	return core.Description{
		Name: s.name, Version: s.version, Schema: settings.Schema(new(S)),
		Limits: s.Limits, Prefers: core.Preferences{MaxRecords: 1},
	}, nil
}

// Configure reads the settings into an S.
func (s *Sink[S]) Configure(_ context.Context, data []byte) ([]core.Diagnostic, error) {
	read := new(S)
	diagnostics := settings.Decode(data, read)
	if len(diagnostics) == 0 && s.Check != nil {
		diagnostics = s.Check(*read)
	}
	refused := false
	for i := range diagnostics {
		diagnostics[i].Message = settings.Mask(diagnostics[i].Message, read)
		refused = refused || !diagnostics[i].Warning
	}
	if !refused {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.settings = read
	}
	return diagnostics, nil
}

// Open opens the first connection.
func (s *Sink[S]) Open(ctx context.Context) error {
	s.mu.Lock()
	config, open := s.settings, s.pool != nil
	s.mu.Unlock()
	if config == nil {
		return fmt.Errorf("the %s sink was opened before it was configured", s.name)
	}
	if open {
		return fmt.Errorf("the %s sink is open already", s.name)
	}
	p := newPool(
		func(ctx context.Context) (Conn, error) { return s.connect(ctx, *config) },
		func(text string) string { return settings.Mask(text, config) },
	)
	if err := p.check(ctx); err != nil && !errors.Is(err, core.ErrNoHealth) {
		return err // and nothing is open
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pool = p
	return nil
}

// Health asks a connection that rests, or a new one.
func (s *Sink[S]) Health(ctx context.Context) error {
	p := s.current()
	if p == nil {
		return fmt.Errorf("the %s sink is not open", s.name)
	}
	return p.check(ctx)
}

// Close closes the connections.
func (s *Sink[S]) Close(ctx context.Context) error {
	s.mu.Lock()
	p := s.pool
	s.pool = nil
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.close(ctx)
}

func (s *Sink[S]) current() *pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pool
}
