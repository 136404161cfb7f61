package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/settings"
)

// Sink is a core.Sink.
type Sink struct {
	options Options
	log     *slog.Logger

	mu       sync.Mutex
	composer *composer // nil until Configure succeeded
	courier  *courier  // nil unless open
	running  sync.WaitGroup
}

var _ core.Sink = (*Sink)(nil)

// New returns a sink that still has to be configured. It logs when the connection is lost and when it is back.
func New(log *slog.Logger, o Options) *Sink { return &Sink{options: o, log: log} }

// Describe gives the settings' schema.
func (s *Sink) Describe(context.Context) (core.Description, error) {
	return core.Description{Name: "rabbitmq", Version: s.options.Version, Schema: settings.Schema(config{})}, nil
}

// Configure checks the settings. It opens no file and no connection.
func (s *Sink) Configure(_ context.Context, data []byte) ([]core.Diagnostic, error) {
	_, composer, diagnostics := parse(data, s.options)
	if settings.Problems(diagnostics).Refused() {
		return diagnostics, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.composer = composer
	return diagnostics, nil
}

// Open connects to the first node that lets it in, and makes or looks for what the setting declare says. Later the
// connection is renewed by itself.
func (s *Sink) Open(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.composer == nil:
		return errors.New("the rabbitmq sink was opened before it was configured")
	case s.courier != nil:
		return errors.New("the rabbitmq sink is open already")
	}
	c := newCourier(s.composer, s.log)
	if err := c.open(ctx); err != nil {
		return err
	}
	s.courier = c
	return nil
}

// Deliver publishes the batch's records and waits for their confirmations.
func (s *Sink) Deliver(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
	c := s.enter()
	if c == nil {
		return nil, fmt.Errorf("the rabbitmq sink is not open: %w", core.ErrNotSent)
	}
	defer s.running.Done()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", core.ErrNotSent, err)
	}
	return c.deliver(ctx, batch), nil
}

// enter returns the courier, whose use must end with running.Done, or nil.
func (s *Sink) enter() *courier {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.courier != nil {
		s.running.Add(1)
	}
	return s.courier
}

// Health asks whether the server answers now and takes messages.
func (s *Sink) Health(ctx context.Context) error {
	c := s.enter()
	if c == nil {
		return errors.New("the rabbitmq sink is not open")
	}
	defer s.running.Done()
	return c.health(ctx)
}

// Close waits for calls that run, and closes the connection.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	c := s.courier
	s.courier = nil
	s.mu.Unlock()
	if c == nil {
		return nil
	}
	idle := make(chan struct{})
	go func() { // until the last call has ended, each by its own context
		s.running.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	if err := c.publisher.Close(ctx); err != nil {
		return fmt.Errorf("close the rabbitmq sink: %w", err)
	}
	return nil
}
