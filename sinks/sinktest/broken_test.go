package sinktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/memory"
)

// twisted is a sink with some methods replaced; those that are nil are the good sink's.
type twisted struct {
	core.Sink
	describe  func() (core.Description, error)
	configure func(settings []byte) ([]core.Diagnostic, error)
	open      func(ctx context.Context) error
	deliver   func(ctx context.Context, batch []core.Record) ([]core.Outcome, error)
	health    func(ctx context.Context) error
	close     func(ctx context.Context) error
}

func (s *twisted) Describe(ctx context.Context) (core.Description, error) {
	if s.describe != nil {
		return s.describe()
	}
	return s.Sink.Describe(ctx)
}

func (s *twisted) Configure(ctx context.Context, settings []byte) ([]core.Diagnostic, error) {
	if s.configure != nil {
		return s.configure(settings)
	}
	return s.Sink.Configure(ctx, settings)
}

func (s *twisted) Open(ctx context.Context) error {
	if s.open != nil {
		return s.open(ctx)
	}
	return s.Sink.Open(ctx)
}

func (s *twisted) Deliver(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
	if s.deliver != nil {
		return s.deliver(ctx, batch)
	}
	return s.Sink.Deliver(ctx, batch)
}

func (s *twisted) Health(ctx context.Context) error {
	if s.health != nil {
		return s.health(ctx)
	}
	return s.Sink.Health(ctx)
}

func (s *twisted) Close(ctx context.Context) error {
	if s.close != nil {
		return s.close(ctx)
	}
	return s.Sink.Close(ctx)
}

// breakage is one way to get it wrong and the check that must find it, with a word of what it says.
type breakage struct {
	check string
	says  string
	twist func(s *twisted, m *memory.Sink)
}

// outcomesOf passes a batch on and lets f change the answer.
func outcomesOf(f func(batch []core.Record, o []core.Outcome) []core.Outcome) func(*twisted, *memory.Sink) {
	return func(s *twisted, m *memory.Sink) {
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			o, err := m.Deliver(ctx, batch)
			if err != nil || len(o) == 0 {
				return o, err
			}
			return f(batch, o), nil
		}
	}
}

// changing passes on a changed copy of the batch.
func changing(f func(r *core.Record)) func(*twisted, *memory.Sink) {
	return func(s *twisted, m *memory.Sink) {
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				f(&batch[i])
			}
			return m.Deliver(ctx, batch)
		}
	}
}

func delivered(n int) []core.Outcome {
	return slices.Repeat([]core.Outcome{{Kind: core.Delivered}}, n)
}

const secret = "hunter2"

