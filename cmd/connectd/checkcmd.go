package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"sync"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/config"
	"github.com/connectd/connectd/plugins/host"
)

func checkCommand() *command {
	return &command{
		name: "check", short: "validate the configuration, sinks' settings included",
		long: "Reads the files and asks each sink's program about its settings. It connects to nothing: no database and no\n" +
			"destination is touched. Every problem is shown with its file, line and column.",
		bind: func(p *program, fs *flag.FlagSet) func(context.Context, []string) error {
			sel := p.configFlag(fs)
			return func(ctx context.Context, args []string) error {
				if len(args) > 0 {
					return usagef("check takes no arguments; a configuration: connectd check -c %s", args[0])
				}
				return p.check(ctx, sel)
			}
		},
	}
}

// verdict is what was found about one connector.
type verdict struct {
	problems, warnings []string
	version            string
}

func (p *program) check(ctx context.Context, sel *selection) error {
	cfg, problems, err := sel.read()
	if err != nil {
		return err
	}
	bad := len(problems) > 0
	verdicts := make([]verdict, len(cfg.Connectors))
	slots := make(chan struct{}, 4)
	var wg sync.WaitGroup
	for i, c := range cfg.Connectors {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			verdicts[i] = checkConnector(ctx, cfg.Daemon, c)
		})
	}
	wg.Wait()
	for i, c := range cfg.Connectors {
		v := verdicts[i]
		for _, text := range v.warnings {
			fmt.Fprintf(p.stderr, "connectd: warning: %s\n", text)
		}
		for _, text := range v.problems {
			fmt.Fprintf(p.stderr, "connectd: %s\n", text)
		}
		if len(v.problems) > 0 {
			bad = true
			continue
		}
		sink := c.Sink.Plugin
		if v.version != "" {
			sink += ", version " + line(v.version, 64)
		}
		fmt.Fprintf(p.stdout, "%s: ok (%s to %s)\n", c.Name, place(c), sink)
	}
	if bad {
		return errReported
	}
	return nil
}

// checkConnector asks the engine about the delivery section and the sink's program about its settings.
func checkConnector(ctx context.Context, d config.Daemon, c config.Connector) verdict {
	var v verdict
	if err := policy(c).Validate(); err != nil {
		v.problems = append(v.problems, fmt.Sprintf("%s: connectors.%s.delivery: %v", c.Pos, c.Name, err))
	}
	description, diagnostics, err := askSink(ctx, d, c)
	if err != nil {
		v.problems = append(v.problems, fmt.Sprintf("%s: sink: %v", c.Locate(""), err))
	}
	v.version = description.Version
	for _, diagnostic := range diagnostics {
		text := placed(c, diagnostic)
		if diagnostic.Warning {
			v.warnings = append(v.warnings, text)
		} else {
			v.problems = append(v.problems, text)
		}
	}
	return v
}

// askSink starts the sink's program and asks it about its settings.
func askSink(ctx context.Context, d config.Daemon, c config.Connector) (core.Description, []core.Diagnostic, error) {
	spec, err := sinkSpec(d, c)
	if err != nil {
		return core.Description{}, nil, err
	}
	return host.Check(ctx, spec, slog.New(slog.DiscardHandler))
}
