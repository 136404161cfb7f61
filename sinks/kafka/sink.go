// Package kafka is the sink that writes records to Apache Kafka: each with its own answer from the brokers, in order per
// key, and once where the brokers can tell a repetition from a new message.
//
// What a record becomes is for the composer (compose.go) to say, how messages reach the brokers for package producer, and
// what became of each for the judge. One Produce has all messages of a batch whose order the producer keeps by itself:
// those of one key that go to one partition. A key whose records go to several partitions is sent in as many steps.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/lifetime"
	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/sinks/kafka/producer"
)

// Sink is a core.Sink.
type Sink struct {
	options Options
	log     *slog.Logger

	mu       sync.Mutex
	config   *config   // nil until Configure succeeded
	composer *composer // of config
	life     *lifetime.Of[*session]
}

var _ core.Sink = (*Sink)(nil)

// session is an open sink.
type session struct {
	courier
	producer *producer.Producer
	config   *config
}

// New returns a sink that still has to be configured.
func New(log *slog.Logger, o Options) *Sink {
	return &Sink{options: o, log: log, life: lifetime.New("the kafka sink", (*session).close)}
}

// Describe gives the settings' schema, and how the sink is best called: with large batches, of which the producer makes
// one for each partition, and with as many as an outbox table has partitions, since in a trickle each has a small one.
func (s *Sink) Describe(context.Context) (core.Description, error) {
	return core.Description{
		Name: "kafka", Version: s.options.Version, Schema: settings.Schema(config{}),
		Prefers: core.Preferences{MaxRecords: 1000, InFlight: 16},
	}, nil
}

// Configure checks the settings. It opens no file and no connection.
func (s *Sink) Configure(_ context.Context, data []byte) ([]core.Diagnostic, error) {
	c, made, diagnostics := parse(data, s.options)
	if settings.Problems(diagnostics).Refused() {
		return diagnostics, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config, s.composer = c, made
	return diagnostics, nil
}

// Open connects to the brokers.
func (s *Sink) Open(ctx context.Context) error {
	s.mu.Lock()
	config, composer := s.config, s.composer
	s.mu.Unlock()
	if config == nil {
		return errors.New("the kafka sink was opened before it was configured")
	}
	return s.life.Open(func() (*session, error) { return open(ctx, config, composer, s.log) })
}

func open(ctx context.Context, c *config, made *composer, log *slog.Logger) (*session, error) {
	fixed := made.fixed != ""
	p, err := producer.New(c.producer(fixed, log))
	if err != nil {
		return nil, fmt.Errorf("open the kafka sink: %w", err)
	}
	if err := p.Open(ctx); err != nil {
		closeFailed(ctx, p)
		return nil, fmt.Errorf("open the kafka sink: %s", c.hide(err.Error()))
	}
	s := &session{
		courier:  courier{composer: made, judge: &judge{fixed: fixed, hide: c.hide}, wire: p},
		producer: p, config: c,
	}
	s.advise(ctx, log)
	return s, nil
}

// closeFailed frees what a producer that could not be opened holds.
func closeFailed(ctx context.Context, p *producer.Producer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), producer.DefaultDialTimeout)
	defer cancel()
	_ = p.Close(ctx) // the failure to open is what is reported
}

// Deliver sends the batch's records.
func (s *Sink) Deliver(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
	o, leave, err := s.life.Enter(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", core.ErrNotSent, err)
	}
	defer leave()
	return o.deliver(ctx, batch), nil
}

// Health asks whether a broker answers, and when all records go to one topic, whether that can be written to.
func (s *Sink) Health(ctx context.Context) error {
	o, leave, err := s.life.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := o.healthy(ctx); err != nil {
		return errors.New(o.config.hide(err.Error()))
	}
	return nil
}

// Close waits for calls that run, ends them when ctx does, and closes the connections.
func (s *Sink) Close(ctx context.Context) error { return s.life.Close(ctx) }

func (s *session) close(ctx context.Context) error {
	if err := s.producer.Close(ctx); err != nil {
		return errors.New(s.config.hide(err.Error()))
	}
	return nil
}
