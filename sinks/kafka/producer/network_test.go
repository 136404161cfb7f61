package producer

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
)

// network is the way to the brokers, which may lose what they answer, or everything.
type network struct {
	mu     sync.Mutex
	losing int  // answers of a hundred; the connection is cut instead
	down   bool // nothing arrives, nothing is refused
	dials  int
	open   int
	most   int // connections at the same time
}

func (n *network) lose(percent int) { n.mu.Lock(); n.losing = percent; n.mu.Unlock() }

func (n *network) drop(everything bool) { n.mu.Lock(); n.down = everything; n.mu.Unlock() }

func (n *network) isDown() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.down }

func (n *network) dial(ctx context.Context, kind, addr string) (net.Conn, error) {
	if n.isDown() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c, err := new(net.Dialer).DialContext(ctx, kind, addr)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.dials++
	n.open++
	n.most = max(n.most, n.open)
	n.mu.Unlock()
	return &lossy{Conn: c, n: n}, nil
}

type lossy struct {
	net.Conn
	n    *network
	once sync.Once
}

func (c *lossy) Write(b []byte) (int, error) {
	if c.n.isDown() {
		return len(b), nil // into the void
	}
	return c.Conn.Write(b)
}

func (c *lossy) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil {
			return n, err
		}
		c.n.mu.Lock()
		down, lost := c.n.down, rand.IntN(100) < c.n.losing
		c.n.mu.Unlock()
		switch {
		case down:
			continue
		case lost:
			c.Close()
			return 0, io.EOF
		}
		return n, nil
	}
}

func (c *lossy) Close() error {
	c.once.Do(func() { c.n.mu.Lock(); c.n.open--; c.n.mu.Unlock() })
	return c.Conn.Close()
}

// dialOrRefuse is dial, but a network that is down says so.
func (n *network) dialOrRefuse(ctx context.Context, kind, addr string) (net.Conn, error) {
	if n.isDown() {
		return nil, &net.OpError{Op: "dial", Net: kind, Err: syscall.ECONNREFUSED}
	}
	return n.dial(ctx, kind, addr)
}
