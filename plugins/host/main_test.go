package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/connectd/connectd/core"
)

// The test binary is also its plugins and its daemons: started with one of these arguments it becomes one.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case "torture":
			torture(os.Args[2:])
			return
		case "daemon":
			daemon(os.Args[2:])
			return
		}
	}
	goleak.VerifyTestMain(m)
}

// logBuffer collects what a host logs.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// shortDir is a directory with a path short enough for sockets.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ch") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// tortureSpec starts this binary as a plugin that misbehaves in the way of the mode.
func tortureSpec(t testing.TB, mode string, more ...string) Spec {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Spec{Connector: "test", Plugin: "torture", Path: exe, Args: append([]string{"torture", mode}, more...),
		RuntimeDir: shortDir(t), Settings: []byte(`{}`), StartTimeout: 10 * time.Second,
		Env: []string{"GORACE=atexit_sleep_ms=0"}} // else a program built with -race takes a second to end
}

// startReady starts a sink, waits until it is ready and closes it at the end.
func startReady(t testing.TB, spec Spec, tm timing) (*Sink, *logBuffer) {
	t.Helper()
	logs := &logBuffer{}
	s := start(spec, logs.logger(), tm)
	t.Cleanup(func() { closeSink(t, s) })
	if err := s.Ready(within(t, 20*time.Second)); err != nil {
		t.Fatalf("Ready: %v\n%s", err, logs)
	}
	return s, logs
}

func closeSink(t testing.TB, s *Sink) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Logf("Close: %v", err)
	}
}

// within is a context that ends after d, or with the test.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, limit time.Duration, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(time.Millisecond)
	}
}

func contains(t testing.TB, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("missing %q in: %s", w, text)
		}
	}
}

func batchOf(n int) []core.Record {
	batch := make([]core.Record, n)
	for i := range batch {
		batch[i] = core.Record{ID: fmt.Sprintf("id-%d", i), Key: fmt.Sprintf("k%d", i%7), Keyed: true, Type: "t",
			Payload: []byte(`{"n":1}`), Seq: int64(i + 1), Deliveries: 1, Epoch: 3, CreatedAt: time.UnixMicro(1700000000000000).UTC()}
	}
	return batch
}

// kill sends a signal to a process, or to the group of -pid, and never to our own group, which 0 would mean.
func kill(pid int, sig syscall.Signal) error {
	if pid == 0 {
		return errors.New("there is no process to kill")
	}
	return syscall.Kill(pid, sig)
}
