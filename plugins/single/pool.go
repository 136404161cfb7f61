package single

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/connectd/connectd/core"
)

const (
	// connectTimeout bounds how long the destination may take to let us in, or to answer a Ping.
	connectTimeout = 10 * time.Second
	// trusted is how long a connection is taken to be good after it was used. Later it is asked before a record is sent.
	trusted = time.Second
	// maxRest is how long a connection may be unused. Servers and firewalls drop idle connections without a word, and the
	// record that finds out would be a possible duplicate.
	maxRest = 30 * time.Second
)

// pool has the open connections. Those at rest are used again last in, first out, so that those which are not needed
// grow old.
type pool struct {
	connect func(ctx context.Context) (Conn, error)
	mask    func(text string) string // hides the settings' secrets

	mu      sync.Mutex
	open    map[*conn]bool
	resting []*conn
	closed  bool
}

// conn is a connection of a pool.
type conn struct {
	Conn
	close func() error // Conn's, once
	since time.Time    // at rest
}

var errClosed = errors.New("the sink is closed")

func newPool(connect func(context.Context) (Conn, error), mask func(string) string) *pool {
	return &pool{connect: connect, mask: mask, open: map[*conn]bool{}}
}

// take returns a connection for one user: one that rests and is still good, or a new one.
func (p *pool) take(ctx context.Context) (*conn, error) {
	c := p.rested()
	if c != nil && time.Since(c.since) > trusted {
		_ = p.ping(ctx, c) // if it fails, none rests any more
		c = p.rested()
	}
	if c != nil {
		return c, nil
	}
	return p.add(ctx)
}

// rested takes the connection that was used last, if it may still be used.
func (p *pool) rested() *conn {
	p.retire(maxRest)
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.resting) - 1
	if last < 0 {
		return nil
	}
	c := p.resting[last]
	p.resting = p.resting[:last]
	return c
}

// add opens a connection.
func (p *pool) add(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	opened, err := p.connect(ctx)
	if err == nil && opened == nil {
		err = errors.New("no connection was returned")
	}
	if err != nil {
		if opened != nil {
			_ = opened.Close() // the error is known
		}
		return nil, err
	}
	c := &conn{Conn: opened, close: sync.OnceValue(opened.Close)}
	p.mu.Lock()
	closed := p.closed
	p.open[c] = true
	p.mu.Unlock()
	if closed {
		p.forget(c)
		return nil, errClosed
	}
	return c, nil
}

// rest gives back a connection that works.
func (p *pool) rest(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return // by close, which has closed c too
	}
	c.since = time.Now()
	p.resting = append(p.resting, c)
}

// forget closes a connection.
func (p *pool) forget(c *conn) {
	p.mu.Lock()
	delete(p.open, c)
	p.mu.Unlock()
	_ = c.close() // nothing depends on it any more
}

// retire closes the connections that have rested for so long.
func (p *pool) retire(age time.Duration) {
	p.mu.Lock()
	old := 0
	for old < len(p.resting) && time.Since(p.resting[old].since) >= age {
		old++
	}
	retired := slices.Clone(p.resting[:old])
	p.resting = slices.Delete(p.resting, 0, old)
	p.mu.Unlock()
	for _, c := range retired {
		p.forget(c)
	}
}

// check says whether the destination answers: over a connection at rest if it can be asked, else over a new one, which
// takes the place of those at rest.
func (p *pool) check(ctx context.Context) error {
	if c := p.rested(); c != nil && p.ping(ctx, c) == nil {
		return nil
	}
	p.retire(0)
	c, err := p.add(ctx)
	if err != nil {
		return p.masked("connect", err)
	}
	if err := p.ping(ctx, c); err != nil {
		return p.masked("ping", err)
	}
	return nil
}

// ping asks the destination over the connection, which is then given back.
func (p *pool) ping(ctx context.Context, c *conn) error {
	pinger, ok := c.Conn.(Pinger)
	if !ok {
		p.rest(c)
		return core.ErrNoHealth
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return p.use(ctx, c, pinger.Ping)
}

// use runs f with the connection and closes it when ctx is done first. Then the connection is given back, unless it was
// closed or f failed without an answer of the destination.
func (p *pool) use(ctx context.Context, c *conn, f func(ctx context.Context) error) error {
	stop := context.AfterFunc(ctx, func() { _ = c.close() })
	err := f(ctx)
	intact := stop()
	if _, answered := errors.AsType[Failure](err); err != nil && !answered {
		p.forget(c)
		p.retire(0) // what broke this one has often broken those at rest too
	} else if !intact {
		p.forget(c)
	} else {
		p.rest(c)
	}
	return err
}

// close closes every connection, also those in use, within ctx.
func (p *pool) close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	open := p.open
	p.open, p.resting = map[*conn]bool{}, nil
	p.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		var err error
		for c := range open {
			err = errors.Join(err, c.close())
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return p.masked("close", err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close the connections: %w", ctx.Err())
	}
}

// masked says what was being done, and hides the secrets in what went wrong.
func (p *pool) masked(doing string, err error) error {
	return &maskedError{doing + ": " + p.mask(err.Error()), err}
}

// maskedError is an error with another text.
type maskedError struct {
	text string
	err  error
}

func (e *maskedError) Error() string { return e.text }
func (e *maskedError) Unwrap() error { return e.err }
