package rabbitmq

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

const patience = 30 * time.Second // with what should work

// configured is a sink with settings that are right.
func configured(t testing.TB, settings []byte) *Sink {
	t.Helper()
	sink := New(slog.New(slog.NewTextHandler(t.Output(), nil)), Options{Connector: "orders", Version: "test"})
	diagnostics, err := sink.Configure(t.Context(), settings)
	for _, d := range diagnostics {
		if !d.Warning {
			t.Fatalf("%s %s", d.Pointer, d.Message)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := sink.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return sink
}

// opened is a sink that is connected.
func opened(t testing.TB, settings []byte) *Sink {
	t.Helper()
	sink := configured(t, settings)
	if err := sink.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return sink
}

var seq atomic.Int64

// rows are n records with these keys in turn, none for "".
func rows(n int, keys ...string) []core.Record {
	all := make([]core.Record, n)
	for i := range all {
		r := order()
		r.Seq = seq.Add(1)
		r.ID, r.Key, r.Payload = fmt.Sprintf("r-%06d", r.Seq), keys[i%len(keys)], fmt.Appendf(nil, `{"n":%d}`, r.Seq)
		r.Keyed = r.Key != ""
		all[i] = r
	}
	return all
}

// with adds a header.
func with(r core.Record, name, value string) core.Record {
	r.Headers = append([]core.Header{{Name: name, Value: value}}, r.Headers...)
	return r
}

func deliver(t testing.TB, sink *Sink, batch []core.Record) []core.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	outcomes, err := sink.Deliver(ctx, batch)
	if err != nil {
		t.Fatal(err)
	}
	return outcomes
}

func wantDelivered(t testing.TB, outcomes []core.Outcome) {
	t.Helper()
	for i, o := range outcomes {
		if o.Kind != core.Delivered {
			t.Fatalf("record %d is %v: %+v", i, o.Kind, o)
		}
	}
}

// wantOutcome compares what the engine decides by.
func wantOutcome(t testing.TB, o core.Outcome, kind core.OutcomeKind, scope core.Scope, code string) {
	t.Helper()
	if o.Kind != kind || o.Scope != scope || o.Code != code || o.Message == "" {
		t.Errorf("the outcome is %v, scope %q: %+v; want %v, scope %q, code %s", o.Kind, o.Scope, o, kind, scope, code)
	}
}

// eventually delivers until the record is delivered, as the engine does when it probes a sink.
func eventually(t testing.TB, sink *Sink, batch []core.Record) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		outcomes := deliver(t, sink, batch)
		if outcomes[0].Kind == core.Delivered {
			wantDelivered(t, outcomes)
			return
		}
		if outcomes[0].Kind == core.Permanent || time.Now().After(deadline) {
			t.Fatalf("not delivered: %+v", outcomes[0])
		}
	}
}

func TestLife(t *testing.T) {
	sink := New(slog.New(slog.DiscardHandler), Options{})
	if err := sink.Open(t.Context()); err == nil {
		t.Error("opened before it was configured")
	}
	if _, err := sink.Deliver(t.Context(), rows(1, "a")); err == nil {
		t.Error("delivered before it was opened")
	}
	if err := sink.Health(t.Context()); err == nil {
		t.Error("healthy before it was opened")
	}
	if err := sink.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// waitFor waits until something is so.
func waitFor(t testing.TB, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
	}
}
