package egress

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// errStale is a connection that the server has closed, or wrote to, while nobody used it.
var errStale = errors.New("the server closed the idle connection")

// conn watches what is written to a connection, beneath TLS. A write that fails is not reported when a part of the request
// has been written before: servers answer before they have read a large request, and hang up, and net/http would rather
// report the failed write than read the answer. Reading tells the end of the connection soon after.
type conn struct {
	net.Conn
	raw    syscall.RawConn
	wire   atomic.Pointer[wire] // of HTTP/1: the request that was written last
	shared atomic.Bool          // by the streams of HTTP/2
	among  *connections
}

// Close also forgets the connection.
func (c *conn) Close() error {
	c.among.remove(c)
	return c.Conn.Close()
}

// connections are the open ones of a generation.
type connections struct {
	mu     sync.Mutex
	open   map[*conn]struct{}
	closed bool
}

// watch adds a connection. After closeAll it closes it.
func (cs *connections) watch(c net.Conn) (net.Conn, error) {
	w := &conn{Conn: c, among: cs}
	if sc, ok := c.(syscall.Conn); ok {
		w.raw, _ = sc.SyscallConn() // without it the connection counts as alive until it fails
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	if cs.open == nil {
		cs.open = map[*conn]struct{}{}
	}
	cs.open[w] = struct{}{}
	return w, nil
}

func (cs *connections) remove(c *conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.open, c)
}

// closeAll closes those that are open, and those that are being made.
func (cs *connections) closeAll() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closed = true
	for c := range cs.open {
		_ = c.Conn.Close()
	}
	cs.open = nil
}

// watched finds the conn beneath the layers of TLS.
func watched(c net.Conn) (*conn, bool) {
	for {
		switch layer := c.(type) {
		case *conn:
			return layer, true
		case *tls.Conn:
			c = layer.NetConn()
		default:
			return nil, false
		}
	}
}

// wire is what became of one request on a connection of HTTP/1, which carries one at a time.
type wire struct {
	secure bool // under TLS
	reused bool

	mu      sync.Mutex
	sent    bool
	failure error // of a write after something was sent
}

func (w *wire) state() (sent bool, failure error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent, w.failure
}

func (c *conn) Write(p []byte) (int, error) {
	if c.shared.Load() {
		_, _ = c.Conn.Write(p)
		return len(p), nil
	}
	w := c.wire.Load()
	if w == nil {
		return c.Conn.Write(p)
	}
	sent, failure := w.state()
	switch {
	case failure != nil:
		return len(p), nil
	case !sent && w.secure && !carriesRequest(p):
		return c.Conn.Write(p)
	case !sent && w.reused && c.readable():
		return 0, errStale
	}
	n, err := c.Conn.Write(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = w.sent || n > 0
	if err == nil || !w.sent {
		return n, err
	}
	w.failure = err
	return len(p), nil
}

// carriesRequest says whether a record of TLS may hold a part of a request. Alerts and key updates do not: the former is
// what a connection that is being closed ends with. TLS 1.3 disguises both as application data of 24 and 27 bytes; the
// shortest request line and Host header make a longer record.
func carriesRequest(record []byte) bool {
	const applicationData = 23
	return len(record) > 40 && record[0] == applicationData
}

// readable says whether there is something to read, or the end. On a connection of HTTP/1 on which nothing was asked both
// mean that the server has given it up. (Under TLS it may be something harmless; another connection costs little.)
func (c *conn) readable() (yes bool) {
	if c.raw == nil {
		return false
	}
	_ = c.raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		yes = err == nil && n > 0
	})
	return yes
}
