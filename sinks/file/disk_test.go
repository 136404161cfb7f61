package file

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

// slowDisk is a target that does as it is told, for what no real disk does on demand.
type slowDisk struct {
	mu      sync.Mutex
	writes  int
	syncs   int
	closes  int
	writing chan struct{} // receives when a write begins
	release chan struct{} // a write waits for it
	syncing chan error    // a sync waits for its result
}

func (d *slowDisk) stale() error { return nil }

func (d *slowDisk) count(n *int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*n++
}

func (d *slowDisk) write(context.Context, []byte) (bool, error) {
	d.count(&d.writes)
	if d.writing != nil {
		d.writing <- struct{}{}
		<-d.release
	}
	return false, nil
}

func (d *slowDisk) sync() (bool, error) {
	d.count(&d.syncs)
	err := <-d.syncing
	return err != nil, err
}

func (d *slowDisk) close() error { d.count(&d.closes); return nil }

// onto returns a sink that writes to the target, and to path when the target was dropped.
func onto(t *testing.T, path string, disk target) *Sink {
	t.Helper()
	s := configured(t, path)
	w := newWriter(*s.config, nil, slog.New(slog.DiscardHandler))
	w.target = disk
	go w.run()
	if err := s.life.Open(func() (*writer, error) { return w, nil }); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConcurrentBatchesShareASync(t *testing.T) {
	disk := &slowDisk{syncing: make(chan error)}
	s := onto(t, "unused", disk)
	var first, rest sync.WaitGroup
	first.Go(func() { wantDelivered(t, send(t, s, "1")) })
	waitFor(t, func() bool { disk.mu.Lock(); defer disk.mu.Unlock(); return disk.syncs == 1 })
	for range 10 {
		rest.Go(func() { wantDelivered(t, send(t, s, "x")) })
	}
	// All ten must be waiting before the first sync ends; nothing tells that from outside but the goroutines.
	waitFor(t, func() bool { return goroutinesIn("(*writer).do") == 11 })
	disk.syncing <- nil
	first.Wait()
	disk.syncing <- nil
	rest.Wait()
	if disk.writes != 11 || disk.syncs != 2 {
		t.Errorf("%d writes with %d syncs, want 11 with 2", disk.writes, disk.syncs)
	}
}

func TestFailedSync(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	disk := &slowDisk{syncing: make(chan error, 1)}
	s := onto(t, path, disk)
	disk.syncing <- syscall.EIO
	wantFailed(t, send(t, s, "1", "2"), "sync_failed", true)
	if disk.closes != 1 {
		t.Error("the file was not closed after a failed sync")
	}
	wantDelivered(t, send(t, s, "1", "2")) // on a file opened anew
	wantLines(t, path, "1", "2")
}

// TestStuckDisk checks that everybody keeps their deadline, and that what is known is said.
func TestStuckDisk(t *testing.T) {
	disk := &slowDisk{writing: make(chan struct{}, 1), release: make(chan struct{}), syncing: make(chan error, 1)}
	s := onto(t, "unused", disk)
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan []core.Outcome)
	go func() {
		outcomes, err := s.Deliver(ctx, records("1", "2"))
		if err != nil {
			t.Error(err)
		}
		answer <- outcomes
	}()
	<-disk.writing
	cancel()
	outcomes := <-answer
	wantFailed(t, outcomes, "timeout", true)
	if _, err := s.Deliver(short(), records("3")); !errors.Is(err, core.ErrNotSent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Deliver behind a stuck one: %v", err)
	}
	if err := s.Health(short()); err == nil {
		t.Error("Health is fine on a stuck disk")
	}
	if err := s.Close(short()); err == nil || !strings.Contains(err.Error(), "stuck") {
		t.Errorf("Close: %v", err)
	}
	disk.syncing <- nil
	close(disk.release)
}
