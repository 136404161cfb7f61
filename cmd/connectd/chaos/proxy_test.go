//go:build linux

package chaos

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	kafka "github.com/connectd/connectd/scripts/services/proxy"
)

// mode is what a proxy does with what passes through it.
type mode int

const (
	pass  mode = iota
	delay      // every piece comes proxyDelay later
	hold       // nothing gets through; it comes when the mode changes
	mute       // what goes to the server gets through, its answers are lost
	down       // connections are reset, and new ones too
)

const proxyDelay = 200 * time.Millisecond

// proxy stands between one daemon, or its sink, and a server.
type proxy struct {
	addr  string
	to    string
	kafka bool // the server is a Kafka broker, which tells its clients where it is

	listener net.Listener
	wg       sync.WaitGroup

	mu      sync.Mutex
	mode    mode
	changed chan struct{} // closed and replaced when the mode changes
	conns   map[*net.TCPConn]bool
	closed  bool
}

// newProxy starts a proxy that ends with the test.
func newProxy(t *testing.T, to string, kafka bool) *proxy {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String(), to: to, kafka: kafka, listener: l, changed: make(chan struct{}), conns: map[*net.TCPConn]bool{}}
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.set(down)
	p.wg.Wait()
}

// set changes the mode. Connections that lost bytes, or must not be there, are reset.
func (p *proxy) set(m mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.mode
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
	if before == mute || m == down {
		p.reset()
	}
}

// cut resets all connections; new ones are let through.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reset()
}

func (p *proxy) reset() {
	for c := range p.conns {
		_ = c.SetLinger(0) // a reset, no good end
		c.Close()
	}
	clear(p.conns)
}

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.connect(c.(*net.TCPConn)) })
	}
}

// connect carries one connection. It reaches the server only in a mode that lets it.
func (p *proxy) connect(client *net.TCPConn) {
	p.mu.Lock()
	p.conns[client] = true
	if p.closed || p.mode == down {
		p.reset()
	}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", p.to)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || !p.conns[client] { // no server, or reset meanwhile
		_ = client.SetLinger(0)
		client.Close()
		delete(p.conns, client)
		if err == nil {
			c.Close()
		}
		return
	}
	server := c.(*net.TCPConn)
	p.conns[server] = true
	requests, answers := anything, anything
	if p.kafka {
		b, err := kafka.NewBroker(p.addr)
		if err != nil {
			panic(err) // it is a listener's address
		}
		requests, answers = b.Request, b.Answer
	}
	p.wg.Go(func() { p.carry(client, server, requests, false) })
	p.wg.Go(func() { p.carry(server, client, answers, true) })
}

// anything reads whatever comes.
func anything(from io.Reader) ([]byte, error) {
	buffer := make([]byte, 32<<10)
	n, err := from.Read(buffer)
	if n > 0 {
		err = nil // it comes again
	}
	return buffer[:n], err
}

// carry copies one direction, piece by piece, until it ends, and then ends both: the protocols here do not use half a
// connection.
func (p *proxy) carry(from, to *net.TCPConn, read func(io.Reader) ([]byte, error), answers bool) {
	defer func() {
		from.Close()
		to.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, from)
		delete(p.conns, to)
	}()
	for {
		piece, err := read(from)
		if err != nil {
			return
		}
		if p.let(answers) {
			if _, err := to.Write(piece); err != nil {
				return
			}
		}
	}
}

// let waits until a piece may go on, and says whether it does at all.
func (p *proxy) let(answer bool) bool {
	slept := false
	for {
		p.mu.Lock()
		m, changed := p.mode, p.changed
		p.mu.Unlock()
		switch {
		case m == mute && answer:
			return false
		case m == hold:
			<-changed
		case m == delay && !slept:
			slept = true
			select {
			case <-time.After(proxyDelay):
			case <-changed:
			}
		default:
			return true
		}
	}
}

// side is a pair of programs with connections between them.
type side string

const (
	toSource side = "source"
	toTarget side = "target"
)

// breaks says on which side an accident breaks connections, and how; cut once when it does not last.
func (a accident) breaks() (s side, m mode, is bool) {
	switch a.what {
	case sourceReset:
		return toSource, pass, true
	case sourceDown:
		return toSource, down, true
	case sourceHold:
		return toSource, hold, true
	case sourceMute:
		return toSource, mute, true
	case sourceDelay:
		return toSource, delay, true
	case targetReset:
		return toTarget, pass, true
	case targetDown:
		return toTarget, down, true
	case targetHold:
		return toTarget, hold, true
	case targetMute:
		return toTarget, mute, true
	case targetDelay:
		return toTarget, delay, true
	default:
		return "", pass, false
	}
}
