package host

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

// quick is a timing for tests that wait for probes and pauses.
func quick() timing {
	tm := defaultTiming()
	tm.backoffMin = time.Millisecond
	tm.probeEvery, tm.probeTimeout, tm.dump = 50*time.Millisecond, 20*time.Millisecond, 100*time.Millisecond
	return tm
}

func TestAStoppedProcessIsEndedAndReplaced(t *testing.T) {
	s, _ := startReady(t, tortureSpec(t, "plain"), quick())
	pid := s.Status().PID
	if err := kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var err error
	for err == nil { // it may take a moment to stop
		_, err = s.Deliver(within(t, 10*time.Second), batchOf(1))
	}
	if !errors.Is(err, core.ErrSinkDied) {
		t.Errorf("the call in flight: %v", err)
	}
	eventually(t, "replaced", 5*time.Second, func() bool { st := s.Status(); return st.State == Running && st.PID != pid })
	if running(pid) {
		t.Error("the old process still runs")
	}
}

func TestAWedgedProcessShowsItsGoroutines(t *testing.T) {
	tm := quick()
	tm.probeTimeout = time.Microsecond // no answer can be in time
	tm.dump = 2 * time.Second
	s, logs := startReady(t, tortureSpec(t, "plain"), tm)
	eventually(t, "restarted", 20*time.Second, func() bool { return s.Status().Restarts > 0 })
	contains(t, logs.String(), "ended with a trace: SIGQUIT: quit", "plugins.Serve", "was wedged")
}

// TestABusyProcessIsNotKilled: it answers no probe, because it uses every processor, but it is at work.
func TestABusyProcessIsNotKilled(t *testing.T) {
	tm := quick()
	tm.probeEvery, tm.probeTimeout, tm.busyMisses = 100*time.Millisecond, time.Microsecond, 1000
	s, logs := startReady(t, tortureSpec(t, "plain"), tm)
	pid := s.Status().PID
	for range 3 { // each is longer than the three probes after which an idle process is ended
		if _, err := s.Deliver(within(t, 30*time.Second), oneOf("busy", 1)); err != nil {
			t.Fatalf("%v\n%s", err, logs)
		}
	}
	if st := s.Status(); st.PID != pid {
		t.Errorf("killed while it worked: %+v", st)
	}
}

// TestAProcessThatWaitsForItsDestinationIsNotKilled before its batch's deadline: it answers no probe and does nothing,
// as a plugin does whose threads all wait in Deliver.
func TestAProcessThatWaitsForItsDestinationIsNotKilled(t *testing.T) {
	tm := quick()
	tm.probeTimeout, tm.busyMisses = time.Microsecond, 1000
	s, _ := startReady(t, tortureSpec(t, "plain"), tm)
	_, err := s.Deliver(within(t, 12*tm.probeEvery), oneOf("hang", 1))
	if errors.Is(err, core.ErrSinkDied) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the batch: %v", err)
	}
}

// TestACallThatIsAnsweredShowsLife: no probe is in time here, yet the process is at work for us.
func TestACallThatIsAnsweredShowsLife(t *testing.T) {
	tm := quick()
	tm.probeTimeout, tm.busyMisses = time.Microsecond, 4
	s, _ := startReady(t, tortureSpec(t, "plain"), tm)
	pid := s.Status().PID
	for end := time.Now().Add(10 * tm.probeEvery); time.Now().Before(end); {
		if _, err := s.Deliver(within(t, 5*time.Second), batchOf(10)); err != nil {
			t.Fatal(err)
		}
	}
	if st := s.Status(); st.PID != pid {
		t.Errorf("killed: %+v", st)
	}
}

func TestALiveButUnreachableProcessIsReplaced(t *testing.T) {
	spec := tortureSpec(t, "plain")
	s, logs := startReady(t, spec, defaultTiming())
	pid := s.Status().PID
	if err := os.RemoveAll(spec.RuntimeDir); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Deliver(within(t, 5*time.Second), batchOf(1)); err != nil {
		t.Errorf("over the connection that is still there: %v", err)
	}
	// The connection breaks, and the socket to make another is gone. One call is in flight, others come later.
	var callers sync.WaitGroup
	for n := range 8 {
		callers.Go(func() {
			typ := "t"
			if n == 0 {
				typ = "hang"
			}
			time.Sleep(time.Duration(n) * 20 * time.Millisecond)
			_, err := s.Deliver(within(t, 5*time.Second), oneOf(typ, 1))
			if errors.Is(err, core.ErrSinkDied) {
				t.Errorf("call %d: a crash is counted for its records: %v", n, err)
			}
		})
	}
	time.Sleep(10 * time.Millisecond)
	s.ready.Load().child.dropConnection(t)
	callers.Wait()
	eventually(t, "replaced, before any probe", 4*time.Second, func() bool {
		_, err := s.Deliver(within(t, 5*time.Second), batchOf(1))
		st := s.Status()
		return err == nil && st.PID != pid && st.PID != 0
	})
	contains(t, logs.String(), "could not be reached")
	eventually(t, "the old one is gone", time.Second, func() bool { return !running(pid) })
}

