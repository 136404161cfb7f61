package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/config"
	"github.com/connectd/connectd/plugins/host"
)

const (
	sinkOpenLimit  = 15 * time.Second // beside the time its process may take to start
	sinkAskLimit   = 5 * time.Second
	sinkCloseLimit = 5 * time.Second
	sinkLookAgain  = 50 * time.Millisecond
)

// examineSink asks the sink's program about its settings, and opens the sink if no daemon of this machine has. No record is sent.
func examineSink(ctx context.Context, d *core.Diagnosis, daemon config.Daemon, c config.Connector) {
	spec, err := sinkSpec(daemon, c)
	if err != nil {
		d.Fault("program", err.Error(), "put the sink's program into daemon.plugin_dir, or correct sink.plugin")
		return
	}
	description, diagnostics, err := host.Check(ctx, spec, slog.New(slog.DiscardHandler))
	if err != nil {
		d.Fault("program", err.Error(), "run `connectd plugins verify`; the sink's program is "+spec.Path)
		return
	}
	d.Fine("program", "sink %s, version %s", c.Sink.Plugin, description.Version)
	refused := false
	for _, diagnostic := range diagnostics {
		if diagnostic.Warning {
			d.Warn("settings", placed(c, diagnostic), "")
		} else {
			refused = true
			d.Fault("settings", placed(c, diagnostic), "correct it, and try `connectd check`")
		}
	}
	if refused {
		return
	}
	d.Fine("settings", "the sink takes its settings")
	if info, runs := here(d, c); runs {
		if info.Plugin.State == string(host.Running) {
			d.Fine("sink", "it is open in the daemon with pid %d, in process %d", info.PID, info.Plugin.PID)
		} else {
			d.Fault("sink", fmt.Sprintf("in the daemon with pid %d it is %s %s", info.PID, info.Plugin.State, info.Plugin.LastExit), "look into the daemon's log")
		}
		if g := info.Engine; g.Gate != "" && g.Gate != "open" {
			d.Warn("sink", fmt.Sprintf("the daemon with pid %d does not send now: its gate is %s: %s", info.PID, g.Gate, g.GateReason), "mend what the reason names; the daemon tries again by itself")
		}
		return
	}
	openSink(ctx, d, spec)
}

// openSink opens the sink as a daemon would, asks for its health, and closes it.
func openSink(ctx context.Context, d *core.Diagnosis, spec host.Spec) {
	s := host.Start(spec, slog.New(slog.DiscardHandler))
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), sinkCloseLimit)
		defer cancel()
		if err := s.Close(closing); err != nil {
			d.Warn("sink", "it does not close: "+err.Error(), "")
		}
	}()
	opening, cancel := context.WithTimeout(ctx, spec.StartTimeout+sinkOpenLimit)
	defer cancel()
	if err := firstOpen(opening, s); err != nil {
		d.Fault("sink", "it cannot be opened: "+err.Error(), "mend what the reason names; a daemon tries again and again, and sends nothing until then")
		return
	}
	asking, cancel := context.WithTimeout(ctx, sinkAskLimit)
	defer cancel()
	err := s.Health(asking)
	switch {
	case errors.Is(err, core.ErrNoHealth):
		d.Fine("sink", "it can be opened; it cannot tell without sending whether its destination answers")
	case err != nil:
		d.Fault("sink", "it can be opened, and its destination cannot be reached: "+err.Error(), "mend what the reason names")
	default:
		d.Fine("sink", "it can be opened and reaches its destination")
	}
}

// firstOpen waits until the sink is open, or has failed to open for the first time: the sink itself would go on trying.
func firstOpen(ctx context.Context, s *host.Sink) error {
	ready := make(chan error, 1)
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { ready <- s.Ready(waiting) }()
	tick := time.NewTicker(sinkLookAgain)
	defer tick.Stop()
	for {
		select {
		case err := <-ready:
			return err
		case <-tick.C:
			if st := s.Status(); st.Reason != "" && (st.State == host.Opening || st.State == host.Backoff) {
				cancel()
				<-ready
				return errors.New(st.Reason)
			}
		}
	}
}
