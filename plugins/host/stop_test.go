package host

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

func TestOutputDoesNoHarm(t *testing.T) {
	s, logs := startReady(t, tortureSpec(t, "plain"), defaultTiming())
	for _, typ := range []string{"long-line", "stdout", "flood"} {
		if _, err := s.Deliver(within(t, 20*time.Second), oneOf(typ, 1)); err != nil {
			t.Fatalf("%s: %v", typ, err)
		}
	}
	contains(t, logs.String(), "printed by the sink")
	for line := range strings.SplitSeq(logs.String(), "\n") {
		if strings.Contains(line, "xxxxx") && !strings.Contains(line, `"stream":"stderr"`) {
			t.Error("descriptor 1 of a Go plugin is not diverted")
		}
	}
	if n := strings.Count(logs.String(), "flood"); n > 20*linesPerSecond {
		t.Errorf("%d of 50000 lines were logged", n)
	}
	eventually(t, "drops are reported", 5*time.Second, func() bool {
		if _, err := s.Deliver(within(t, 20*time.Second), oneOf("stdout", 1)); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(logs.String(), "lines were dropped")
	})
	for line := range strings.SplitSeq(logs.String(), "\n") {
		if len(line) > 2*maxLogText {
			t.Fatalf("a log line of %d bytes", len(line))
		}
	}
}

func TestALineWithoutEndDoesNotBlockAPlugin(t *testing.T) {
	s, logs := startReady(t, tortureSpec(t, "generated", "long-line"), defaultTiming())
	if _, err := s.Deliver(within(t, 5*time.Second), batchOf(2)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is logged", time.Second, func() bool { return strings.Contains(logs.String(), `yyyyy`) })
}

func TestGrandchildrenEndWithTheProcess(t *testing.T) {
	s, _ := startReady(t, tortureSpec(t, "plain"), defaultTiming())
	outcomes, err := s.Deliver(within(t, 5*time.Second), oneOf("grandchild", 1))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(outcomes[0].Message)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	closeSink(t, s)
	if took := time.Since(begin); took > time.Second {
		t.Errorf("closing took %v", took)
	}
	eventually(t, "the grandchild is gone", time.Second, func() bool { return !running(pid) })
}

func TestAnEscapedGrandchildDoesNotHoldUpTheStop(t *testing.T) {
	s, _ := startReady(t, tortureSpec(t, "plain"), defaultTiming())
	if _, err := s.Deliver(within(t, 5*time.Second), oneOf("escaped-grandchild", 1)); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	closeSink(t, s)
	if took := time.Since(begin); took > 1500*time.Millisecond {
		t.Errorf("closing took %v", took)
	}
}

func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	return fields[0] != "Z" && fields[0] != "X"
}

// A plugin is asked to end, given time for it, and then ended: https://github.com/hashicorp/go-plugin/pull/81
func TestCloseNeverHangs(t *testing.T) {
	for _, c := range []struct {
		mode   string
		before func(pid int)
		ctx    time.Duration
		limit  time.Duration
	}{
		{"plain", func(int) {}, 5 * time.Second, time.Second},
		{"plain", func(pid int) { _ = kill(pid, syscall.SIGSTOP) }, 300 * time.Millisecond, 2 * time.Second},
		{"close-hangs", func(int) {}, 300 * time.Millisecond, 2 * time.Second},
		{"plain", func(pid int) { _ = kill(pid, syscall.SIGSTOP) }, 10 * time.Second, 2 * time.Second},
		{"no-shutdown", func(int) {}, 10 * time.Second, 2 * time.Second},
	} {
		t.Run(c.mode, func(t *testing.T) {
			spec := tortureSpec(t, c.mode)
			tm := defaultTiming()
			tm.close, tm.end = 400*time.Millisecond, 400*time.Millisecond
			s, logs := startReady(t, spec, tm)
			pid := s.Status().PID
			c.before(pid)
			begin := time.Now()
			_ = s.Close(within(t, c.ctx)) // twice, and its error is not the matter here
			_ = s.Close(within(t, c.ctx))
			if took := time.Since(begin); took > c.limit {
				t.Errorf("took %v\n%s", took, logs)
			}
			if running(pid) {
				t.Error("the process still runs")
			}
			if left, _ := os.ReadDir(spec.RuntimeDir); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
			if _, err := s.Deliver(within(t, time.Second), batchOf(1)); !errors.Is(err, core.ErrNotSent) {
				t.Errorf("Deliver after Close: %v", err)
			}
		})
	}
}

func TestCloseWhileStarting(t *testing.T) {
	spec := tortureSpec(t, "hangs-at-start")
	logs := &logBuffer{}
	s := Start(spec, logs.logger())
	eventually(t, "has a directory", 5*time.Second, func() bool {
		left, _ := os.ReadDir(spec.RuntimeDir)
		return len(left) == 1
	})
	begin := time.Now()
	closeSink(t, s)
	if took := time.Since(begin); took > time.Second {
		t.Errorf("took %v\n%s", took, logs)
	}
	if left, _ := os.ReadDir(spec.RuntimeDir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Ctrl-C reaches plugins before their host is done with them: https://github.com/hashicorp/go-plugin/issues/10
func TestSignalsToTheGroupDoNotEndIt(t *testing.T) {
	s, _ := startReady(t, tortureSpec(t, "plain"), defaultTiming())
	pid := s.Status().PID
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if err := kill(-pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		if _, err := s.Deliver(within(t, 5*time.Second), batchOf(10)); err != nil {
			t.Fatal(err)
		}
	}
	if st := s.Status(); st.PID != pid {
		t.Errorf("another process: %+v", st)
	}
}
