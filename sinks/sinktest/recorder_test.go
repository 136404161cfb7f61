package sinktest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// shortGrace is the grace in the tests of the suite itself.
const shortGrace = 300 * time.Millisecond

// recorder is a testing.TB that notes a failure instead of failing.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	skipped  bool
	lines    []string
	cleanups []func()
}

// trialRun runs a check like a test, cleanups included, and returns what became of it.
func trialRun(t *testing.T, c check, start func(t testing.TB) Harness) *recorder {
	t.Helper()
	r := &recorder{TB: t}
	r.isolated(func() {
		trial := newTrial(r, start(r))
		trial.patience, trial.grace = 2*time.Second, shortGrace
		c.run(trial)
	})
	for {
		r.mu.Lock()
		n := len(r.cleanups)
		if n == 0 {
			r.mu.Unlock()
			return r
		}
		last := r.cleanups[n-1]
		r.cleanups = r.cleanups[:n-1]
		r.mu.Unlock()
		r.isolated(last)
	}
}

// isolated runs f in a goroutine that it may end.
func (r *recorder) isolated(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.note(true, "panic: %v", p)
			}
		}()
		f()
	}()
	<-done
}

func (r *recorder) note(failure bool, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failure
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *recorder) report() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

func (r *recorder) Helper()                           {}
func (r *recorder) Log(args ...any)                   { r.note(false, "%s", fmt.Sprintln(args...)) }
func (r *recorder) Logf(format string, args ...any)   { r.note(false, format, args...) }
func (r *recorder) Error(args ...any)                 { r.note(true, "%s", fmt.Sprintln(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.note(true, format, args...) }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Skip(args ...any) { r.Skipf("%s", fmt.Sprint(args...)) }

func (r *recorder) Skipf(format string, args ...any) {
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	r.note(false, format, args...)
	runtime.Goexit()
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}
