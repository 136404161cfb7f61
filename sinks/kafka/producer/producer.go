package producer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// ErrClosed is the cause of an Error before Open and after Close.
var ErrClosed = errors.New("the producer is not open")

// Producer writes messages to one Kafka cluster. Its methods may be called concurrently.
type Producer struct {
	cfg   Config
	seeds []*broker

	callers    context.Context // ends when running calls have to
	endCallers context.CancelCauseFunc
	ctx        context.Context // of the producer's own work; ends after the calls
	cancel     context.CancelFunc
	calls      sync.WaitGroup
	work       sync.WaitGroup // of the producer's own goroutines; grows only while calls run

	buffers  sync.Pool
	encoders chan struct{} // a place for each that may compress at the same time
	ids      chan struct{} // the place of the one lane that may ask for a producer id

	mu         sync.Mutex
	open       bool // Open has succeeded
	closed     bool
	topics     map[string]*topic
	brokers    map[int32]*broker
	controller int32
	generation uint64    // counts the cluster's answers to what it consists of
	refreshed  time.Time // when it last answered
	down       time.Time // since when no broker answers; zero while one does
	flight     *flight
	numbered   bool // batches are numbered
}

// New checks the configuration. It does no I/O.
func New(cfg Config) (*Producer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("kafka producer: %w", err)
	}
	p := &Producer{
		cfg: cfg, encoders: make(chan struct{}, runtime.GOMAXPROCS(0)), ids: make(chan struct{}, 1),
		topics: map[string]*topic{}, brokers: map[int32]*broker{},
	}
	p.callers, p.endCallers = context.WithCancelCause(context.Background())
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for _, addr := range cfg.Brokers {
		p.seeds = append(p.seeds, &broker{p: p, addr: addr})
	}
	return p, nil
}

// Open asks the cluster who is in it and, if the producer is idempotent, for a producer id. After an error it may be
// called again. The error is an *Error.
func (p *Producer) Open(ctx context.Context) error {
	if err := p.connect(ctx); err != nil {
		return err
	}
	return nil
}

func (p *Producer) connect(ctx context.Context) *Error {
	ctx, leave := p.enter(ctx, false)
	if leave == nil {
		return closedError()
	}
	defer leave()
	if err := p.refresh(ctx, p.seen()); err != nil {
		return err
	}
	numbered := p.cfg.Idempotent
	if numbered {
		// Each lane asks for an id of its own; this one shows that it will get it.
		switch err := p.tryProducerID(ctx); {
		case err == nil:
		case refusesIDs(err.Code):
			p.cfg.Log.WarnContext(ctx, "writing without idempotence: a batch that has to be sent again may be written twice", "reason", err.Text)
			numbered = false
		default:
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.open {
		p.open, p.numbered = true, numbered
	}
	return nil
}

// tryProducerID finds out whether brokers give ids to this client. One that has just started has none yet.
func (p *Producer) tryProducerID(ctx context.Context) *Error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.RequestTimeout)
	defer cancel()
	pause := backoff{min: p.cfg.BackoffMin, max: p.cfg.BackoffMax}
	for {
		_, err := p.initProducerID(ctx)
		if err == nil || err.Class != Retry || !sleep(ctx, pause.next()) {
			return err
		}
	}
}

// Idempotent reports whether batches are numbered. It is false before Open.
func (p *Producer) Idempotent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.numbered
}

// enter lets a call in. Its context is ctx until Close cannot wait any longer; leave is its end. Leave is nil if the
// producer is closed, or must be open and is not.
func (p *Producer) enter(ctx context.Context, opened bool) (_ context.Context, leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || opened && !p.open {
		return ctx, nil
	}
	p.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(p.callers, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		p.calls.Done()
	}
}

// seen is the cluster's latest answer, for refresh.
func (p *Producer) seen() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.generation
}

func closedError() *Error {
	return &Error{Class: Sink, Text: "the producer is not open", Err: ErrClosed}
}

// Health asks a broker who is in the cluster. The error is an *Error.
func (p *Producer) Health(ctx context.Context) error {
	ctx, leave := p.enter(ctx, true)
	if leave == nil {
		return closedError()
	}
	defer leave()
	if err := p.refresh(ctx, p.seen()); err != nil {
		return err
	}
	return nil
}

// Close waits for running calls until ctx is done, then ends them; what they had on its way they report as Unknown. It
// frees everything. It may be called more than once.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		p.calls.Wait()
		close(ended)
	}()
	var err error
	select {
	case <-ended:
	case <-ctx.Done():
		err = fmt.Errorf("close the Kafka producer: running calls were cut short: %w", ctx.Err())
	}
	p.endCallers(ErrClosed)
	<-ended
	p.cancel()
	p.work.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.brokers {
		b.close()
	}
	for _, b := range p.seeds {
		b.close()
	}
	return err
}

// buffer is an empty one, with room for so many bytes.
func (p *Producer) buffer(room int) []byte {
	if b, ok := p.buffers.Get().(*[]byte); ok && cap(*b) >= room {
		return (*b)[:0]
	}
	return make([]byte, 0, room)
}

func (p *Producer) recycle(b []byte) {
	if b != nil {
		p.buffers.Put(&b)
	}
}

// encoder waits for the right to encode a batch, since compression takes much memory. It gives the right's end.
func (p *Producer) encoder() func() {
	p.encoders <- struct{}{}
	return func() { <-p.encoders }
}
