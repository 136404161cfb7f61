package host

import (
	"context"
	"log/slog"

	"github.com/connectd/connectd/core"
)

// Check starts the process, asks what it is and, if there are settings, what it thinks of them, and stops it again.
// Nothing is opened. The diagnostics are the sink's; an error means that it could not be asked.
func Check(ctx context.Context, spec Spec, log *slog.Logger) (core.Description, []core.Diagnostic, error) {
	spawn := newSpawner()
	defer spawn.close()
	log = log.With("connector", spec.Connector, "plugin", spec.Plugin)
	p, err := startProcess(ctx, &spec, spawn, log, nil)
	if err != nil {
		return core.Description{}, nil, err
	}
	defer p.stop(defaultTiming().end)
	if spec.Settings == nil {
		return p.description, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, spec.startTimeout())
	defer cancel()
	diagnostics, err := p.sink.Check(ctx, spec.Settings)
	if err != nil {
		return p.description, nil, p.explain(ctx, err)
	}
	return p.description, diagnostics, nil
}
