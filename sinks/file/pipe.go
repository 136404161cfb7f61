package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// pipe is a target that cannot be read back, locked or synced: a named pipe, a device, or the log. Written is all that
// can be known of it.
type pipe struct {
	name string
	w    io.Writer
	f    *os.File    // the same as w; nil for the log, which the sink did not open
	info fs.FileInfo // which file f is
	torn bool        // the last write ended somewhere in a line
}

// openPipe does not wait for a reader of a named pipe, which could take for ever.
func openPipe(path string) (target, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENXIO) {
		return nil, fmt.Errorf("open %s: nobody reads from this pipe", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, plain(err))
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("look at %s: %w", path, plain(err))
	}
	return &pipe{name: path, w: f, f: f, info: info}, nil
}

func (p *pipe) stale() error {
	if p.f == nil {
		return nil
	}
	return named(p.name, p.info)
}

func (p *pipe) write(ctx context.Context, lines []byte) (stayed bool, err error) {
	if p.f != nil {
		defer p.interrupt(ctx)()
	}
	if p.torn {
		// End the broken line, so that its reader loses no other.
		if _, err := io.WriteString(p.w, "\n"); err != nil {
			return false, fmt.Errorf("write to %s: %w", p.name, plain(err))
		}
		p.torn = false
	}
	n, err := p.w.Write(lines)
	if err != nil {
		p.torn = n > 0 && lines[n-1] != '\n'
		return n > 0, fmt.Errorf("write to %s: %w", p.name, plain(err))
	}
	return false, nil
}

// interrupt ends writes that block (nobody empties the pipe) when ctx is done, until the returned function is called.
// Devices know no deadlines; they do not block either.
func (p *pipe) interrupt(ctx context.Context) (end func()) {
	_ = p.f.SetWriteDeadline(time.Time{})
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = p.f.SetWriteDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	return func() {
		if !stop() {
			<-interrupted // or it would spoil the next write
		}
	}
}

func (p *pipe) sync() (stayed bool, err error) { return false, nil }

func (p *pipe) close() error {
	if p.f == nil {
		return nil
	}
	if err := p.f.Close(); err != nil {
		return fmt.Errorf("close %s: %w", p.name, plain(err))
	}
	return nil
}
