package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/connectd/connectd/cmd/connectd/daemon"
	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/config"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/plugins"
	"github.com/connectd/connectd/plugins/host"
	"github.com/connectd/connectd/sinks/file"
	"github.com/connectd/connectd/sinks/kafka"
	"github.com/connectd/connectd/sinks/rabbitmq"
	"github.com/connectd/connectd/sinks/webhook"
)

// bundled are the sinks that this binary serves itself, as a process of its own. dir is what relative paths in their
// settings are relative to.
func bundled() map[string]func(log *slog.Logger, dir string) core.Sink {
	return map[string]func(*slog.Logger, string) core.Sink{
		"file": func(log *slog.Logger, dir string) core.Sink { return file.New(log, dir) },
		"kafka": func(log *slog.Logger, dir string) core.Sink {
			release, _ := build()
			return kafka.New(log, kafka.Options{Connector: plugins.Connector(), Dir: dir, Version: release})
		},
		"rabbitmq": func(log *slog.Logger, dir string) core.Sink {
			release, _ := build()
			return rabbitmq.New(log, rabbitmq.Options{Connector: plugins.Connector(), Dir: dir, Version: release})
		},
		"webhook": func(log *slog.Logger, dir string) core.Sink {
			release, _ := build()
			return webhook.New(log, webhook.Options{Connector: plugins.Connector(), Dir: dir, Version: release})
		},
	}
}

// place names a connector's table for people, without secrets.
func place(c config.Connector) string {
	if c.Source.Path != "" {
		return c.Source.Plugin + " " + c.Source.Path + " " + c.Source.Table
	}
	return c.Source.Plugin + " " + c.Source.Table
}

// policy is a connector's delivery section in the engine's terms.
func policy(c config.Connector) engine.Policy {
	d := c.Delivery
	return engine.Policy{
		Ordered:    d.Ordering != "none",
		MaxRecords: d.Batch.MaxRecords, MaxBytes: int64(d.Batch.MaxBytes), InFlight: d.InFlight,
		Timeout: time.Duration(d.Timeout), Lease: time.Duration(d.Lease), Drain: time.Duration(d.Drain),
		PollMin: time.Duration(c.Source.Poll.Min), PollMax: time.Duration(c.Source.Poll.Max),
		Retry: engine.Retry{
			Initial: time.Duration(d.Retry.Initial), Max: time.Duration(d.Retry.Max),
			GiveUpAfter: time.Duration(d.Retry.GiveUpAfter), MaxAttempts: d.Retry.MaxAttempts,
		},
		BlockOnDead: d.OnDead == "block", HoldUncertain: d.OnUncertain == "hold",
	}
}

// sinkProgram says which program serves a sink: this one for a bundled sink, else one in the plugin directory. dir is
// the daemon's working directory: the process has one of its own, so no path may be relative.
func sinkProgram(dir, pluginDir, plugin string) (path string, args []string, err error) {
	if _, ok := bundled()[plugin]; ok {
		if path, err = os.Executable(); err != nil {
			return "", nil, fmt.Errorf("find this program: %w", err)
		}
		return path, []string{"serve-sink", "--dir", dir, plugin}, nil
	}
	path, err = host.Find(absolute(dir, pluginDir), plugin)
	return path, nil, err
}

// sinkSpec says how a connector's sink is started.
func sinkSpec(d config.Daemon, c config.Connector) (host.Spec, error) {
	dir, err := os.Getwd()
	if err != nil {
		return host.Spec{}, fmt.Errorf("find the working directory: %w", err)
	}
	path, args, err := sinkProgram(dir, d.PluginDir, c.Sink.Plugin)
	if err != nil {
		return host.Spec{}, err
	}
	return host.Spec{
		Connector: c.Name, Plugin: c.Sink.Plugin, Path: path, Args: args, SHA256: c.Process.SHA256, Env: c.Process.Env,
		StartTimeout: time.Duration(c.Process.StartTimeout), RuntimeDir: d.RuntimeDir, Settings: c.Sink.Settings,
		StandBy: time.Duration(c.Delivery.Lease) / 3,
	}, nil
}

// absolute makes a path that is relative to dir absolute; "" stays.
func absolute(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// retained is a connector's retention section in the terms of a source.
func retained(c config.Connector) core.Retention {
	r := c.Retention
	duration := func(k config.Keep) time.Duration {
		if k.Forever {
			return core.Forever
		}
		return k.For
	}
	return core.Retention{
		Published: duration(r.Published), RequireReceipt: r.RequireReceipt, Dead: duration(r.Dead), Skipped: duration(r.Skipped), Receipts: duration(r.Receipts),
	}
}

// audited is what a connector's books must agree with.
func audited(c config.Connector) core.AuditRequest {
	a := c.Audit
	req := core.AuditRequest{ReceiptWithin: time.Duration(a.ReceiptWithin), Lease: time.Duration(c.Delivery.Lease), Timeout: time.Duration(a.Timeout)}
	switch {
	case a.ReceiptWithin == 0 && c.Retention.RequireReceipt:
		req.ReceiptWithin = 24 * time.Hour
	case a.ReceiptWithin == 0:
		req.ReceiptWithin = core.Forever
	}
	if e := a.Events; e != nil {
		req.Events = &core.Events{Table: e.Table, Key: e.Key, Where: e.Where, Command: e.Command, Join: e.Join}
	}
	return req
}

// startable is a connector as the daemon runs it.
func startable(d config.Daemon, c config.Connector) daemon.Connector {
	return daemon.Connector{
		Name:      c.Name,
		Policy:    policy(c),
		Retention: retained(c),
		Audit:     audited(c), AuditEvery: time.Duration(c.Audit.Every),
		Open: func(ctx context.Context, log *slog.Logger) (daemon.Outbox, error) {
			return openSource(ctx, c, log.With("connector", c.Name))
		},
		OpenToAudit: func(ctx context.Context, log *slog.Logger) (daemon.Outbox, error) {
			return openToAudit(ctx, c, log.With("connector", c.Name))
		},
		Start: func(log *slog.Logger) (daemon.Plugin, error) {
			spec, err := sinkSpec(d, c)
			if err != nil {
				return nil, err
			}
			return &process{host.Start(spec, log), c}, nil
		},
	}
}

// process is a supervised sink as the daemon sees it.
type process struct {
	*host.Sink
	connector config.Connector
}

// Ready waits until the sink is open. When it refuses its settings, the error gives the place of each in the YAML.
func (p *process) Ready(ctx context.Context) error {
	err := p.Sink.Ready(ctx)
	var refused *host.RefusedError
	if !errors.As(err, &refused) {
		return err
	}
	text := make([]string, len(refused.Diagnostics))
	for i, d := range refused.Diagnostics {
		text[i] = placed(p.connector, d)
	}
	return errors.New(strings.Join(text, "\n"))
}

// placed is a sink's diagnostic with its place in the YAML.
func placed(c config.Connector, d core.Diagnostic) string {
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	setting := "sink" + unescape.Replace(strings.ReplaceAll(d.Pointer, "/", "."))
	return fmt.Sprintf("%s: connector %q: %s %s", c.Locate(d.Pointer), c.Name, setting, d.Message)
}

// Process says how the sink's process is.
func (p *process) Process() daemon.PluginHealth {
	s := p.Status()
	return daemon.PluginHealth{
		State: string(s.State), Reason: s.Reason, Up: s.State == host.Running, PID: s.PID, Uptime: s.Uptime, Restarts: s.Restarts,
		Version: s.Version, LastExit: s.LastExit,
	}
}
