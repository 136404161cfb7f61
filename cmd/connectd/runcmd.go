package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/connectd/connectd/cmd/connectd/daemon"
)

func runCommand() *command {
	return &command{
		name: "run", short: "run the daemon",
		long: `Runs every connector until SIGTERM or SIGINT, then finishes what is on its way (delivery.drain), gives its
leases back and exits 0. A second signal cuts that short: what was on its way is sent again at the next start,
marked as a possible duplicate. Several daemons may run the same configuration and share the work.

SIGHUP changes nothing yet: changed YAML is applied by a restart.

A problem in a single file stops everything; in a directory it stops only the connector it is about. A connector
whose database or sink is away is tried again and again; /readyz says so.`,
		bind: func(p *program, fs *flag.FlagSet) func(context.Context, []string) error {
			sel := p.configFlag(fs)
			http := fs.String("http", "", "listen on this `ADDR|off` instead of daemon.http")
			return func(ctx context.Context, args []string) error {
				if len(args) > 0 {
					return usagef("run takes no arguments; a configuration: connectd run -c %s", args[0])
				}
				return p.daemon(ctx, sel, *http)
			}
		},
	}
}

// daemon runs the connectors until ctx is done or a signal comes.
func (p *program) daemon(ctx context.Context, sel *selection, http string) error {
	cfg, problems, err := sel.read()
	if err != nil {
		return err
	}
	if len(problems) > 0 && sel.singleFile() {
		return errReported
	}
	release, revision := build()
	d := &daemon.Daemon{
		HTTP: cfg.Daemon.HTTP, Token: cfg.Daemon.Token.Reveal(), ReceiptsToken: cfg.Daemon.ReceiptsToken.Reveal(), Version: release, Revision: revision,
		Log: slog.New(slog.NewTextHandler(p.stderr, nil)),
	}
	if http != "" {
		d.HTTP = http
	}
	for _, c := range cfg.Connectors {
		d.Connectors = append(d.Connectors, startable(cfg.Daemon, c))
	}
	ctx, hurry, stop := onSignals(ctx, d.Log)
	defer stop()
	return d.Run(ctx, hurry)
}

// onSignals returns a context that the first signal ends and a channel that the second one closes. A third one ends
// the process as if nobody had asked for signals. SIGHUP asks for changed YAML to be applied, which is not possible yet:
// that is said and the daemon goes on. A process that was started with it ignored (nohup) does not even hear it.
func onSignals(parent context.Context, log *slog.Logger) (ctx context.Context, hurry <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	hangups := make(chan os.Signal, 1)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(hangups, syscall.SIGHUP)
	}
	second := make(chan struct{})
	ended := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; {
			select {
			case s := <-signals:
				log.Info("signal", "signal", s.String())
				n++
			case <-hangups:
				log.Warn("SIGHUP: this connectd cannot reload its configuration yet and goes on with what it read at its start; " +
					"to apply changes, check them (connectd check) and restart the daemon")
				continue
			case <-ended:
				return
			}
			if n == 1 {
				cancel()
				continue
			}
			signal.Stop(signals)
			close(second)
			return
		}
	}()
	return ctx, second, func() {
		signal.Stop(signals)
		signal.Stop(hangups)
		close(ended)
		<-done
		cancel()
	}
}
