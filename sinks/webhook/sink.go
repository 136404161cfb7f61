// Package webhook is the sink that sends records as HTTP requests: signed as Standard Webhooks has it, in order per key,
// to one receiver or to as many as the rows name.
package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/lifetime"
	"github.com/connectd/connectd/core/settings"
)

// Sink is a core.Sink.
type Sink struct {
	options Options
	log     *slog.Logger

	mu     sync.Mutex
	config *config // nil until Configure succeeded
	life   *lifetime.Of[*courier]
}

var _ core.Sink = (*Sink)(nil)

// New returns a sink that still has to be configured. It logs when one of many endpoints fails and when it is back.
func New(log *slog.Logger, o Options) *Sink {
	return &Sink{options: o, log: log, life: lifetime.New("the webhook sink", (*courier).close)}
}

// Describe gives the settings' schema, and after Configure how the sink is best called: with one record a call, so that a
// slow answer holds up nothing else, and with as many calls as may be of use.
func (s *Sink) Describe(context.Context) (core.Description, error) {
	d := core.Description{Name: "webhook", Version: s.options.Version, Schema: settings.Schema(config{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.config != nil {
		d.Prefers = preferences(s.config)
	}
	return d, nil
}

// rateReserve is how long calls may wait for the rate limit in the sink, so that they do not run out of time there.
const rateReserve = 5 * time.Second

func preferences(c *config) core.Preferences {
	p := core.Preferences{MaxRecords: 1, InFlight: c.perHost(false)}
	if c.Batch != nil {
		p.MaxRecords = c.Batch.MaxRows
	}
	switch {
	case c.hostVaries():
		p.InFlight = 2 * c.Concurrency // half of them may stand aside
	case c.RateLimit != nil:
		p.InFlight = min(p.InFlight, max(1, int(math.Ceil(c.RateLimit.Rate.perSecond()*rateReserve.Seconds()))))
	}
	return p
}

// Configure checks the settings. It opens no file and no connection.
func (s *Sink) Configure(_ context.Context, data []byte) ([]core.Diagnostic, error) {
	c, diagnostics := parse(data, s.options)
	if settings.Problems(diagnostics).Refused() {
		return diagnostics, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = &c
	return diagnostics, nil
}

// Open reads the files that the settings name. It does not connect: whether the receiver answers is the first request's
// matter, or Health's.
func (s *Sink) Open(context.Context) error {
	s.mu.Lock()
	config := s.config
	s.mu.Unlock()
	if config == nil {
		return errors.New("the webhook sink was opened before it was configured")
	}
	return s.life.Open(func() (*courier, error) {
		c, err := newCourier(config, s.options, s.log)
		if err != nil {
			return nil, fmt.Errorf("open the webhook sink: %w", err)
		}
		return c, nil
	})
}

// Deliver sends the batch's records.
func (s *Sink) Deliver(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
	c, leave, err := s.life.Enter(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", core.ErrNotSent, err)
	}
	defer leave()
	return c.deliver(ctx, batch), nil
}

// Health asks whether the one receiver can be connected to. When the host depends on the row there is nobody to ask.
func (s *Sink) Health(ctx context.Context) error {
	c, leave, err := s.life.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	to := c.composer.fixed()
	if to == nil {
		return fmt.Errorf("the host depends on the row: %w", core.ErrNoHealth)
	}
	if err := c.client.Probe(ctx, to); err != nil {
		return fmt.Errorf("connect to the receiver: %w", err)
	}
	return nil
}

// Close waits for calls that run, and closes the connections.
func (s *Sink) Close(ctx context.Context) error { return s.life.Close(ctx) }
