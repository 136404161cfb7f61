package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Many processes of sinks on one machine, all started at once, come up and deliver: https://github.com/hashicorp/nomad/issues/6715
func TestManySinksAtOnce(t *testing.T) {
	const many = 50
	base := shortDir(t)
	sinks := make([]*Sink, many)
	for i := range sinks {
		spec := tortureSpec(t, "plain")
		spec.Connector, spec.RuntimeDir = fmt.Sprint("c", i), base
		sinks[i] = start(spec, (&logBuffer{}).logger(), defaultTiming())
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, s := range sinks {
		wg.Go(func() {
			defer closeSink(t, s)
			if err := s.Ready(within(t, 2*time.Minute)); err != nil {
				t.Errorf("sink %d: %v", i, err)
				return
			}
			if _, err := s.Deliver(within(t, time.Minute), batchOf(10)); err != nil {
				t.Errorf("sink %d: %v", i, err)
			}
		})
	}
}

// A number that the kernel has given to another process since is left alone: https://github.com/hashicorp/go-plugin/pull/320
func TestANumberThatIsAnothersIsNotKilled(t *testing.T) {
	s, _ := startReady(t, tortureSpec(t, "plain"), defaultTiming())
	c := s.ready.Load().child
	c.kill()
	<-c.done
	other := exec.Command("sleep", "60")
	other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Process.Kill() })
	c.mu.Lock()
	c.cmd.Process.Pid = other.Process.Pid // as if it had been used again
	c.mu.Unlock()
	c.kill()
	if err := c.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	// Had it been killed, this would come too late.
	if err := other.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	if by := other.ProcessState.Sys().(syscall.WaitStatus).Signal(); by != syscall.SIGTERM {
		t.Errorf("another process was ended by %v", by)
	}
}

// A sink is asked to close, and has the time to flush, before its process is ended: https://github.com/hashicorp/go-plugin/pull/81
func TestASinkMayFlushWhenItIsClosed(t *testing.T) {
	note := filepath.Join(shortDir(t), "note")
	s, _ := startReady(t, tortureSpec(t, "close-flushes", note), defaultTiming())
	pid := s.Status().PID
	if err := s.Close(within(t, 10*time.Second)); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(note); string(text) != "flushed" {
		t.Errorf("it flushed %q, %v", text, err)
	}
	if running(pid) {
		t.Error("the process still runs")
	}
}

// Why a sink cannot be opened is logged when it is another reason than before, and not each time.
func TestAnotherReasonNotToOpenIsLogged(t *testing.T) {
	tm := defaultTiming()
	tm.backoffMin, tm.backoffMax = time.Millisecond, time.Millisecond
	s, logs := startReady(t, tortureSpec(t, "open-fails-in-two-ways", filepath.Join(shortDir(t), "count")), tm)
	if st := s.Status(); st.Restarts != 0 {
		t.Errorf("restarts: %+v", st)
	}
	for _, reason := range []string{"broker is away", "the password is wrong"} {
		if n := strings.Count(logs.String(), reason); n != 1 {
			t.Errorf("%q was logged %d times:\n%s", reason, n, logs)
		}
	}
}