// broken lists the sinks by what is wrong with them.
var broken = map[string]breakage{
	"describes itself by chance": {"describe", "differently", func(s *twisted, m *memory.Sink) {
		n := 0
		s.describe = func() (core.Description, error) {
			d, err := m.Describe(context.Background())
			n++
			d.Version = fmt.Sprint(n)
			return d, err
		}
	}},
	"schema is not JSON": {"describe", "not JSON", func(s *twisted, m *memory.Sink) {
		s.describe = func() (core.Description, error) {
			return core.Description{Name: "x", Version: "1", Schema: []byte("{")}, nil
		}
	}},
	"has no name": {"describe", "without a name", func(s *twisted, m *memory.Sink) {
		s.describe = func() (core.Description, error) {
			return core.Description{Schema: []byte(`{"type":"object"}`)}, nil
		}
	}},
	"refuses good settings": {"settings/good", "are refused", func(s *twisted, m *memory.Sink) {
		s.configure = func([]byte) ([]core.Diagnostic, error) { return []core.Diagnostic{{Message: "no"}}, nil }
	}},
	"accepts bad settings": {"settings/bad", "does not point to", func(s *twisted, m *memory.Sink) {
		s.configure = func([]byte) ([]core.Diagnostic, error) { return nil, nil }
	}},
	"points to nothing": {"settings/bad", "does not point to", func(s *twisted, m *memory.Sink) {
		s.configure = func([]byte) ([]core.Diagnostic, error) { return []core.Diagnostic{{Message: "bad"}}, nil }
	}},
	"shows a secret in a diagnostic": {"settings/bad", "shows a secret", func(s *twisted, m *memory.Sink) {
		s.configure = func(settings []byte) ([]core.Diagnostic, error) {
			d, err := m.Configure(context.Background(), settings)
			for i := range d {
				d[i].Message += ": " + string(settings)
			}
			return d, err
		}
	}},
	"answers bad settings with an error": {"settings/bad", "instead of a diagnostic", func(s *twisted, m *memory.Sink) {
		s.configure = func([]byte) ([]core.Diagnostic, error) { return nil, errors.New("bad") }
	}},
	"ignores unknown settings": {"settings/unknown", "not refused", func(s *twisted, m *memory.Sink) {
		s.configure = func([]byte) ([]core.Diagnostic, error) { return nil, nil }
	}},
	"takes a list for settings": {"settings/no object", "is content", func(s *twisted, m *memory.Sink) {
		s.configure = func([]byte) ([]core.Diagnostic, error) { return nil, nil }
	}},
	"does not forget a refusal": {"settings/corrected", "are refused", func(s *twisted, m *memory.Sink) {
		var once []core.Diagnostic
		s.configure = func(settings []byte) ([]core.Diagnostic, error) {
			if once == nil {
				once, _ = m.Configure(context.Background(), settings)
			}
			return once, nil
		}
	}},
	"connects in Configure": {"settings/offline", "needs the destination", func(s *twisted, m *memory.Sink) {
		s.configure = func([]byte) ([]core.Diagnostic, error) { return nil, m.Health(context.Background()) }
	}},
	"panics in Close when not open": {"life/close unopened", "nil map", func(s *twisted, m *memory.Sink) {
		var open map[string]int
		s.close = func(context.Context) error { open["x"]++; return nil }
	}},
	"cannot close after a failed Open": {"life/close after failed open", "closed already", func(s *twisted, m *memory.Sink) {
		s.open = func(ctx context.Context) error { return m.Health(ctx) }
		s.close = func(ctx context.Context) error {
			if m.Health(ctx) != nil {
				return errors.New("closed already")
			}
			return nil
		}
	}},
	"cannot close twice": {"life/close twice", "closed already", func(s *twisted, m *memory.Sink) {
		closes := 0
		s.close = func(context.Context) error {
			if closes++; closes > 1 {
				return errors.New("closed already")
			}
			return nil
		}
	}},
	"leaves a goroutine": {"life/goroutines", "are left", func(s *twisted, m *memory.Sink) {
		s.open = func(context.Context) error {
			go time.Sleep(20 * time.Second)
			return nil
		}
	}},
	"fails on an empty batch": {"batch/empty", "no records", func(s *twisted, m *memory.Sink) {
		s.deliver = func(context.Context, []core.Record) ([]core.Outcome, error) { return nil, errors.New("nothing to do") }
	}},
	"forgets one outcome": {"batch/one", "0 outcomes", outcomesOf(func(_ []core.Record, o []core.Outcome) []core.Outcome { return o[1:] })},
	"gives an unspecified outcome": {"batch/500", "no valid kind", outcomesOf(func(_ []core.Record, o []core.Outcome) []core.Outcome {
		o[len(o)-1] = core.Outcome{}
		return o
	})},
	"claims what was not written": {"batch/one", "not at the destination", func(s *twisted, m *memory.Sink) {
		s.deliver = func(_ context.Context, batch []core.Record) ([]core.Outcome, error) {
			return delivered(len(batch)), nil
		}
	}},
	"writes later than it says": {"batch/one", "not at the destination", func(s *twisted, m *memory.Sink) {
		var wg sync.WaitGroup
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			batch = cloneBatch(batch)
			wg.Go(func() { time.Sleep(50 * time.Millisecond); _, _ = m.Deliver(context.Background(), batch) })
			return delivered(len(batch)), nil
		}
		s.close = func(context.Context) error { wg.Wait(); return nil }
	}},
	"writes twice": {"batch/one", "arrived 2 times", func(s *twisted, m *memory.Sink) {
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			_, _ = m.Deliver(ctx, batch)
			return m.Deliver(ctx, batch)
		}
	}},
	"drops the 500th record": {"batch/500", "not at the destination", func(s *twisted, m *memory.Sink) {
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			_, err := m.Deliver(ctx, batch[:min(len(batch), 499)])
			return delivered(len(batch)), err
		}
	}},
	"has a 4 MiB message limit": {"batch/8 MiB", "too large", tooLarge(4 << 20)},
	"has a 16 MiB line limit":   {"batch/20 MB record", "too large", tooLarge(16 << 20)},
	"sets a null key to empty":  {"fields/names", "has a key", changing(func(r *core.Record) { r.Keyed = true })},
	"makes up ids": {"fields/names", "did not arrive under its id", changing(func(r *core.Record) {
		r.ID += "!"
	})},
	"re-encodes JSON": {"fields/payloads", "the payload is", changing(func(r *core.Record) {
		r.Payload = bytes.ReplaceAll(r.Payload, []byte("1.0"), []byte("1"))
	})},
	"decodes payloads as text": {"fields/payloads", "the payload is", changing(func(r *core.Record) {
		r.Payload = bytes.ToValidUTF8(r.Payload, []byte("?"))
	})},
	"sorts headers": {"fields/headers", "the headers are", changing(func(r *core.Record) {
		r.Headers = slices.Clone(r.Headers)
		slices.SortFunc(r.Headers, func(a, b core.Header) int { return strings.Compare(a.Name, b.Name) })
	})},
	"counts deliveries itself": {"fields/numbers", "number of the delivery", changing(func(r *core.Record) { r.Deliveries = 1 })},
	"loses large epochs":       {"fields/numbers", "the epoch is", changing(func(r *core.Record) { r.Epoch = int64(float64(r.Epoch)) })},
	"loses microseconds": {"fields/numbers", "the creation time", changing(func(r *core.Record) {
		r.CreatedAt = r.CreatedAt.Truncate(time.Millisecond)
	})},
	"fails the neighbours of a refused record": {"refused/places", "want delivered", outcomesOf(func(_ []core.Record, o []core.Outcome) []core.Outcome {
		if slices.ContainsFunc(o, func(o core.Outcome) bool { return o.Kind == core.Permanent }) {
			return slices.Repeat([]core.Outcome{{Kind: core.Retryable, Code: "x", Message: "x"}}, len(o))
		}
		return o
	})},
	"blames the neighbour": {"refused/places", "want permanent", outcomesOf(func(_ []core.Record, o []core.Outcome) []core.Outcome {
		return append(o[1:], o[0])
	})},
	"retries what is refused": {"refused/places", "want permanent", outcomesOf(func(_ []core.Record, o []core.Outcome) []core.Outcome {
		for i := range o {
			if o[i].Kind == core.Permanent {
				o[i].Kind = core.Retryable
			}
		}
		return o
	})},
	"goes on with the key of a refused record": {"refused/key", "of the same key", func(s *twisted, m *memory.Sink) {
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			var all []core.Outcome
			for i := range batch {
				o, err := m.Deliver(ctx, batch[i:i+1])
				if err != nil {
					return nil, err
				}
				all = append(all, o...)
			}
			return all, nil
		}
	}},
	"delivers into the void": {"outage/deliver", "is away, record 0 is delivered", func(s *twisted, m *memory.Sink) {
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			_, _ = m.Deliver(ctx, batch)
			return delivered(len(batch)), nil
		}
	}},
	"buries in an outage": {"outage/deliver", "is permanent", func(s *twisted, m *memory.Sink) {
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			o, err := m.Deliver(ctx, batch)
			if err != nil {
				return slices.Repeat([]core.Outcome{{Kind: core.Permanent, Code: "x", Message: "x"}}, len(batch)), nil
			}
			return o, nil
		}
	}},
	"never recovers": {"outage/deliver", "could not be delivered", func(s *twisted, m *memory.Sink) {
		var down error
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			if down != nil {
				return nil, down
			}
			o, err := m.Deliver(ctx, batch)
			down = err
			return o, err
		}
	}},
	"is always healthy": {"outage/deliver", "Health is content", func(s *twisted, m *memory.Sink) {
		s.health = func(context.Context) error { return nil }
	}},
	"says not sent when it was": {"outage/deliver", "although it is surely not", func(s *twisted, m *memory.Sink) {
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			if m.Health(ctx) == nil {
				return m.Deliver(ctx, batch)
			}
			other := memory.Fail(errors.New("x"))
			m.Before(nil)
			defer m.Before(other)
			_, _ = m.Deliver(ctx, batch)
			return nil, core.ErrNotSent
		}
	}},
	"opens once only": {"outage/open", "does not succeed after", func(s *twisted, m *memory.Sink) {
		var failed error
		s.open = func(ctx context.Context) error {
			if failed == nil {
				failed = m.Health(ctx)
			}
			return failed
		}
	}},
	"ignores a done context": {"deadline/done", "took", func(s *twisted, m *memory.Sink) {
		s.deliver = func(_ context.Context, batch []core.Record) ([]core.Outcome, error) {
			time.Sleep(2 * shortGrace)
			return m.Deliver(context.Background(), batch)
		}
	}},
	"claims delivery when time is up": {"deadline/short", "not at the destination", func(s *twisted, m *memory.Sink) {
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			if deadline, _ := ctx.Deadline(); time.Until(deadline) < 100*time.Millisecond {
				return delivered(len(batch)), nil
			}
			return m.Deliver(ctx, batch)
		}
	}},
	"ignores the deadline": {"deadline/hang", "Deliver with 300ms took", func(s *twisted, m *memory.Sink) {
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			long, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond+2*shortGrace)
			defer cancel()
			return m.Deliver(long, batch)
		}
	}},
	"hangs in Close": {"deadline/close", "Close with 1s took", func(s *twisted, m *memory.Sink) {
		s.close = func(context.Context) error { time.Sleep(2 * time.Second); return nil }
	}},
	"reorders a key": {"order/in a batch", "arrived after", func(s *twisted, m *memory.Sink) {
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			batch = slices.Clone(batch)
			slices.Reverse(batch)
			o, err := m.Deliver(ctx, batch)
			slices.Reverse(o)
			return o, err
		}
	}},
	"reorders batches": {"order/across batches", "not at the destination", func(s *twisted, m *memory.Sink) {
		var kept []core.Record
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			out := kept
			kept = cloneBatch(batch)
			_, err := m.Deliver(ctx, out)
			return delivered(len(batch)), err
		}
	}},
	"mixes up concurrent calls": {"order/concurrent", "not at the destination", func(s *twisted, m *memory.Sink) {
		var mu sync.Mutex
		running := 0
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			mu.Lock()
			running++
			busy := running > 1
			mu.Unlock()
			defer func() { mu.Lock(); defer mu.Unlock(); running-- }()
			if busy {
				return delivered(len(batch)), nil
			}
			time.Sleep(time.Millisecond)
			return m.Deliver(ctx, batch)
		}
	}},
	"keeps its buffers": {"buffers/after the call", "did not arrive under its id", func(s *twisted, m *memory.Sink) {
		var kept []core.Record
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			kept = append(kept, batch...)
			return delivered(len(batch)), nil
		}
		s.close = func(ctx context.Context) error {
			_, err := m.Deliver(ctx, kept)
			kept = nil
			return err
		}
	}},
	"keeps payloads only": {"buffers/after the call", "the payload is", func(s *twisted, m *memory.Sink) {
		var kept []core.Record
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			for _, r := range batch {
				payload := r.Payload
				r = memory.Clone(r)
				r.Payload = payload
				kept = append(kept, r)
			}
			return delivered(len(batch)), nil
		}
		s.close = func(ctx context.Context) error {
			_, err := m.Deliver(ctx, kept)
			kept = nil
			return err
		}
	}},
	"sends from a buffer after its deadline": {"buffers/after a timeout", "had been taken back", func(s *twisted, m *memory.Sink) {
		var late [][]core.Record
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			o, err := m.Deliver(ctx, batch)
			if err != nil {
				late = append(late, slices.Clone(batch))
			}
			return o, err
		}
		s.close = func(ctx context.Context) error {
			for _, batch := range late {
				_, _ = m.Deliver(ctx, batch)
			}
			late = nil
			return nil
		}
	}},
	"changes the batch": {"batch/one", "changed its batch", func(s *twisted, m *memory.Sink) {
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			o, err := m.Deliver(ctx, batch)
			for i := range batch {
				batch[i].Payload[0] = ' '
			}
			return o, err
		}
	}},
	"shows a secret in an outcome": {"outage/deliver", "shows a secret", func(s *twisted, m *memory.Sink) {
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			o, err := m.Deliver(ctx, batch)
			if err != nil {
				return nil, fmt.Errorf("amqp://user:%s@host: %w", secret, err)
			}
			return o, nil
		}
	}},
	"shows a secret in Health": {"outage/deliver", "shows a secret", func(s *twisted, m *memory.Sink) {
		s.health = func(ctx context.Context) error {
			if err := m.Health(ctx); err != nil {
				return fmt.Errorf("amqp://user:%s@host: %w", secret, err)
			}
			return nil
		}
	}},
	"calls records completed that nobody asked it to": {"batch/one", "completed: true", outcomesOf(func(_ []core.Record, o []core.Outcome) []core.Outcome {
		return slices.Repeat([]core.Outcome{{Kind: core.Delivered, Completed: true}}, len(o))
	})},
	"fails without a reason": {"outage/deliver", "without saying why", func(s *twisted, m *memory.Sink) {
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			o, err := m.Deliver(ctx, batch)
			if err != nil {
				return slices.Repeat([]core.Outcome{{Kind: core.Retryable, Unknown: true}}, len(batch)), nil
			}
			return o, nil
		}
	}},
}

