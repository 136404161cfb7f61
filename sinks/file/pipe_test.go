package file

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// readerOf opens the reading end without waiting for a writer.
func readerOf(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := f.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return f
}

func readLine(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("read the pipe: %v", err)
	}
	return line
}

func TestFIFO(t *testing.T) {
	path := fifo(t)
	s := configured(t, path)
	if err := s.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "nobody reads") {
		t.Fatalf("Open without a reader: %v", err)
	}
	reader := readerOf(t, path)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantDelivered(t, send(t, s, "1"))
	if line := readLine(t, bufio.NewReader(reader)); !strings.HasPrefix(line, `{"id":"1"`) {
		t.Errorf("read %q", line)
	}
	_ = reader.Close()
	wantFailed(t, send(t, s, "2"), "write_failed", false)
	reader = readerOf(t, path)
	wantDelivered(t, send(t, s, "2"))
	if line := readLine(t, bufio.NewReader(reader)); !strings.HasPrefix(line, `{"id":"2"`) {
		t.Errorf("read %q", line)
	}
}

// TestFullFIFO fills a pipe that nobody empties: the call ends with its context, and the reader that comes back loses no
// line but the one that was cut.
func TestFullFIFO(t *testing.T) {
	path := fifo(t)
	reader := readerOf(t, path)
	s := open(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	big := []core.Record{{ID: "big", Payload: []byte(`"` + strings.Repeat("x", 1<<20) + `"`), Deliveries: 1}}
	answer := make(chan []core.Outcome)
	go func() {
		outcomes, err := s.Deliver(ctx, big)
		if err != nil {
			t.Error(err)
		}
		answer <- outcomes
	}()
	buffered := bufio.NewReader(reader)
	if _, err := buffered.Peek(1); err != nil { // the write has begun, and more than a pipe holds is still to come
		t.Fatal(err)
	}
	cancel()
	wantFailed(t, <-answer, "timeout", true)
	healthy, done := context.WithTimeout(t.Context(), 5*time.Second)
	defer done()
	if err := s.Health(healthy); err != nil {
		t.Errorf("the write is still stuck after its context: %v", err)
	}
	first := make(chan string)
	go func() {
		line, _ := buffered.ReadString('\n')
		first <- line
	}()
	wantDelivered(t, send(t, s, "next"))
	if cut := <-first; !strings.HasPrefix(cut, `{"id":"big"`) {
		t.Errorf("the cut line is %.40q", cut)
	}
	if line := readLine(t, buffered); !strings.HasPrefix(line, `{"id":"next"`) {
		t.Errorf("the line behind it is %.40q", line)
	}
}

func TestDevices(t *testing.T) {
	wantDelivered(t, send(t, open(t, os.DevNull), "1", "2"))
	if _, err := os.Stat("/dev/full"); err != nil {
		return // only some systems have it; TestFullDisk is about files everywhere
	}
	wantFailed(t, send(t, open(t, "/dev/full"), "1", "2"), "disk_full", false)
}
