package plugins_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/plugins"
)

// logSink writes records to the daemon's log.
type logSink struct {
	settings struct {
		Greeting string `json:"greeting"`
	}
}

func (s *logSink) Describe(context.Context) (core.Description, error) {
	return core.Description{Name: "log", Version: "1.0.0",
		Schema: []byte(`{"type":"object","properties":{"greeting":{"type":"string"}},"required":["greeting"]}`)}, nil
}

func (s *logSink) Configure(_ context.Context, settings []byte) ([]core.Diagnostic, error) {
	if err := json.Unmarshal(settings, &s.settings); err != nil {
		return []core.Diagnostic{{Message: err.Error()}}, nil
	}
	if s.settings.Greeting == "" {
		return []core.Diagnostic{{Pointer: "/greeting", Message: "must not be empty"}}, nil
	}
	return nil, nil
}

func (s *logSink) Open(context.Context) error   { return nil }
func (s *logSink) Health(context.Context) error { return nil }
func (s *logSink) Close(context.Context) error  { return nil }

func (s *logSink) Deliver(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
	outcomes := make([]core.Outcome, len(batch))
	for i := range batch {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			outcomes[i].Kind = core.NotAttempted
			continue
		}
		slog.Info(s.settings.Greeting, "id", batch[i].ID, "again", batch[i].PossibleDuplicate())
		outcomes[i].Kind = core.Delivered
	}
	return outcomes, nil
}

// The whole main of a sink.
func ExampleServe() {
	plugins.Serve(&logSink{})
}
