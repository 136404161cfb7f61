package daemon

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

const (
	// maxConnections bounds the HTTP listener.
	maxConnections = 256
	// maxHeld of them answer requests of who may ask for more than the probes. It is less, so that there is always
	// one to close for one that comes.
	maxHeld = 192
)

// crowd keeps the listener open to the probes, which need no token. When there are too many connections, it closes
// the one on which nothing has happened for the longest time: idle ones, and those whose request does not come or shows
// no token. Those with a request that showed the token are held, until it is answered.
type crowd struct {
	mu   sync.Mutex
	all  map[net.Conn]*list.Element // nil: held
	rest *list.List                 // the others, of net.Conn, the one to close first in front
}

func newCrowd() *crowd { return &crowd{all: map[net.Conn]*list.Element{}, rest: list.New()} }

// changed is for http.Server.ConnState.
func (c *crowd) changed(conn net.Conn, state http.ConnState) {
	if gone := c.note(conn, state); gone != nil {
		_ = gone.Close()
	}
}

// note says which connection there is no room for any more.
func (c *crowd) note(conn net.Conn, state http.ConnState) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, known := c.all[conn]
	if !known && state != http.StateNew {
		return nil // it was closed for another one
	}
	if at != nil {
		c.rest.Remove(at)
	}
	if state == http.StateClosed || state == http.StateHijacked {
		delete(c.all, conn)
		return nil
	}
	c.all[conn] = c.rest.PushBack(conn)
	if len(c.all) <= maxConnections {
		return nil
	}
	gone, _ := c.rest.Remove(c.rest.Front()).(net.Conn)
	delete(c.all, gone)
	return gone
}

type holdKey struct{}

// context is for http.Server.ConnContext: hold finds there the connection of a request.
func (c *crowd) context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, holdKey{}, func() bool { return c.hold(conn) })
}

func (c *crowd) hold(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, open := c.all[conn]
	switch {
	case !open:
		return false // it was closed for another one, and nobody would hear the answer
	case at == nil:
		return true
	case len(c.all)-c.rest.Len() >= maxHeld:
		return false
	}
	c.rest.Remove(at)
	c.all[conn] = nil
	return true
}

// hold keeps the connection of a request until the request is answered, or says that too many are kept.
func hold(r *http.Request) bool {
	hold, is := r.Context().Value(holdKey{}).(func() bool)
	return !is || hold()
}
