package webhook

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

func TestLife(t *testing.T) {
	s := New(slog.New(slog.DiscardHandler), Options{Connector: "orders", Version: "test"})
	if err := s.Open(t.Context()); err == nil {
		t.Error("a sink without settings opens")
	}
	if _, err := s.Configure(t.Context(), []byte(to("http://127.0.0.1:1/", ""))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Deliver(t.Context(), []core.Record{record("a", "k")}); !errors.Is(err, core.ErrNotSent) {
		t.Errorf("Deliver to a sink that is not open: %v", err)
	}
	if err := s.Health(t.Context()); err == nil {
		t.Error("a sink that is not open is healthy")
	}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Open(t.Context()); err == nil {
		t.Error("a sink opens twice")
	}
	for range 2 {
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

func TestPreferences(t *testing.T) {
	for settings, want := range map[string]core.Preferences{
		to("http://127.0.0.1/", ""):                                           {MaxRecords: 1, InFlight: 64},
		to("http://127.0.0.1/", `, "concurrency": 8`):                         {MaxRecords: 1, InFlight: 8},
		to("http://127.0.0.1/", `, "rate_limit": {"rate": "1/s"}`):            {MaxRecords: 1, InFlight: 5},
		to("http://127.0.0.1/", `, "rate_limit": {"rate": "1/h"}`):            {MaxRecords: 1, InFlight: 1},
		to("http://127.0.0.1/", `, "batch": {"max_rows": 50}`):                {MaxRecords: 50, InFlight: 64},
		to("https://{route}.example.com/", ""):                                {MaxRecords: 1, InFlight: 128},
		to("https://{route}.example.com/", `, "rate_limit": {"rate": "1/s"}`): {MaxRecords: 1, InFlight: 128},
	} {
		d, err := opened(t, settings).Describe(t.Context())
		if err != nil || d.Prefers != want {
			t.Errorf("%s: prefers %+v, want %+v; %v", settings, d.Prefers, want, err)
		}
	}
}

// Close waits for calls that run, as long as it may.
func TestCloseWaitsForDeliveries(t *testing.T) {
	r := receive(t)
	restore := r.hang(t)
	s := opened(t, to(r.url(), ""))
	answered := make(chan core.Outcome, 1)
	go func() {
		outcomes, err := s.Deliver(context.Background(), []core.Record{record("a", "k")})
		if err != nil {
			t.Error(err)
		}
		answered <- outcomes[0]
	}()
	for len(r.got()) == 0 {
		time.Sleep(time.Millisecond)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Close(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close while a delivery runs, with little time: %v", err)
	}
	restore()
	if o := <-answered; o.Kind != core.Delivered {
		t.Errorf("the delivery that ran when the sink was closed: %+v", o)
	}
}
