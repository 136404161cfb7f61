package memory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/memory"
)

func record(seq int64, key string) core.Record {
	return core.Record{ID: fmt.Sprintf("id-%d", seq), Key: key, Keyed: key != "", Seq: seq, Deliveries: 1, Payload: []byte("{}")}
}

func deliver(t *testing.T, s *memory.Sink, batch ...core.Record) []core.OutcomeKind {
	t.Helper()
	outcomes, err := s.Deliver(t.Context(), batch)
	if err != nil {
		t.Fatalf("Deliver: %v", err)
	}
	kinds := make([]core.OutcomeKind, len(outcomes))
	for i, o := range outcomes {
		kinds[i] = o.Kind
	}
	return kinds
}

func TestSinkKeepsCopiesInOrder(t *testing.T) {
	s := memory.NewSink()
	r := record(1, "a")
	r.Headers = []core.Header{{Name: "n", Value: "v"}}
	batch := []core.Record{r, record(2, "")}
	deliver(t, s, batch...)
	batch[0].Payload[0], batch[0].Headers[0].Value, batch[1].ID = 'X', "X", "X"

	got := s.Delivered()
	if len(got) != 2 || string(got[0].Payload) != "{}" || got[0].Headers[0].Value != "v" || got[1].ID != "id-2" {
		t.Errorf("kept %+v", got)
	}
	if s.Calls() != 1 || s.Arrivals()[1].Call != 1 {
		t.Errorf("%d calls, arrivals %+v", s.Calls(), s.Arrivals())
	}
}

func TestSinkStopsAKeyAfterItsFailure(t *testing.T) {
	s := memory.NewSink()
	s.Decide(func(r core.Record) core.Outcome {
		if r.Seq == 1 {
			return core.Outcome{Kind: core.Retryable}
		}
		return core.Outcome{Kind: core.Delivered}
	})
	got := deliver(t, s, record(1, "a"), record(2, "b"), record(3, "a"), record(4, ""))
	want := []core.OutcomeKind{core.Retryable, core.Delivered, core.NotAttempted, core.Delivered}
	if !slices.Equal(got, want) {
		t.Errorf("outcomes %v, want %v", got, want)
	}
	if n := len(s.Arrivals()); n != 3 {
		t.Errorf("%d records arrived, want 3", n)
	}
}

func TestSinkHooks(t *testing.T) {
	s := memory.NewSink()
	lost := errors.New("connection lost")
	s.Before(memory.Fail(lost))
	if _, err := s.Deliver(t.Context(), []core.Record{record(1, "")}); !errors.Is(err, lost) || len(s.Arrivals()) != 0 {
		t.Errorf("Before failed: err %v, arrivals %v", err, s.Arrivals())
	}
	s.Before(nil)
	s.After(func(context.Context, []core.Record, []core.Outcome) ([]core.Outcome, error) { return nil, lost })
	if _, err := s.Deliver(t.Context(), []core.Record{record(1, "")}); !errors.Is(err, lost) || len(s.Delivered()) != 1 {
		t.Errorf("After failed: err %v, delivered %v", err, s.Delivered())
	}
	s.SetHealth(lost)
	if err := s.Health(t.Context()); !errors.Is(err, lost) {
		t.Errorf("Health: %v", err)
	}
}

func TestSinkWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewSink()
		release := make(chan struct{})
		s.Before(memory.Block(release))
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := s.Deliver(t.Context(), []core.Record{record(1, "")}); err != nil {
				t.Errorf("blocked Deliver: %v", err)
			}
		})
		wg.Go(func() {
			if err := s.WaitDelivered(t.Context(), 2); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if len(s.Arrivals()) != 0 {
			t.Error("a blocked call has arrived")
		}
		close(release)
		s.Before(memory.Delay(time.Minute))
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Deliver(short, []core.Record{record(2, "")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("delayed Deliver past its deadline: %v", err)
		}
		if err := s.WaitDelivered(short, 2); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("WaitDelivered past its deadline: %v", err)
		}
		start := time.Now()
		deliver(t, s, record(2, ""))
		if took := time.Since(start); took != time.Minute {
			t.Errorf("delayed Deliver took %v", took)
		}
		wg.Wait()
	})
}

