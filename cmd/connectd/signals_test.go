package main

import (
	"log/slog"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// Under nohup the daemon outlives its terminal.
func TestAnIgnoredHangupStaysIgnored(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	ctx, _, stop := onSignals(t.Context(), slog.New(slog.DiscardHandler))
	defer stop()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
		t.Error("a hangup that was ignored at the start ended the daemon")
	case <-time.After(100 * time.Millisecond):
	}
}
