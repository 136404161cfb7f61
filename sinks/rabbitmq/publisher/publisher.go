// Package publisher sends messages to RabbitMQ over AMQP 0-9-1 and says of each what became of it.
//
// One connection is used at a time. It has a number of lanes, each a channel in confirm mode with a goroutine of its own.
// Messages of one key always take the same lane, and a key's next message is published only when its previous one is
// confirmed, so that order holds whatever fails; messages of other keys keep the lane's window full meanwhile.
//
// A message is delivered when the broker has confirmed it and has not returned it as unroutable. What was published and
// neither confirmed nor refused may be in a queue all the same: its Error has Unknown set.
//
// The connection is made again by itself when it is lost, with backoff, at the next endpoint. Until then messages fail at
// once. The recovery of the client library is not used: it would answer open confirms itself.
package publisher

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Config is what a Publisher needs to know. Where it says so, zero is the default.
type Config struct {
	// Endpoints are the nodes of one cluster, as host:port, at least one. They are tried in turn, beginning anywhere.
	Endpoints []string
	// VHost is the virtual host, as it is: "/" and "" are different ones.
	VHost string
	// Credentials gives the user's name and password for a connection that is about to be made; nil means that the client's
	// certificate is the authentication (SASL EXTERNAL).
	Credentials func() (username, password string, err error)
	// TLS gives the configuration for a connection that is about to be made, and must not change it later; nil means
	// none. Without a ServerName the endpoint's host is used.
	TLS func() (*tls.Config, error)

	Lanes  int // channels; 0: 4
	Window int // messages of a lane that may be unconfirmed; 0: 1000

	ConfirmTimeout time.Duration // for the broker to confirm a message, before its channel is given up; 0: 30 s
	BlockedTimeout time.Duration // a blocked connection is given up after this; 0: 60 s
	ConnectTimeout time.Duration // for one endpoint, until the lanes are open; 0: 10 s
	Heartbeat      time.Duration // whole seconds; a connection that is silent for one and a half is lost; 0: 10 s
	Backoff        Backoff       // between rounds over the endpoints
	FrameMax       int           // in bytes, if the broker does not want less; 0: 131072

	// ConnectionName is shown by the broker's tools.
	ConnectionName string
	// Topology declares or checks exchanges, queues and bindings, on a channel of its own, each time a connection has been
	// made; nil: nothing. An error means that the connection is of no use.
	Topology func(ctx context.Context, ch *amqp.Channel) error
	// MarkRepeat changes a message that is published again within one call of Publish though it may be in its queue already.
	// The headers are a copy. It may add up to 64 bytes; nil: nothing is marked.
	MarkRepeat func(*amqp.Publishing)

	Log *slog.Logger // changes of the connection's state; nil: none
	// Hide takes out of what is logged what a broker should not repeat, such as the password it was given; nil: nothing. The
	// texts of errors are the caller's to hide.
	Hide func(text string) string
}

// Backoff is how long to wait between attempts to connect: a random part of a time that doubles from Min to Max.
type Backoff struct {
	Min, Max time.Duration // 0: 500 ms and 30 s
}

// Publisher is safe for concurrent use. Calls of Publish that run at the same time must not share a key.
type Publisher struct {
	config   Config
	log      *slog.Logger
	frameMax atomic.Int64 // of the last connection
	user     atomic.Pointer[string]

	mu      sync.Mutex
	state   state
	session *session // nil unless connected
	failed  *Error   // why there is none
	calls   sync.WaitGroup
	stop    context.CancelFunc // of the supervisor
	stopped chan struct{}      // the supervisor has ended
}

type state int

const (
	fresh state = iota
	opening
	open
	closed
)

