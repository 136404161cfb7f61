package main

import (
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSignals: a hangup ends the daemon like SIGTERM, but not one that was started to ignore it (nohup).
func TestSignals(t *testing.T) {
	for _, c := range []struct {
		name    string
		ignored bool
		first   string
	}{{"hangup", false, "hangup"}, {"nohup", true, "terminated"}} {
		t.Run(c.name, func(t *testing.T) {
			if c.ignored {
				signal.Ignore(syscall.SIGHUP)
				t.Cleanup(func() {
					signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // alone undoes Ignore
					signal.Reset(syscall.SIGHUP)
				})
			}
			log := &buffer{}
			ctx, hurry, stop := onSignals(t.Context(), slog.New(slog.NewTextHandler(log, nil)))
			defer stop()
			for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM} {
				if err := syscall.Kill(syscall.Getpid(), s); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(patience):
				t.Fatal("no signal came")
			}
			if !c.ignored {
				select {
				case <-hurry:
				case <-time.After(patience):
					t.Fatal("the second signal is not told")
				}
			}
			if text := log.String(); !strings.Contains(strings.SplitN(text, "\n", 2)[0], "signal="+c.first) {
				t.Errorf("%s was not the first signal that counted:\n%s", c.first, text)
			}
		})
	}
}
