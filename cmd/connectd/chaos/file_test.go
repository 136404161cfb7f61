//go:build linux

package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fileReceiver reads what the file sink wrote. The file has no times, so it is followed while it grows.
type fileReceiver struct {
	path  string
	disk  string // what may be filled; "" when it is the machine's
	done  chan struct{}
	ended chan struct{}

	mu     sync.Mutex
	offset int64
	seen   map[string]time.Time // line → when it was first there
}

// line is one of the file.
type line struct {
	ID                string  `json:"id"`
	Key               *string `json:"key"`
	Payload           payload `json:"payload"`
	Deliveries        int     `json:"deliveries"`
	PossibleDuplicate bool    `json:"possible_duplicate"`
	Epoch             int64   `json:"epoch"`
}

type payload struct {
	Key     string `json:"key"`
	N       int    `json:"n"`
	Ballast string `json:"ballast,omitempty"`
}

// startFile follows a file on a small file system of its own, where this process may mount one.
func startFile(t *testing.T, dir string, total time.Duration) *fileReceiver {
	t.Helper()
	f := &fileReceiver{done: make(chan struct{}), ended: make(chan struct{}), seen: map[string]time.Time{}}
	disk := filepath.Join(dir, "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	room := 16 + 2*int(total/time.Second)/10 // MiB, for some 1,000 lines a second
	switch err := unix.Mount("tmpfs", disk, "tmpfs", 0, fmt.Sprintf("size=%dm", room)); {
	case err == nil:
		f.disk = disk
		t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	case !errors.Is(err, unix.EPERM):
		t.Fatal(err)
	}
	f.path = filepath.Join(disk, "out.jsonl")
	go f.follow()
	t.Cleanup(func() {
		close(f.done)
		<-f.ended
	})
	return f
}

func (f *fileReceiver) yaml() string         { return fmt.Sprintf("plugin: file, path: %q", f.path) }
func (f *fileReceiver) address() string      { return "" }
func (f *fileReceiver) target(string) string { return "" }
func (f *fileReceiver) name() string {
	if f.disk == "" {
		return "a file; its disk could not be filled, since this process may not mount one"
	}
	return "a file on a tmpfs"
}

// hinder takes all room but that of a few lines.
func (f *fileReceiver) hinder(what) (mend func() error, err error) {
	if f.disk == "" {
		return nil, errMissed
	}
	filler := filepath.Join(f.disk, "filler")
	mend = func() error { return os.Remove(filler) }
	var room unix.Statfs_t
	if err := unix.Statfs(f.disk, &room); err != nil {
		return mend, err
	}
	out, err := os.Create(filler)
	if err != nil {
		return mend, err
	}
	defer out.Close()
	return mend, unix.Fallocate(int(out.Fd()), 0, 0, max(int64(room.Bavail)*room.Bsize-8<<10, 1))
}

// follow notes when lines were first there.
func (f *fileReceiver) follow() {
	defer close(f.ended)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		f.look()
		select {
		case <-f.done:
			return
		case <-tick.C:
		}
	}
}

// look reads the lines that are new. The sink takes a batch back that it could not write as a whole, so the file may
// become shorter; the lines at its end then are read again.
func (f *fileReceiver) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	in, err := os.Open(f.path)
	if err != nil {
		return
	}
	defer in.Close()
	if info, err := in.Stat(); err != nil || info.Size() < f.offset {
		f.offset = 0
	}
	fresh, err := io.ReadAll(io.NewSectionReader(in, f.offset, 1<<30))
	if err != nil {
		return
	}
	fresh = fresh[:bytes.LastIndexByte(fresh, '\n')+1]
	f.offset += int64(len(fresh))
	now := time.Now()
	for text := range bytes.Lines(fresh) {
		if _, known := f.seen[string(text)]; !known {
			f.seen[string(text)] = now
		}
	}
}

// received reads the whole file. The last line may be torn: its sink was killed.
func (f *fileReceiver) received() (list []reception, err error) {
	f.look()
	in, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	for lines := bufio.NewReader(in); ; {
		text, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		var l line
		if err == nil {
			err = json.Unmarshal([]byte(text), &l)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d of the file: %w", len(list)+1, err)
		}
		f.mu.Lock()
		at := f.seen[text]
		f.mu.Unlock()
		list = append(list, reception{ID: l.ID, Key: l.Payload.Key, N: l.Payload.N, Delivery: l.Deliveries,
			Marked: l.PossibleDuplicate, Epoch: l.Epoch, At: at})
	}
}
