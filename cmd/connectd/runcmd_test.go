package main

import (
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSignals: the first SIGTERM ends the daemon, the second cuts the drain short, and a hangup does neither.
func TestSignals(t *testing.T) {
	log := &buffer{}
	ctx, hurry, stop := onSignals(t.Context(), slog.New(slog.NewTextHandler(log, nil)))
	defer stop()
	said := func(words string, times int) {
		t.Helper()
		eventually(t, words, func() (bool, string) { return strings.Count(log.String(), words) == times, log.String() })
	}
	send := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(syscall.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}
	send(syscall.SIGHUP)
	said("cannot reload its configuration yet", 1)
	said("restart the daemon", 1)
	if ctx.Err() != nil {
		t.Fatal("a hangup ended the daemon")
	}
	send(syscall.SIGTERM)
	select {
	case <-ctx.Done():
	case <-time.After(patience):
		t.Fatal("SIGTERM did not end the daemon")
	}
	send(syscall.SIGHUP)
	said("cannot reload its configuration yet", 2)
	select {
	case <-hurry:
		t.Fatal("a hangup cut the drain short")
	default:
	}
	send(syscall.SIGTERM)
	select {
	case <-hurry:
	case <-time.After(patience):
		t.Fatal("the second signal is not told")
	}
}
