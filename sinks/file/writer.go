package file

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/connectd/connectd/core"
)

// maxGroup is how many batches share one sync at most, so that the first of them does not wait for ever.
const maxGroup = 64

// writer owns the target. One goroutine does all its I/O, which cannot be interrupted on a disk that hangs, so that
// those who wait for it can leave when their time is up. Batches that come while a sync runs share the next one.
type writer struct {
	config config
	stream io.Writer // for the path "-"
	log    *slog.Logger

	jobs chan *job
	stop chan struct{} // closed by who wants it to end
	done chan struct{} // closed when it has ended

	// Only the goroutine uses these.
	target   target
	closeErr error
}

// job is one batch, or with no lines the question whether the target can be written to.
type job struct {
	ctx    context.Context
	lines  []byte
	free   func()      // called when lines are no longer needed
	answer chan result // with room for one
}

// result is what became of a job; the zero result is success.
type result struct {
	err    error
	code   string // stable word for err
	stayed bool   // the lines may be there although err is set
}

// newWriter returns a writer whose run must be started.
func newWriter(c config, stream io.Writer, log *slog.Logger) *writer {
	return &writer{
		config: c, stream: stream, log: log,
		jobs: make(chan *job), stop: make(chan struct{}), done: make(chan struct{}),
	}
}

// do hands in a job and waits for its end or the context's. Err is set when the job was not taken: nothing of it will
// happen. When the context ends after that, the result says that nothing is known.
func (w *writer) do(ctx context.Context, lines []byte, free func()) (result, error) {
	j := &job{ctx: ctx, lines: lines, free: free, answer: make(chan result, 1)}
	select {
	case w.jobs <- j:
	case <-ctx.Done():
		free()
		return result{}, fmt.Errorf("the disk is busy with earlier batches: %w: %w", core.ErrNotSent, ctx.Err())
	case <-w.done:
		free()
		return result{}, fmt.Errorf("the file sink is closed: %w", core.ErrNotSent)
	}
	select {
	case r := <-j.answer:
		return r, nil
	case <-ctx.Done():
		err := fmt.Errorf("%s did not answer in time: %w", w.config.Path, ctx.Err())
		return result{err: err, code: "timeout", stayed: len(lines) > 0}, nil
	}
}

// end asks the goroutine to finish and waits for it within ctx. It is called once.
func (w *writer) end(ctx context.Context) error {
	close(w.stop)
	select {
	case <-w.done:
		return w.closeErr
	case <-ctx.Done():
		return fmt.Errorf("close %s: a write is stuck: %w", w.config.Path, ctx.Err())
	}
}

func (w *writer) run() {
	defer close(w.done)
	defer func() {
		if w.target != nil {
			w.closeErr = w.target.close()
		}
	}()
	for {
		select {
		case <-w.stop:
			return
		case j := <-w.jobs:
			w.commit(j)
		}
	}
}

// commit writes the job and those that wait behind it, syncs once, and answers them all. The target is looked at before
// the first write only: once something is written and not synced, it must not be closed.
func (w *writer) commit(first *job) {
	if err := w.ready(); err != nil {
		first.free()
		first.answer <- result{err: err, code: "open_failed"}
		return
	}
	written := make([]*job, 0, maxGroup)
	for j := first; j != nil; {
		r := w.write(j)
		j.free()
		if r.err == nil {
			written = append(written, j)
		} else {
			j.answer <- r
		}
		if r.stayed {
			break // what follows would end up behind half a line
		}
		j = w.next(len(written))
	}
	var r result
	if stayed, err := w.target.sync(); err != nil {
		r = result{err: err, code: "sync_failed", stayed: stayed}
		w.drop()
	}
	for _, j := range written {
		j.answer <- r
	}
}

// next takes a job that waits, if there is one and the group is not full.
func (w *writer) next(group int) *job {
	if group >= maxGroup {
		return nil
	}
	select {
	case j := <-w.jobs:
		return j
	default:
		return nil
	}
}

func (w *writer) write(j *job) result {
	if len(j.lines) == 0 {
		return result{}
	}
	stayed, err := w.target.write(j.ctx, j.lines)
	if err != nil {
		return result{err: err, code: "write_failed", stayed: stayed}
	}
	return result{}
}

// ready opens the target, also again when the path names another file by now: log rotation, or somebody's rm.
func (w *writer) ready() error {
	if w.target != nil {
		reason := w.target.stale()
		if reason == nil {
			return nil
		}
		w.log.Info("opening the file again", "reason", reason)
		w.drop()
	}
	t, err := openTarget(w.config, w.stream, w.log.Info)
	if err != nil {
		return err
	}
	w.target = t
	return nil
}

// drop closes the target; the next job opens it anew.
func (w *writer) drop() {
	if err := w.target.close(); err != nil {
		w.log.Warn("closing the file failed", "error", err)
	}
	w.target = nil
}
