package file

import (
	"context"
	"fmt"
	"io/fs"
	"os"
)

// regular is an open and locked file that ends with a whole line.
type regular struct {
	path   string
	f      *os.File
	info   fs.FileInfo // which file f is
	size   int64       // where the next line goes
	synced int64       // size after the last sync, or when opened
	dirty  bool        // something may not be durable yet
	wait   bool        // sync for real
}

// adopt locks an open file, checks that the path still names it, and removes a torn last line. It closes f on failure.
func adopt(f *os.File, c config, note func(string, ...any)) (_ target, err error) {
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	if err := lock(f); err != nil {
		return nil, fmt.Errorf("lock %s: %w", c.Path, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", c.Path, plain(err))
	}
	t := &regular{path: c.Path, f: f, info: info, size: info.Size(), wait: c.Sync}
	if err := named(t.path, t.info); err != nil {
		return nil, err
	}
	end, err := lastLineEnd(f, t.size, maxTorn)
	if err != nil {
		return nil, fmt.Errorf("check the end of %s: %w", c.Path, err)
	}
	if end < t.size {
		if err := f.Truncate(end); err != nil {
			return nil, fmt.Errorf("remove the unfinished last line of %s: %w", c.Path, plain(err))
		}
		note("removed an unfinished last line that a crash had left", "path", c.Path, "bytes", t.size-end)
		t.size = end
	}
	t.synced = t.size
	t.dirty = true // what a killed predecessor wrote may not be durable, and a line of ours may not survive it
	return t, nil
}

func (t *regular) stale() error {
	if err := named(t.path, t.info); err != nil {
		return err
	}
	info, err := t.f.Stat()
	if err != nil {
		return fmt.Errorf("look at %s: %w", t.path, plain(err))
	}
	if info.Size() != t.size {
		return fmt.Errorf("%s has %d bytes and not %d as the sink left it", t.path, info.Size(), t.size)
	}
	return nil
}

func (t *regular) write(_ context.Context, lines []byte) (stayed bool, err error) {
	n, err := t.f.Write(lines)
	if err == nil {
		t.size += int64(n)
		t.dirty = true
		return false, nil
	}
	err = fmt.Errorf("write to %s: %w", t.path, plain(err))
	if n == 0 {
		return false, err
	}
	if undo := t.f.Truncate(t.size); undo != nil {
		return true, fmt.Errorf("%w; and take it back: %w", err, plain(undo))
	}
	return false, err
}

func (t *regular) sync() (stayed bool, err error) {
	if t.wait && t.dirty {
		if err := t.f.Sync(); err != nil {
			// The kernel may count the lost pages as written from now on, so only writing the lines again helps.
			err = fmt.Errorf("sync %s: %w", t.path, plain(err))
			if undo := t.f.Truncate(t.synced); undo != nil {
				err = fmt.Errorf("%w; and take it back: %w", err, plain(undo))
			}
			return true, err
		}
	}
	t.synced, t.dirty = t.size, false
	if unlinked(t.f) {
		return false, fmt.Errorf("%s was removed while lines were written to it", t.path)
	}
	return false, nil
}

func (t *regular) close() error {
	if err := t.f.Close(); err != nil { // gives up the lock as well
		return fmt.Errorf("close %s: %w", t.path, plain(err))
	}
	return nil
}
