package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A disk with little room, of which the sink's file is on.
type smallDisk struct {
	dir string
	// fill leaves room for some 64 KiB more, free makes room again.
	fill, free func(t *testing.T, sink int)
	reason     string
}

// TestFullDisk: the sink's file system, or the limit of its file, is full in the middle of a backlog. The connector waits
// and says why, no row is charged, and it goes on by itself when there is room again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	t.Run("file system", func(t *testing.T) {
		t.Parallel()
		disk, err := mountSmallDisk(t)
		if errors.Is(err, unix.EPERM) {
			t.Logf("this process may not mount a file system (%v): only the other way to fill a disk is tried", err)
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Log("a tmpfs of 1 MiB, with ENOSPC")
		fillDisk(t, disk)
	})
	t.Run("limit", func(t *testing.T) {
		t.Parallel()
		t.Log("a limit of the file's size, with EFBIG")
		fillDisk(t, limitedDisk(t))
	})
}

// mountSmallDisk mounts a file system of 1 MiB until the test ends.
func mountSmallDisk(t *testing.T) (smallDisk, error) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		return smallDisk{}, err
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	other := filepath.Join(dir, "other")
	return smallDisk{
		dir: dir, reason: "no space left on device",
		fill: func(t *testing.T, _ int) {
			var room unix.Statfs_t
			if err := unix.Statfs(dir, &room); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(other, make([]byte, int64(room.Bavail)*room.Bsize-64<<10), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		free: func(t *testing.T, _ int) {
			if err := os.Remove(other); err != nil {
				t.Fatal(err)
			}
		},
	}, nil
}

// limitedDisk limits the size of the sink's file, as `ulimit -f` does.
func limitedDisk(t *testing.T) smallDisk {
	dir := t.TempDir()
	limit := func(t *testing.T, sink int, size uint64) {
		t.Helper()
		var old unix.Rlimit
		if err := unix.Prlimit(sink, unix.RLIMIT_FSIZE, nil, &old); err != nil {
			t.Fatal(err)
		}
		if err := unix.Prlimit(sink, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: old.Max}, nil); err != nil {
			t.Fatal(err)
		}
	}
	return smallDisk{
		dir: dir, reason: "file too large",
		fill: func(t *testing.T, sink int) { limit(t, sink, 64<<10) },
		free: func(t *testing.T, sink int) { limit(t, sink, 64<<20) },
	}
}

func fillDisk(t *testing.T, disk smallDisk) {
	dir := shopDir(t, strings.Replace(quickstart, "lease: 2s", "lease: 2s, retry: {initial: 10ms, max: 200ms}", 1))
	write(t, disk.dir, "lines", "")
	if err := os.Symlink(filepath.Join(disk.dir, "lines"), filepath.Join(dir, "out.jsonl")); err != nil {
		t.Fatal(err)
	}
	s := openShop(t, dir)
	d := startDaemon(t, dir)
	d.ready()
	s.insert(10, 5)
	s.published(10)
	sink := d.sinkPID()
	disk.fill(t, sink)
	s.insertLarge(100, 5, 4<<10)
	d.eventually("readiness gives the reason", func() (bool, string) {
		code, body := d.get("/readyz")
		return code == 503 && strings.Contains(body, "sink: the gate is closed: ") && strings.Contains(body, disk.reason), body
	})
	d.eventually("so does the status", func() (bool, string) {
		c := statusOf(t, dir)
		return c.State == "waiting" && strings.Contains(c.Reason, "sink: gate closed: ") && strings.Contains(c.Reason, disk.reason), fmt.Sprint(c)
	})
	connectd(t, dir, "status").want(t, 0, "waiting", disk.reason)
	published := s.count("published") // first: a small record may still fit between the two looks
	if there := len(arrivals(t, dir)); there < published || published == 110 {
		t.Errorf("%d lines are in the file and %d rows published", there, published)
	}
	var attempts, stopped int
	if err := s.db.QueryRow("SELECT max(attempts), sum(state IN ('dead', 'held')) FROM outbox").Scan(&attempts, &stopped); err != nil || attempts+stopped != 0 {
		t.Errorf("a full disk was charged to rows: %d attempts, %d dead or held, %v", attempts, stopped, err)
	}
	if d.sinkPID() != sink {
		t.Error("the sink's process died of it")
	}
	disk.free(t, sink)
	s.published(110)
	d.ready()
	if n := audit(t, dir, 110); n != 0 {
		t.Errorf("%d rows were sent twice", n)
	}
}
