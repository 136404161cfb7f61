package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// target is where lines go. Only the writer's goroutine uses it.
type target interface {
	// stale reports why the target is no longer what the path names, or nil.
	stale() error
	// write appends whole lines, all or nothing. With an error, stayed says whether some of them may be there all the same.
	write(ctx context.Context, lines []byte) (stayed bool, err error)
	// sync makes what was written since the last sync durable. After an error none of it counts, stayed is as for
	// write, and the target must be closed.
	sync() (stayed bool, err error)
	close() error
}

// openTarget opens what the path names, and creates the file if there is nothing. Notes are things worth a line in the log.
func openTarget(c config, stream io.Writer, note func(msg string, args ...any)) (target, error) {
	if c.Path == logStream {
		return &pipe{name: "the log", w: stream}, nil
	}
	info, err := os.Stat(c.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return create(c, note)
	case err != nil:
		return nil, fmt.Errorf("look at %s: %w", c.Path, plain(err))
	case info.Mode().IsRegular():
		return openRegular(c, note)
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory, not a file", c.Path)
	case info.Mode().Type() == fs.ModeNamedPipe, info.Mode()&fs.ModeCharDevice != 0:
		return openPipe(c.Path)
	default:
		return nil, fmt.Errorf("%s is neither a file nor a pipe (%v)", c.Path, info.Mode().Type())
	}
}

// create makes the file and makes its name durable.
func create(c config, note func(string, ...any)) (target, error) {
	dir := filepath.Dir(c.Path)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("create %s: the directory %s must exist", c.Path, dir)
	}
	f, err := os.OpenFile(c.Path, os.O_CREATE|os.O_EXCL|os.O_RDWR|os.O_APPEND, fs.FileMode(c.Mode))
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", c.Path, plain(err))
	}
	if err := f.Chmod(fs.FileMode(c.Mode)); err != nil { // the umask may have taken bits away
		_ = f.Close()
		return nil, fmt.Errorf("set the permissions of %s: %w", c.Path, plain(err))
	}
	if c.Sync {
		if err := syncDir(dir); err != nil {
			_ = f.Close()
			return nil, err
		}
	}
	return adopt(f, c, note)
}

func openRegular(c config, note func(string, ...any)) (target, error) {
	f, err := os.OpenFile(c.Path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", c.Path, plain(err))
	}
	return adopt(f, c, note)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open the directory %s to make the new file's name durable: %w", dir, plain(err))
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("make the new file's name durable in %s: %w", dir, plain(err))
	}
	return nil
}

// named checks that the path still names the file that info tells of.
func named(path string, info fs.FileInfo) error {
	now, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s was removed or renamed", path)
	}
	if err != nil {
		return fmt.Errorf("look at %s: %w", path, plain(err))
	}
	if !os.SameFile(now, info) {
		return fmt.Errorf("%s is another file now", path)
	}
	return nil
}

// plain strips the operation and the path from a file error, which the caller's words name already.
func plain(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}