// New returns a Publisher that still has to be opened.
func New(c Config) *Publisher {
	c.Lanes = orDefault(c.Lanes, 4)
	c.Window = orDefault(c.Window, 1000)
	c.ConfirmTimeout = orDefault(c.ConfirmTimeout, 30*time.Second)
	c.BlockedTimeout = orDefault(c.BlockedTimeout, time.Minute)
	c.ConnectTimeout = orDefault(c.ConnectTimeout, 10*time.Second)
	c.Heartbeat = orDefault(c.Heartbeat, 10*time.Second)
	c.Backoff.Min = orDefault(c.Backoff.Min, 500*time.Millisecond)
	c.Backoff.Max = max(orDefault(c.Backoff.Max, 30*time.Second), c.Backoff.Min)
	c.FrameMax = orDefault(c.FrameMax, 131072)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Hide == nil {
		c.Hide = func(text string) string { return text }
	}
	p := &Publisher{config: c, log: c.Log, failed: &Error{Kind: KindConnection, Text: "not connected yet"}}
	p.frameMax.Store(int64(c.FrameMax))
	return p
}

func orDefault[T comparable](value, other T) T {
	var zero T
	if value == zero {
		return other
	}
	return value
}

// Open connects: it tries each endpoint once. After an error nothing is left running, and Open may be called again.
func (p *Publisher) Open(ctx context.Context) error {
	if len(p.config.Endpoints) == 0 {
		return errors.New("connect to RabbitMQ: there is no endpoint")
	}
	p.mu.Lock()
	if p.state != fresh {
		p.mu.Unlock()
		return errors.New("connect to RabbitMQ: opened already")
	}
	p.state = opening
	p.mu.Unlock()

	d := &dialer{p: p, next: rand.IntN(len(p.config.Endpoints))}
	s, err := d.round(ctx)

	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil:
		p.failed = err
		if p.state == opening {
			p.state = fresh
		}
		return err
	case p.state == closed:
		s.end(errClosed)
		s.wait()
		return errClosed
	}
	background, stop := context.WithCancel(context.Background())
	p.state, p.session, p.stop, p.stopped = open, s, stop, make(chan struct{})
	go p.supervise(background, d, s)
	return nil
}

// Close waits for calls of Publish, which end by their own contexts, and closes the connection, both within ctx. It may be
// called more than once.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	was := p.state
	p.state = closed
	p.mu.Unlock()
	if was != open {
		return nil
	}
	idle := make(chan struct{})
	go func() { // until the last call has ended
		p.calls.Wait()
		close(idle)
	}()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = fmt.Errorf("close the connection to RabbitMQ: messages are still being published: %w", ctx.Err())
	}
	p.mu.Lock()
	s := p.session
	p.mu.Unlock()
	if s != nil && err == nil {
		s.farewell(ctx)
	}
	p.stop()
	<-p.stopped
	<-idle
	return err
}

// Health asks whether a message would be confirmed now: the broker has to answer one that can be routed nowhere.
func (p *Publisher) Health(ctx context.Context) error {
	s, err := p.current()
	if err != nil {
		return err
	}
	defer p.calls.Done()
	if err := s.answers(ctx); err != nil {
		return fmt.Errorf("ask RabbitMQ to confirm a message: %w", err)
	}
	return nil
}

// Publish sends the messages, and answers with one Result for each, in their order. Messages of a key are published in
// that order; behind one that was not delivered the key's others are not attempted.
//
// It answers before ctx's deadline. What is published by then and not confirmed is Unknown; nothing of the call is
// published later. The messages belong to the caller and are not used after Publish has returned.
func (p *Publisher) Publish(ctx context.Context, messages []*Message) []Result {
	results := make([]Result, len(messages))
	if len(messages) == 0 {
		return results
	}
	s, err := p.current()
	if err == nil && ctx.Err() != nil {
		p.calls.Done()
		err = &Error{Kind: KindNotAttempted, Text: "the call's time ran out before the message was sent"}
	}
	if err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	defer p.calls.Done()
	c := newCall(messages, results)
	s.accept(c, p.Check)
	c.wait(ctx, s)
	return c.taken()
}

// current returns the connection of now; its use must end with calls.Done, unless there is an error.
func (p *Publisher) current() (*session, *Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.state == closed:
		return nil, errClosed
	case p.session == nil:
		return nil, p.failed
	}
	p.calls.Add(1)
	return p.session, nil
}