// TestASinksOwnUnavailableIsNoLostConnection: in another language that status is the natural word for a broker that is
// away, and no reason to restart a healthy process.
func TestASinksOwnUnavailableIsNoLostConnection(t *testing.T) {
	s, _ := startReady(t, tortureSpec(t, "generated", "unavailable"), defaultTiming())
	pid := s.Status().PID
	begin := time.Now()
	_, err := s.Deliver(within(t, 5*time.Second), batchOf(1))
	if err == nil || errors.Is(err, core.ErrSinkDied) || errors.Is(err, core.ErrNotSent) || !strings.Contains(err.Error(), "broker is away") {
		t.Errorf("%v", err)
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("took %v", took)
	}
	if st := s.Status(); st.State != Running || st.PID != pid {
		t.Errorf("%+v", st)
	}
}

// dropConnection closes the host's end of the connection, by its descriptor.
func (c *child) dropConnection(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	dropped := 0
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		addr, err := syscall.Getpeername(fd)
		if ua, ok := addr.(*syscall.SockaddrUnix); err == nil && ok && ua.Name == c.socket {
			if err := syscall.Shutdown(fd, syscall.SHUT_RDWR); err != nil {
				t.Fatal(err)
			}
			dropped++
		}
	}
	if dropped != 1 {
		t.Fatalf("dropped %d connections", dropped)
	}
}

func TestAProcessThatIsWedgedInOpenIsReplaced(t *testing.T) {
	tm := quick()
	tm.open = 200 * time.Millisecond
	s, logs := startReady(t, tortureSpec(t, "open-wedges", shortDir(t)+"/mark"), tm)
	if st := s.Status(); st.Restarts != 1 {
		t.Errorf("%+v", st)
	}
	contains(t, logs.String(), "answered neither open nor a probe")
}