func tooLarge(limit int) func(*twisted, *memory.Sink) {
	return func(s *twisted, m *memory.Sink) {
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			size := 0
			for i := range batch {
				size += batch[i].Size()
			}
			if size > limit {
				return nil, errors.New("message too large")
			}
			return m.Deliver(ctx, batch)
		}
	}
}

func cloneBatch(batch []core.Record) []core.Record {
	out := make([]core.Record, len(batch))
	for i := range batch {
		out[i] = memory.Clone(batch[i])
	}
	return out
}

// TestBrokenSinksAreFound runs, for each broken sink, the check that must find it; and each check must find one.
func TestBrokenSinksAreFound(t *testing.T) {
	byName := map[string]check{}
	unproved := map[string]bool{}
	for _, c := range checks() {
		byName[c.name] = c
		unproved[c.name] = true
	}
	for name, b := range broken {
		c, ok := byName[b.check]
		if !ok {
			t.Fatalf("%s: there is no check %q", name, b.check)
		}
		delete(unproved, b.check)
		t.Run(name, func(t *testing.T) {
			if b.check != "life/goroutines" { // which would count those of the others
				t.Parallel()
			}
			r := trialRun(t, c, func(t testing.TB) Harness {
				h := memoryHarness(t)
				m := h.Sink.(*memory.Sink)
				s := &twisted{Sink: m}
				b.twist(s, m)
				h.Sink = s
				h.Secrets = []string{secret}
				return h
			})
			if !r.Failed() || !strings.Contains(r.report(), b.says) {
				t.Errorf("check %q does not say %q of this sink; failed: %v, it says:\n%s", b.check, b.says, r.Failed(), r.report())
			}
		})
	}
	for name := range unproved {
		t.Errorf("no broken sink proves the check %q", name)
	}
}

