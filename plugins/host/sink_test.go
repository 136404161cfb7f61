package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

func kinds(outcomes []core.Outcome) string {
	var b strings.Builder
	for _, o := range outcomes {
		fmt.Fprintf(&b, "%c", o.Kind.String()[0])
	}
	return b.String()
}

// oneOf is a batch of n records, the first of which has the type.
func oneOf(typ string, n int) []core.Record {
	batch := batchOf(n)
	batch[0].Type = typ
	return batch
}

func TestDeliversThroughTheProcess(t *testing.T) {
	s, _ := startReady(t, tortureSpec(t, "plain"), defaultTiming())
	outcomes, err := s.Deliver(within(t, 5*time.Second), batchOf(500))
	if err != nil {
		t.Fatal(err)
	}
	if len(outcomes) != 500 || outcomes[0].Kind != core.Delivered || outcomes[499].Kind != core.Delivered {
		t.Fatalf("%d outcomes, first %v", len(outcomes), outcomes[0])
	}
	st := s.Status()
	if st.State != Running || st.PID == 0 || st.Version != "1.2.3" || st.Description.Limits.MaxInFlight != 3 || st.Restarts != 0 {
		t.Errorf("status %+v", st)
	}
}

// TestBadAnswersAreErrorsOfOneCall: whatever the handler does, the process lives on and the next call works.
func TestBadAnswersAreErrorsOfOneCall(t *testing.T) {
	s, _ := startReady(t, tortureSpec(t, "plain"), defaultTiming())
	for typ, words := range map[string]string{
		"one-short": "2 outcomes for 3 records",
		"error":     `something \x1b[31mred`,
	} {
		outcomes, err := s.Deliver(within(t, 5*time.Second), oneOf(typ, 3))
		if err == nil || outcomes != nil {
			t.Fatalf("%s: %v %v", typ, outcomes, err)
		}
		contains(t, err.Error(), words)
		if errors.Is(err, core.ErrSinkDied) || errors.Is(err, core.ErrNotSent) {
			t.Errorf("%s: %v", typ, err)
		}
	}
	if _, err := s.Deliver(within(t, 5*time.Second), oneOf("not-sent", 3)); !errors.Is(err, core.ErrNotSent) {
		t.Errorf("not sent: %v", err)
	}
	outcomes, err := s.Deliver(within(t, 5*time.Second), oneOf("retry", 3))
	if err != nil {
		t.Fatal(err)
	}
	o := outcomes[0]
	if o.Kind != core.Retryable || o.Scope != core.ScopeKey || !o.Unknown || o.RetryAfter != 1500*time.Millisecond || o.Code != "nack" ||
		len(o.Message) > 512 || !strings.HasPrefix(o.Message, "éé") || kinds(outcomes) != "rdd" {
		t.Errorf("%+v", o)
	}
	if outcomes, err := s.Deliver(within(t, 5*time.Second), oneOf("unspecified", 3)); err != nil || kinds(outcomes) != "udd" {
		t.Errorf("%v %v", kinds(outcomes), err)
	}
	if st := s.Status(); st.Restarts != 0 {
		t.Errorf("restarted: %+v", st)
	}
}

// TestAnswersThatDoNotAddUp come from a plugin that uses generated code alone; the whole batch is then unknown.
func TestAnswersThatDoNotAddUp(t *testing.T) {
	for answer, words := range map[string]string{
		"too-few":      "does not add up: 3 delivered and 0 exceptions for 4 records",
		"out-of-range": "names record 4 of 4",
		"twice":        "names record 1 twice",
		"right":        "",
	} {
		s, _ := startReady(t, tortureSpec(t, "generated", answer), defaultTiming())
		outcomes, err := s.Deliver(within(t, 5*time.Second), batchOf(4))
		if words == "" {
			if err != nil || kinds(outcomes) != "dddd" {
				t.Errorf("%s: %v %v", answer, outcomes, err)
			}
			continue
		}
		if err == nil || outcomes != nil || errors.Is(err, core.ErrNotSent) || errors.Is(err, core.ErrSinkDied) {
			t.Errorf("%s: %v %v", answer, outcomes, err)
			continue
		}
		contains(t, err.Error(), words)
	}
}

