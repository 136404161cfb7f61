// Package lifetime is the time between a sink's Open and its Close: what was opened is closed when no call uses it any more.
package lifetime

import (
	"context"
	"fmt"
	"sync"
)

// Of is the lifetime of a T, of which there is one between Open and Close. It may be used concurrently. It can be opened
// again after Close.
type Of[T any] struct {
	name  string
	close func(T, context.Context) error

	mu  sync.Mutex
	now *span[T] // nil unless open
}

// span is one lifetime.
type span[T any] struct {
	thing T
	calls int           // that run; it grows only while the lifetime is open
	empty chan struct{} // closed when it is over and no call runs
}

// New returns a lifetime that has not begun. Errors say the name: "the webhook sink". Close frees a T within its context; it
// is called once for each.
func New[T any](name string, close func(T, context.Context) error) *Of[T] {
	return &Of[T]{name: name, close: close}
}

// Open begins it with the T that open returns, unless that fails. Everybody else waits for open to return.
func (l *Of[T]) Open(open func() (T, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != nil {
		return fmt.Errorf("%s is open already", l.name)
	}
	thing, err := open()
	if err != nil {
		return err
	}
	l.now = &span[T]{thing: thing, empty: make(chan struct{})}
	return nil
}

// Enter begins a call, which may use the T until it calls leave, once. It fails when nothing is open, or ctx is done.
func (l *Of[T]) Enter(ctx context.Context) (thing T, leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.now
	if s == nil {
		return thing, nil, fmt.Errorf("%s is not open", l.name)
	}
	if err := ctx.Err(); err != nil {
		return thing, nil, err
	}
	s.calls++
	return s.thing, func() { l.leave(s) }, nil
}

func (l *Of[T]) leave(s *span[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.calls--
	if s.calls == 0 && l.now != s {
		close(s.empty)
	}
}

// Close lets no other call in, waits until those that run have left or ctx is done, and closes the T: what still uses it
// then has to bear that. When nothing is open it does nothing.
func (l *Of[T]) Close(ctx context.Context) error {
	l.mu.Lock()
	s := l.now
	l.now = nil
	if s != nil && s.calls == 0 {
		close(s.empty)
	}
	l.mu.Unlock()
	if s == nil {
		return nil
	}
	waited := s.wait(ctx)
	if err := l.close(s.thing, ctx); err != nil {
		return fmt.Errorf("close %s: %w", l.name, err) // it knows more than that calls still run
	}
	if waited != nil {
		return fmt.Errorf("close %s: calls still run: %w", l.name, waited)
	}
	return nil
}

// wait returns when no call runs, with an error when ctx is done before.
func (s *span[T]) wait(ctx context.Context) error {
	select {
	case <-s.empty:
		return nil
	default: // an idle T is closed without complaint, even when ctx is done
	}
	select {
	case <-s.empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