// TestSkipsAreSaid runs the suite with as little as possible.
func TestSkipsAreSaid(t *testing.T) {
	for _, c := range checks() {
		r := trialRun(t, c, func(t testing.TB) Harness {
			h := memoryHarness(t)
			return Harness{Sink: h.Sink, Settings: h.Settings, Received: h.Received}
		})
		if r.Failed() || r.skipped && r.report() == "" {
			t.Errorf("%s: failed %v, skipped %v: %s", c.name, r.Failed(), r.skipped, r.report())
		}
	}
}

// TestCompletes wants each delivered record of a harness that says so to be completed, and no other.
func TestCompletes(t *testing.T) {
	for name, c := range map[string]struct {
		delivered, refused bool
		says               string
	}{
		"all that are delivered": {true, false, ""},
		"none":                   {false, false, "delivered and completed: false"},
		"also what is refused":   {true, true, "permanent and completed: true"},
	} {
		r := trialRun(t, check{"refused/places", checkRefusedPlaces}, func(t testing.TB) Harness {
			h := memoryHarness(t)
			m := h.Sink.(*memory.Sink)
			s := &twisted{Sink: m}
			outcomesOf(func(_ []core.Record, o []core.Outcome) []core.Outcome {
				for i := range o {
					o[i].Completed = o[i].Kind == core.Delivered && c.delivered || o[i].Kind != core.Delivered && c.refused
				}
				return o
			})(s, m)
			h.Sink, h.Completes = s, true
			return h
		})
		if r.Failed() != (c.says != "") || !strings.Contains(r.report(), c.says) {
			t.Errorf("%s: failed %v, it says:\n%s", name, r.Failed(), r.report())
		}
	}
}