func TestDeadlineAndCancel(t *testing.T) {
	s, _ := startReady(t, tortureSpec(t, "plain"), defaultTiming())
	for _, typ := range []string{"hang", "hang-forever"} { // one notices the cancel, one ignores it
		if _, err := s.Deliver(within(t, 50*time.Millisecond), oneOf(typ, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", typ, err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(20*time.Millisecond, cancel)
		if _, err := s.Deliver(ctx, oneOf(typ, 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", typ, err)
		}
	}
	if _, err := s.Deliver(within(t, 5*time.Second), batchOf(1)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestLargeRecordsAndBatches(t *testing.T) {
	s, _ := startReady(t, tortureSpec(t, "plain"), defaultTiming())
	one := batchOf(1)
	one[0].Type, one[0].Payload = "size", make([]byte, 20<<20)
	outcomes, err := s.Deliver(within(t, 20*time.Second), one)
	if err != nil || outcomes[0].Message != strconv.Itoa(20<<20) {
		t.Errorf("20 MiB record: %v %v", outcomes, err)
	}
	many := batchOf(64)
	for i := range many {
		many[i].Payload = make([]byte, 128<<10)
	}
	if outcomes, err := s.Deliver(within(t, 20*time.Second), many); err != nil || kinds(outcomes) != strings.Repeat("d", 64) {
		t.Errorf("8 MiB batch: %v", err)
	}
	huge := batchOf(3)
	huge[0].Payload = make([]byte, 66<<20)
	if outcomes, err := s.Deliver(within(t, 20*time.Second), huge); err != nil || kinds(outcomes) != "pnn" || outcomes[0].Code != core.ReasonTooLarge {
		t.Errorf("66 MiB record: %v %v", kinds(outcomes), err)
	}
}

func TestCrashInDeliver(t *testing.T) {
	for typ, words := range map[string]string{"crash": "exit status 2", "panic": "exit status 2", "exit": "exit status 0"} {
		t.Run(typ, func(t *testing.T) {
			s, logs := startReady(t, tortureSpec(t, "plain"), defaultTiming())
			_, err := s.Deliver(within(t, 10*time.Second), oneOf(typ, 3))
			if !errors.Is(err, core.ErrSinkDied) {
				t.Fatalf("error %v\n%s", err, logs)
			}
			contains(t, err.Error(), words)
			// Until it is up again calls are refused, not lost.
			if _, err := s.Deliver(within(t, time.Second), batchOf(1)); err != nil && !errors.Is(err, core.ErrNotSent) {
				t.Errorf("meanwhile: %v", err)
			}
			eventually(t, "delivers again", 5*time.Second, func() bool {
				_, err := s.Deliver(within(t, 5*time.Second), batchOf(1))
				return err == nil
			})
			if st := s.Status(); st.Restarts != 1 || !strings.Contains(st.LastExit, words) {
				t.Errorf("status %+v", st)
			}
			switch typ {
			case "crash":
				contains(t, logs.String(), "panic: poison record id-0")
			case "panic":
				contains(t, logs.String(), "panic: handler is broken")
			}
		})
	}
}

// TestOutputDoesNoHarm: what a plugin prints must neither block it nor break the protocol, nor flood the log.
// TestALineWithoutEndDoesNotBlockAPlugin that writes to the descriptor the handshake was on.
// running says whether the process exists and is no zombie.
// TestCloseWhileStarting: a start that hangs ends at once.
func TestRefusedSettingsAreFinal(t *testing.T) {
	logs := &logBuffer{}
	s := Start(tortureSpec(t, "refuses"), logs.logger())
	defer closeSink(t, s)
	err := s.Ready(within(t, 10*time.Second))
	if err == nil {
		t.Fatal("ready")
	}
	contains(t, err.Error(), "refuses its settings", "/topic: is missing")
	eventually(t, "failed", time.Second, func() bool { return s.Status().State == Failed })
}

func TestAFailedStartIsTriedAgainWhenTheProgramChanges(t *testing.T) {
	spec := tortureSpec(t, "plain")
	real := spec.Path
	spec.Path = filepath.Join(shortDir(t), "connectd-sink-late")
	tm := defaultTiming()
	tm.lookAgain = 5 * time.Millisecond
	logs := &logBuffer{}
	s := start(spec, logs.logger(), tm)
	defer closeSink(t, s)
	if err := s.Ready(within(t, 5*time.Second)); err == nil {
		t.Fatal("ready without a program")
	}
	if st := s.Status(); st.State != Failed {
		t.Errorf("status %+v", st)
	}
	if err := os.Symlink(real, spec.Path); err != nil {
		t.Fatal(err)
	}
	eventually(t, "running", 10*time.Second, func() bool { return s.Status().State == Running })
}

func TestOpenIsTriedAgainInTheSameProcess(t *testing.T) {
	spec := tortureSpec(t, "open-fails-twice", filepath.Join(shortDir(t), "count"))
	s, logs := startReady(t, spec, defaultTiming())
	if st := s.Status(); st.Restarts != 0 || st.Reason != "" {
		t.Errorf("status %+v", st)
	}
	if n := strings.Count(logs.String(), "cannot be opened"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// TestIsACoreSink drives the process as the conformance suite does: settings come through Configure.
func TestIsACoreSink(t *testing.T) {
	spec := tortureSpec(t, "plain")
	spec.Settings = nil
	logs := &logBuffer{}
	s := Start(spec, logs.logger())
	defer closeSink(t, s)
	ctx := within(t, 10*time.Second)
	if d, err := s.Describe(ctx); err != nil || d.Name != "torture" {
		t.Fatalf("%+v %v", d, err)
	}
	if diagnostics, err := s.Configure(ctx, []byte(`{"bad":1}`)); err != nil || len(diagnostics) != 2 {
		t.Fatalf("%v %v", diagnostics, err)
	}
	if err := s.Open(ctx); err == nil {
		t.Fatal("opened without settings")
	}
	if diagnostics, err := s.Configure(ctx, []byte(`{}`)); err != nil || len(diagnostics) != 0 {
		t.Fatalf("%v %v", diagnostics, err)
	}
	if err := s.Open(ctx); err != nil {
		t.Fatal(err)
	}
	if d, err := s.Describe(ctx); err != nil || d.Limits.MaxInFlight != 3 || d.Prefers.MaxRecords != 2 || d.Prefers.InFlight != 1 {
		t.Fatalf("with its settings the sink describes itself as %+v, %v", d, err)
	}
	if _, err := s.Deliver(ctx, batchOf(2)); err != nil {
		t.Fatal(err)
	}
	if err := s.Health(ctx); err != nil {
		t.Fatal(err)
	}
	if err := kill(s.Status().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "delivers again, with the same settings", 5*time.Second, func() bool {
		_, err := s.Deliver(ctx, batchOf(2))
		return err == nil
	})
}

func TestOpenAnswersTheFailure(t *testing.T) {
	spec := tortureSpec(t, "open-fails-twice", filepath.Join(shortDir(t), "count"))
	spec.Settings = nil
	s := Start(spec, (&logBuffer{}).logger())
	defer closeSink(t, s)
	ctx := within(t, 10*time.Second)
	if _, err := s.Configure(ctx, []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	if err := s.Open(ctx); err != nil && !strings.Contains(err.Error(), "broker is away") {
		t.Fatalf("Open: %v", err)
	}
	if err := s.Ready(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestKillsUnderLoad kills the process again and again while four callers deliver: each call ends in an answer or in an
// error that says what is known.
func TestKillsUnderLoad(t *testing.T) {
	tm := defaultTiming()
	tm.backoffMin = time.Millisecond
	s, logs := startReady(t, tortureSpec(t, "plain"), tm)
	stop := make(chan struct{})
	var delivered, died, refused atomic.Int64
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				_, err := s.Deliver(within(t, 10*time.Second), batchOf(200))
				switch {
				case err == nil:
					delivered.Add(1)
				case errors.Is(err, core.ErrSinkDied):
					died.Add(1)
				case errors.Is(err, core.ErrNotSent):
					refused.Add(1)
					time.Sleep(time.Millisecond)
				default:
					t.Errorf("neither died nor refused: %v", err)
				}
			}
		})
	}
	for range 8 {
		before := delivered.Load()
		eventually(t, "progress", 10*time.Second, func() bool { return delivered.Load() > before+20 })
		if pid := s.Status().PID; pid != 0 {
			_ = kill(pid, syscall.SIGKILL)
		}
	}
	before := delivered.Load()
	eventually(t, "progress at the end", 10*time.Second, func() bool { return delivered.Load() > before })
	close(stop)
	callers.Wait()
	if died.Load() == 0 || s.Status().Restarts < 5 {
		t.Errorf("delivered %d, died %d, refused %d, %+v\n%s", delivered.Load(), died.Load(), refused.Load(), s.Status(), logs)
	}
	contains(t, s.Status().LastExit, "signal: killed (by somebody else")
}
