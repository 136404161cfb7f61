package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/lifetime"
	"github.com/connectd/connectd/core/settings"
)

// Sink is a core.Sink.
type Sink struct {
	options Options
	log     *slog.Logger

	mu       sync.Mutex
	composer *composer // nil until Configure succeeded
	life     *lifetime.Of[*courier]
}

var _ core.Sink = (*Sink)(nil)

// New returns a sink that still has to be configured. It logs when the connection is lost and when it is back.
func New(log *slog.Logger, o Options) *Sink {
	return &Sink{options: o, log: log, life: lifetime.New("the rabbitmq sink", (*courier).close)}
}

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
	composer := s.composer
	s.mu.Unlock()
	if composer == nil {
		return errors.New("the rabbitmq sink was opened before it was configured")
	}
	return s.life.Open(func() (*courier, error) {
		c := newCourier(composer, s.log)
		return c, c.open(ctx)
	})
}

// Deliver publishes the batch's records and waits for their confirmations.
func (s *Sink) Deliver(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
	c, leave, err := s.life.Enter(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", core.ErrNotSent, err)
	}
	defer leave()
	return c.deliver(ctx, batch), nil
}

// Health asks whether the server answers now and takes messages.
func (s *Sink) Health(ctx context.Context) error {
	c, leave, err := s.life.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return c.health(ctx)
}

// Close waits for calls that run, and closes the connection.
func (s *Sink) Close(ctx context.Context) error { return s.life.Close(ctx) }
