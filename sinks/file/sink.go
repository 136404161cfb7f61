// Package file is the sink that appends records to a file, one line of JSON each, and says delivered when the disk has
// them. It is made for demos, tests and pipelines of other tools.
package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"syscall"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/lifetime"
	"github.com/connectd/connectd/core/settings"
)

// maxReused is the largest buffer kept for the next batch, in bytes.
const maxReused = 16 << 20

// Sink is a core.Sink. It never refuses a record: what can go wrong is always about the file, so every failure has
// core.ScopeSink, and a batch is written whole or not at all.
type Sink struct {
	dir     string    // what a relative path is relative to
	stream  io.Writer // what the path "-" means
	log     *slog.Logger
	buffers sync.Pool // *[]byte

	mu     sync.Mutex
	config *config // nil until Configure succeeded
	life   *lifetime.Of[*writer]
}

var _ core.Sink = (*Sink)(nil)

// New returns a sink that still has to be configured. A relative path is taken from dir; with dir "" it is refused,
// because a sink's process has a working directory that is removed when it ends. The sink logs what it repairs.
func New(log *slog.Logger, dir string) *Sink {
	return &Sink{
		dir: dir, stream: os.Stderr, log: log, buffers: sync.Pool{New: func() any { return new([]byte) }},
		life: lifetime.New("the file sink", (*writer).end),
	}
}

// Describe gives the name, the settings' schema and no limits.
func (s *Sink) Describe(context.Context) (core.Description, error) {
	return core.Description{Name: "file", Version: "1", Schema: settings.Schema(config{})}, nil
}

// Configure checks the settings without a look at the disk.
func (s *Sink) Configure(_ context.Context, data []byte) ([]core.Diagnostic, error) {
	c, diagnostics := parse(data, s.dir)
	if len(diagnostics) == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.config = &c
	}
	return diagnostics, nil
}

// Open opens the file, or creates it, and locks it.
func (s *Sink) Open(ctx context.Context) error {
	s.mu.Lock()
	config := s.config
	s.mu.Unlock()
	if config == nil {
		return errors.New("the file sink was opened before it was configured")
	}
	return s.life.Open(func() (*writer, error) {
		w := newWriter(*config, s.stream, s.log)
		go w.run() // until end
		if err := probe(ctx, w); err != nil {
			_ = w.end(ctx) // there is nothing to flush
			return nil, err
		}
		return w, nil
	})
}

// Health asks whether the file can be opened, is still ours, and whether the disk answers.
func (s *Sink) Health(ctx context.Context) error {
	w, leave, err := s.life.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return probe(ctx, w)
}

func probe(ctx context.Context, w *writer) error {
	r, err := w.do(ctx, nil, func() {})
	if err != nil {
		return err
	}
	return r.err
}

// Close waits for the writes that run and closes the file.
func (s *Sink) Close(ctx context.Context) error { return s.life.Close(ctx) }

// Deliver appends the batch, waits until it is durable, and answers the same for all of its records.
func (s *Sink) Deliver(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
	w, leave, err := s.life.Enter(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", core.ErrNotSent, err)
	}
	defer leave()
	if len(batch) == 0 {
		return nil, nil
	}
	buffer := s.buffers.Get().(*[]byte)
	lines := (*buffer)[:0]
	for i := range batch {
		lines = appendLine(lines, &batch[i])
	}
	r, err := w.do(ctx, lines, func() {
		if cap(lines) <= maxReused {
			*buffer = lines
			s.buffers.Put(buffer)
		}
	})
	if err != nil {
		return nil, err
	}
	if r.err != nil {
		return failed(batch, r), nil
	}
	outcomes := make([]core.Outcome, len(batch))
	for i := range outcomes {
		outcomes[i].Kind = core.Delivered
	}
	return outcomes, nil
}

// failed answers for a batch of which nothing counts. If nothing of it can be in the file, the later records of a key
// were not attempted.
func failed(batch []core.Record, r result) []core.Outcome {
	outcome := core.Outcome{Kind: core.Retryable, Scope: core.ScopeSink, Unknown: r.stayed, Code: r.code, Message: r.err.Error()}
	if errors.Is(r.err, syscall.ENOSPC) || errors.Is(r.err, syscall.EDQUOT) {
		outcome.Code = "disk_full"
	}
	outcomes := make([]core.Outcome, len(batch))
	seen := map[string]bool{}
	for i := range batch {
		outcomes[i] = outcome
		if !batch[i].Keyed || r.stayed {
			continue
		}
		if seen[batch[i].Key] {
			outcomes[i] = core.Outcome{Kind: core.NotAttempted, Scope: core.ScopeSink, Code: outcome.Code, Message: outcome.Message}
		}
		seen[batch[i].Key] = true
	}
	return outcomes
}
