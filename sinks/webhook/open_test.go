package webhook

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

// opened returns an open sink with the settings, which is closed when the test ends.
func opened(t testing.TB, settings string) *Sink {
	t.Helper()
	s := New(slog.New(slog.DiscardHandler), Options{Connector: "orders", Version: "test"})
	diagnostics, err := s.Configure(t.Context(), []byte(settings))
	if err != nil || slices.ContainsFunc(diagnostics, func(d core.Diagnostic) bool { return !d.Warning }) {
		t.Fatalf("Configure(%s): %+v, %v", settings, diagnostics, err)
	}
	if err := s.Open(t.Context()); err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// to returns settings for a URL, with more of them behind it, each after a comma.
func to(url string, more string) string { return fmt.Sprintf(`{"url": %q%s}`, url, more) }

func record(id, key string) core.Record {
	return core.Record{
		ID: id, Key: key, Keyed: key != "", Type: "OrderPlaced", Payload: []byte(`{"id":"` + id + `"}`),
		CreatedAt: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC), Deliveries: 1, Epoch: 1,
	}
}

// send delivers the records in one call that has a minute.
func send(t testing.TB, s *Sink, records ...core.Record) []core.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	outcomes, err := s.Deliver(ctx, records)
	if err != nil || len(outcomes) != len(records) {
		t.Fatalf("Deliver: %d outcomes for %d records, %v", len(outcomes), len(records), err)
	}
	return outcomes
}

// want compares outcomes by kind.
func want(t testing.TB, outcomes []core.Outcome, kinds ...core.OutcomeKind) {
	t.Helper()
	if len(outcomes) != len(kinds) {
		t.Fatalf("%d outcomes, want %d", len(outcomes), len(kinds))
	}
	for i, o := range outcomes {
		if o.Kind != kinds[i] {
			t.Errorf("outcome %d is %+v, want %v", i, o, kinds[i])
		}
	}
}

// wantFailure checks the parts of an outcome that the engine acts on.
func wantFailure(t testing.TB, got core.Outcome, kind core.OutcomeKind, scope core.Scope, unknown bool, code string) {
	t.Helper()
	if got.Kind != kind || got.Scope != scope || got.Unknown != unknown || got.Code != code || got.Message == "" {
		t.Errorf("outcome is %+v, want %v of scope %q, unknown %v, code %s", got, kind, scope, unknown, code)
	}
}

func wantRequests(t testing.TB, r *receiver, want int) {
	t.Helper()
	if n, _ := r.counts(); n != want {
		t.Errorf("the receiver had %d requests, want %d", n, want)
	}
}