func TestSinkConfigure(t *testing.T) {
	for settings, want := range map[string]string{
		`{}`: "", `null`: "[]", `[]`: "[]", `{"b":1,"a/b":2}`: "[/a~1b /b]",
	} {
		diagnostics, err := memory.NewSink().Configure(t.Context(), []byte(settings))
		var got []string
		for _, d := range diagnostics {
			got = append(got, d.Pointer)
		}
		if err != nil || (len(got) > 0) != (want != "") || want != "" && fmt.Sprint(got) != want {
			t.Errorf("Configure(%s) = %v, %v, want pointers %s", settings, diagnostics, err, want)
		}
	}
}

// TestSinkViolations has one script of calls for each rule of the contract, and the word expected in the report.
func TestSinkViolations(t *testing.T) {
	retry := func(seqs ...int64) func(core.Record) core.Outcome {
		return func(r core.Record) core.Outcome {
			if slices.Contains(seqs, r.Seq) {
				return core.Outcome{Kind: core.Retryable}
			}
			return core.Outcome{Kind: core.Delivered}
		}
	}
	cases := map[string]struct {
		script func(t *testing.T, s *memory.Sink)
		want   string
	}{
		"good order": {func(t *testing.T, s *memory.Sink) {
			s.Decide(retry(2))
			deliver(t, s, record(1, "a"), record(2, "a"), record(3, "a"))
			s.Decide(nil)
			deliver(t, s, record(2, "a"))
			deliver(t, s, record(3, "a"), record(4, "a"))
			deliver(t, s, record(1, "a")) // a repetition
			deliver(t, s, record(9, ""))
			deliver(t, s, record(8, ""))
		}, ""},
		"later one first": {func(t *testing.T, s *memory.Sink) {
			deliver(t, s, record(2, "a"))
			deliver(t, s, record(1, "a"))
		}, "first time"},
		"out of order in a batch": {func(t *testing.T, s *memory.Sink) {
			deliver(t, s, record(2, "a"), record(1, "a"))
		}, "one batch"},
		"overtakes a failed one": {func(t *testing.T, s *memory.Sink) {
			s.Decide(retry(1))
			deliver(t, s, record(1, "a"), record(2, "a"))
			deliver(t, s, record(2, "a"))
		}, "must be sent again"},
		"overtakes a failed call": {func(t *testing.T, s *memory.Sink) {
			s.Before(memory.Fail(core.ErrSinkDied))
			_, _ = s.Deliver(t.Context(), []core.Record{record(1, "a")})
			s.Before(nil)
			deliver(t, s, record(2, "a"))
		}, "must be sent again"},
		"goes on after a refused one": {func(t *testing.T, s *memory.Sink) {
			s.Decide(func(core.Record) core.Outcome { return core.Outcome{Kind: core.Permanent} })
			deliver(t, s, record(1, "a"), record(2, "a"))
			deliver(t, s, record(2, "a"))
		}, ""},
		"goes on after giving up": {func(t *testing.T, s *memory.Sink) {
			s.Decide(retry(1))
			s.Excuse("id-1")
			deliver(t, s, record(1, "a"))
			deliver(t, s, record(2, "a"))
		}, ""},
		"a key twice at once": {func(t *testing.T, s *memory.Sink) {
			s.Before(func(ctx context.Context, _ []core.Record) error {
				s.Before(nil)
				_, err := s.Deliver(ctx, []core.Record{record(2, "a")})
				return err
			})
			deliver(t, s, record(1, "a"))
		}, "at once"},
		"after Close": {func(t *testing.T, s *memory.Sink) {
			_ = s.Close(t.Context())
			if _, err := s.Deliver(t.Context(), nil); !errors.Is(err, core.ErrNotSent) {
				t.Errorf("Deliver after Close: %v", err)
			}
		}, "after Close"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := memory.NewSink()
			c.script(t, s)
			got := s.Violations()
			if c.want == "" && len(got) > 0 || c.want != "" && !strings.Contains(strings.Join(got, "\n"), c.want) {
				t.Errorf("violations %q, want %q", got, c.want)
			}
		})
	}
}
