// Package proxy stands between a test's client and a real server, which others use too, and takes the server away from the
// client alone.
package proxy

import (
	"net"
	"sync"
	"testing"
)

// Proxy passes on what a client and a server say. Its methods may be called at any time; each returns what ends it.
type Proxy struct {
	Addr string // where the client finds the server; it stays

	t      testing.TB
	server string
	carry  Carry

	requests, answers gate
	running           sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener
	conns    []net.Conn
}

// Carry returns two functions for one connection, which end when it does: requests passes on what the client says, answers
// what the server says. Each calls pass before it passes anything on. Bytes is one.
type Carry func(p *Proxy, client, server net.Conn) (requests, answers func(pass func()))

// New returns a proxy that lives until the test ends.
func New(t testing.TB, server string, carry Carry) *Proxy {
	t.Helper()
	p := &Proxy{t: t, server: server, carry: carry}
	l := p.listen("127.0.0.1:0")
	p.Addr = l.Addr().String()
	p.serve(l)
	t.Cleanup(func() {
		p.Away()
		p.requests.set(false)
		p.answers.set(false)
		p.running.Wait()
	})
	return p
}

// Bytes passes on whatever comes.
func Bytes(_ *Proxy, client, server net.Conn) (requests, answers func(pass func())) {
	return func(pass func()) { copyBytes(server, client, pass) }, func(pass func()) { copyBytes(client, server, pass) }
}

func copyBytes(to, from net.Conn, pass func()) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		pass()
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}

// Away ends all connections and refuses others.
func (p *Proxy) Away() (back func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
	}
	for _, c := range p.conns {
		c.Close()
	}
	p.listener, p.conns = nil, nil
	return func() { p.serve(p.listen(p.Addr)) }
}

// Hang keeps what the server says; what the client says arrives.
func (p *Proxy) Hang() (restore func()) {
	p.answers.set(true)
	return func() { p.answers.set(false) }
}

// Freeze keeps what both say, also on new connections, as a network that is cut. Nobody is told. When it ends all of it
// arrives, as TCP sends again what was lost.
func (p *Proxy) Freeze() (thaw func()) {
	p.requests.set(true)
	p.answers.set(true)
	return func() {
		p.requests.set(false)
		p.answers.set(false)
	}
}

func (p *Proxy) listen(addr string) net.Listener {
	p.t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		p.t.Fatal(err)
	}
	return l
}

// serve lets the listener's connections come through.
func (p *Proxy) serve(l net.Listener) {
	p.mu.Lock()
	p.listener = l
	p.mu.Unlock()
	p.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.join(l, client)
		}
	})
}

// join connects a client of the listener with the server, unless that has been taken away meanwhile.
func (p *Proxy) join(l net.Listener, client net.Conn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		client.Close()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != l {
		client.Close()
		server.Close()
		return
	}
	p.conns = append(p.conns, client, server)
	requests, answers := p.carry(p, client, server)
	p.running.Go(func() {
		defer server.Close()
		requests(p.requests.pass)
	})
	p.running.Go(func() {
		defer client.Close()
		answers(p.answers.pass)
	})
}

// gate is open at first.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // closed when it opens; nil while it is open
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case shut && g.shut == nil:
		g.shut = make(chan struct{})
	case !shut && g.shut != nil:
		close(g.shut)
		g.shut = nil
	}
}

// pass waits until the gate is open.
func (g *gate) pass() {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
}