// TestPeer: whoever serves the socket must be of the process group that was started.
func TestPeer(t *testing.T) {
	listener, err := net.Listen("unix", shortDir(t)+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := checkPeer(conn, syscall.Getpgrp()); err != nil {
		t.Error(err)
	}
	if err := checkPeer(conn, 1); err == nil || !strings.Contains(err.Error(), "is not the one that was started (1)") {
		t.Errorf("another process group: %v", err)
	}
}

func TestCrashLoopIsQuarantinedAndTriedAgain(t *testing.T) {
	tm := quick()
	tm.quarantine = 300 * time.Millisecond
	spec := tortureSpec(t, "dies-at-open")
	logs := &logBuffer{}
	s := start(spec, logs.logger(), tm)
	defer closeSink(t, s)
	s.ExpectCrash(true) // of a call, which there is none
	eventually(t, "quarantined", 10*time.Second, func() bool { return s.Status().State == Quarantined })
	st := s.Status()
	if st.Restarts != tm.breakerExits-1 {
		t.Errorf("after %d starts", st.Restarts+1)
	}
	contains(t, st.Reason, "exit status 4")
	if _, err := s.Deliver(within(t, time.Second), batchOf(1)); !errors.Is(err, core.ErrNotSent) || !strings.Contains(err.Error(), "quarantined") {
		t.Errorf("Deliver: %v", err)
	}
	eventually(t, "one trial, then quarantined again", 10*time.Second, func() bool {
		st := s.Status()
		return st.Restarts == tm.breakerExits && st.State == Quarantined
	})
}

// TestExpectedCrashesDoNotFeedTheBreaker: the engine sends suspects one after the other, and each may kill.
func TestExpectedCrashesDoNotFeedTheBreaker(t *testing.T) {
	s, _ := startReady(t, tortureSpec(t, "plain"), quick())
	for n := range 2 * quick().breakerExits {
		s.ExpectCrash(true)
		_, err := s.Deliver(within(t, 10*time.Second), oneOf("exit", 1))
		s.ExpectCrash(false)
		if !errors.Is(err, core.ErrSinkDied) {
			t.Fatalf("crash %d: %v, %+v", n, err, s.Status())
		}
		if err := s.Ready(within(t, 10*time.Second)); err != nil {
			t.Fatalf("crash %d: %v", n, err)
		}
	}
}

func TestBreaker(t *testing.T) {
	now := time.Unix(0, 0)
	t.Run("fruitless exits", func(t *testing.T) {
		b := breaker{timing: defaultTiming()}
		for n := range 4 {
			wait, quarantine := b.exited(now, time.Second, false, false)
			if quarantine || wait > b.timing.backoffMin<<n {
				t.Errorf("exit %d: %v %v", n, wait, quarantine)
			}
		}
		if wait, quarantine := b.exited(now, time.Second, false, false); !quarantine || wait != 5*time.Minute {
			t.Errorf("fifth: %v %v", wait, quarantine)
		}
		if _, quarantine := b.exited(now, time.Second, false, false); !quarantine {
			t.Error("the trial failed, and it is not quarantined again")
		}
		if _, quarantine := b.exited(now, time.Minute, false, false); quarantine {
			t.Error("the trial ran for a minute, and it is quarantined at its next exit")
		}
	})
	t.Run("slow exits", func(t *testing.T) {
		b := breaker{timing: defaultTiming()}
		for n := range 50 {
			if _, quarantine := b.exited(now.Add(time.Duration(n)*3*time.Minute), time.Second, false, false); quarantine {
				t.Fatalf("exit %d, one every three minutes: quarantined", n)
			}
		}
	})
	t.Run("fruitful exits", func(t *testing.T) {
		b := breaker{timing: defaultTiming()}
		for n := range 100 {
			if wait, quarantine := b.exited(now, time.Second, true, false); quarantine || wait > b.timing.backoffMin<<fruitfulFailures {
				t.Fatalf("exit %d: %v %v", n, wait, quarantine)
			}
		}
	})
	t.Run("expected exits", func(t *testing.T) {
		b := breaker{timing: defaultTiming()}
		for n := range 100 {
			if wait, quarantine := b.exited(now, 0, false, true); quarantine || wait > b.timing.backoffMin {
				t.Fatalf("exit %d: %v %v", n, wait, quarantine)
			}
		}
	})
}

// TestNoOrphans kills a daemon with SIGKILL: its plugin must go with it, and the next daemon removes what it left.
// Orphans, and what they go on doing: https://github.com/hashicorp/go-plugin/issues/10, https://github.com/dkron-io/dkron/issues/247,
// https://github.com/flanksource/mission-control/pull/3185
func TestNoOrphans(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	base := shortDir(t)
	cmd := exec.Command(exe, "daemon", base)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if !running(pid) {
		t.Fatal("no plugin to begin with")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no plugin is alive", 100*time.Millisecond, func() bool { return !running(pid) })
	_ = cmd.Wait()

	spec := tortureSpec(t, "plain")
	spec.RuntimeDir = base
	s, _ := startReady(t, spec, defaultTiming())
	left, err := os.ReadDir(base)
	if err != nil || len(left) != 1 {
		t.Errorf("runtime directory holds %v (%v), expected the new process's directory only", left, err)
	}
	closeSink(t, s)
}

// TestTheLifelineEndsAPlugin: without the kernel's help the end of stdin must do.
func TestTheLifelineEndsAPlugin(t *testing.T) {
	s, _ := startReady(t, tortureSpec(t, "plain"), defaultTiming())
	pid := s.Status().PID
	_ = s.ready.Load().child.stdin.Close()
	eventually(t, "it ended", time.Second, func() bool { return !running(pid) })
}

func TestRestartsLeakNothing(t *testing.T) {
	tm := quick()
	tm.breakerExits = 1 << 30
	tm.backoffMax = 2 * time.Millisecond
	spec := tortureSpec(t, "plain")
	s, _ := startReady(t, spec, tm)
	restart := func(times int) {
		for range times {
			pid := s.Status().PID
			if err := kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, "running again", 10*time.Second, func() bool {
				st := s.Status()
				return st.State == Running && st.PID != pid
			})
		}
	}
	count := func() (goroutines, fds int) {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return runtime.NumGoroutine(), len(entries)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would close what we forget
	restart(10)
	g0, f0 := count()
	restart(200)
	eventually(t, "goroutines and descriptors are back", 5*time.Second, func() bool {
		g, f := count()
		return g <= g0+2 && f <= f0+2
	})
	eventually(t, "one start directory is left", 5*time.Second, func() bool {
		left, err := os.ReadDir(spec.RuntimeDir) // the last one's is removed beside the new process's start
		return err == nil && len(left) == 1
	})
}

// TestSpeed measures what a restart costs. The race detector makes everything slower, so the goals then stand aside.
func TestSpeed(t *testing.T) {
	spec := tortureSpec(t, "plain")
	var ready, again []time.Duration
	for range 5 {
		begin := time.Now()
		s := start(spec, (&logBuffer{}).logger(), quick())
		if err := s.Ready(within(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		ready = append(ready, time.Since(begin))
		begin = time.Now()
		if err := kill(s.Status().PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		first := true
		eventually(t, "redelivered", 10*time.Second, func() bool {
			_, err := s.Deliver(context.Background(), batchOf(10))
			ok := err == nil && !first
			first = first && err == nil
			return ok
		})
		again = append(again, time.Since(begin))
		closeSink(t, s)
	}
	limit := 50 * time.Millisecond
	if raceEnabled {
		limit *= 20
	}
	t.Logf("ready after %v, delivers again after %v", ready, again)
	if best := minimum(ready); best > limit {
		t.Errorf("the fastest start took %v, more than %v", best, limit)
	}
	if best := minimum(again); best > limit {
		t.Errorf("the fastest recovery took %v, more than %v", best, limit)
	}
}

func minimum(ds []time.Duration) time.Duration {
	m := ds[0]
	for _, d := range ds {
		m = min(m, d)
	}
	return m
}
