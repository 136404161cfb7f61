package file

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

// underLoad has four callers deliver n batches of two records each, and gives the ids by what the sink said of them.
func underLoad(t *testing.T, s *Sink, n int) (delivered, failed []string) {
	t.Helper()
	var mu sync.Mutex
	var callers sync.WaitGroup
	for caller := range 4 {
		callers.Go(func() {
			for i := range n {
				ids := []string{fmt.Sprintf("%d-%d-a", caller, i), fmt.Sprintf("%d-%d-b", caller, i)}
				outcomes, err := s.Deliver(t.Context(), records(ids...))
				mu.Lock()
				switch {
				case err != nil || outcomes[0].Unknown || outcomes[1].Kind == core.Delivered && outcomes[0].Kind != core.Delivered:
					t.Errorf("batch %v: %+v, %v", ids, outcomes, err)
				case outcomes[1].Kind == core.Delivered:
					delivered = append(delivered, ids...)
				default:
					failed = append(failed, ids...)
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	return delivered, failed
}

// wantExactly checks that each id is in the files once, and nothing else is.
func wantExactly(t *testing.T, files []string, ids []string) {
	t.Helper()
	count := map[string]int{}
	for _, f := range files {
		for _, id := range lines(t, f) {
			count[id]++
		}
	}
	for _, id := range ids {
		if count[id] != 1 {
			t.Errorf("%s was delivered once and is there %d times", id, count[id])
		}
		delete(count, id)
	}
	if len(count) > 0 {
		t.Errorf("%d records are there that were not delivered", len(count))
	}
}

// TestRotationUnderLoad renames the file again and again while batches are on their way. A batch may fail when the file
// goes between its opening and its locking, but no line is lost or written twice.
func TestRotationUnderLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	s := open(t, path)
	files := []string{path}
	stop, rotated := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(rotated)
		// Slow enough that something is written between two of them, and quick enough to hit calls.
		turn := time.NewTicker(time.Millisecond / 2)
		defer turn.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-turn.C:
			}
			to := fmt.Sprintf("%s.%d", path, i)
			if os.Rename(path, to) == nil { // there may be no new file yet
				files = append(files, to)
			}
		}
	}()
	delivered, failed := underLoad(t, s, 50)
	close(stop)
	<-rotated
	if len(delivered) == 0 || len(files) < 3 {
		t.Errorf("%d delivered, %d failed, %d files: the test shows nothing", len(delivered), len(failed), len(files))
	}
	wantExactly(t, files, delivered)
}

// TestFullDiskUnderLoad fills the disk in the middle of many calls.
func TestFullDiskUnderLoad(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "out")
	s := open(t, path)
	restore := limitFiles(t, 20_050)
	delivered, failed := underLoad(t, s, 50)
	if len(delivered) == 0 || len(failed) == 0 {
		t.Errorf("%d delivered, %d failed: the limit was not in the middle", len(delivered), len(failed))
	}
	wantExactly(t, []string{path}, delivered)
	restore()
	wantDelivered(t, send(t, s, "last"))
	wantExactly(t, []string{path}, append(delivered, "last"))
}
