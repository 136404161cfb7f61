package lifetime_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/connectd/connectd/core/lifetime"
)

// thing is what is opened here.
type thing struct {
	closed int
	err    error // of closing it
}

func (o *thing) close(context.Context) error {
	o.closed++
	return o.err
}

// opened is a lifetime that has begun.
func opened(t *testing.T) (*lifetime.Of[*thing], *thing) {
	t.Helper()
	l, o := lifetime.New("the test's thing", (*thing).close), new(thing)
	if err := l.Open(func() (*thing, error) { return o, nil }); err != nil {
		t.Fatal(err)
	}
	return l, o
}

// enter is a call of which only the end is wanted.
func enter(t *testing.T, l *lifetime.Of[*thing]) (leave func()) {
	t.Helper()
	_, leave, err := l.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return leave
}

func wantError(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || err.Error() != text {
		t.Errorf("the error is %v, want %s", err, text)
	}
}

func TestNotOpen(t *testing.T) {
	l := lifetime.New("the test's thing", (*thing).close)
	_, _, err := l.Enter(t.Context())
	wantError(t, err, "the test's thing is not open")
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	failure := errors.New("no")
	if err := l.Open(func() (*thing, error) { return nil, failure }); !errors.Is(err, failure) {
		t.Errorf("Open: %v", err)
	}
	_, _, err = l.Enter(t.Context())
	wantError(t, err, "the test's thing is not open")
}

func TestOpenTwice(t *testing.T) {
	l, o := opened(t)
	err := l.Open(func() (*thing, error) { t.Error("a second one was opened"); return new(thing), nil })
	wantError(t, err, "the test's thing is open already")
	got, leave, err := l.Enter(t.Context())
	if err != nil || got != o {
		t.Fatalf("entered %p, want %p: %v", got, o, err)
	}
	leave()
}

func TestEnterWhenDone(t *testing.T) {
	l, o := opened(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := l.Enter(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Enter: %v", err)
	}
	for range 50 { // Go takes any of the cases of a select that are ready
		if err := l.Close(ctx); err != nil || o.closed != 1 {
			t.Fatalf("nobody was in it, but Close closed it %d times: %v", o.closed, err)
		}
		l, o = opened(t)
	}
}

func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, o := opened(t)
		enter(t, l)() // that nobody is in it ends nothing by itself
		one, another := enter(t, l), enter(t, l)
		closed := make(chan error, 1)
		go func() { closed <- l.Close(t.Context()) }()
		synctest.Wait()
		if _, _, err := l.Enter(t.Context()); err == nil {
			t.Error("a call came in while it was being closed")
		}
		one()
		synctest.Wait()
		if o.closed != 0 {
			t.Error("it was closed with a call in it")
		}
		if err := l.Close(t.Context()); err != nil || o.closed != 0 {
			t.Errorf("a second Close closed it %d times: %v", o.closed, err)
		}
		another()
		if err := <-closed; err != nil || o.closed != 1 {
			t.Errorf("Close closed it %d times: %v", o.closed, err)
		}
	})
}

func TestCloseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, o := opened(t)
		leave := enter(t, l)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		err := l.Close(ctx)
		wantError(t, err, "close the test's thing: calls still run: context deadline exceeded")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Minute || o.closed != 1 {
			t.Errorf("after %v it was closed %d times: %v", time.Since(begin), o.closed, err)
		}
		// A late call is no part of the next lifetime.
		next := new(thing)
		if err := l.Open(func() (*thing, error) { return next, nil }); err != nil {
			t.Fatal(err)
		}
		other := enter(t, l)
		leave()
		closed := make(chan error, 1)
		go func() { closed <- l.Close(t.Context()) }()
		synctest.Wait()
		if next.closed != 0 {
			t.Error("it was closed with a call in it")
		}
		other()
		if err := <-closed; err != nil || next.closed != 1 {
			t.Errorf("Close closed it %d times: %v", next.closed, err)
		}
	})
}

func TestCloseFails(t *testing.T) {
	l, o := opened(t)
	o.err = errors.New("stuck")
	wantError(t, l.Close(t.Context()), "close the test's thing: stuck")
	if err := l.Close(t.Context()); err != nil || o.closed != 1 {
		t.Errorf("closed %d times: %v", o.closed, err)
	}
}
