package rabbitmq

import (
	"net"
	"sync"
	"testing"
)

// proxy stands between a sink and its server, and can take the server away or keep its answers back.
type proxy struct {
	t    testing.TB
	to   string
	addr string

	mu       sync.Mutex
	passing  sync.Cond
	held     bool // what the server says
	deaf     bool // what the client says
	listener net.Listener
	conns    map[net.Conn]bool
	wg       sync.WaitGroup
}

// behindProxy stands before the server at an address.
func behindProxy(t testing.TB, to string) *proxy {
	t.Helper()
	p := &proxy{t: t, to: to, addr: "127.0.0.1:0", conns: map[net.Conn]bool{}}
	p.passing.L = &p.mu
	p.back()
	t.Cleanup(func() {
		p.away()
		p.wg.Wait()
	})
	return p
}

// back lets connections come through, at the address of before.
func (p *proxy) back() {
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	p.listener, p.addr = l, l.Addr().String()
	p.mu.Unlock()
	p.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", p.to)
			if err != nil {
				in.Close()
				continue
			}
			p.mu.Lock()
			p.conns[in], p.conns[out] = true, true
			p.mu.Unlock()
			p.wg.Go(func() { p.copy(out, in, &p.deaf) })
			p.wg.Go(func() { p.copy(in, out, &p.held) })
		}
	})
}

// copy passes on what comes, as long as stopped is not set.
func (p *proxy) copy(to, from net.Conn, stopped *bool) {
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		for *stopped && p.conns[from] {
			p.passing.Wait()
		}
		p.mu.Unlock()
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}

// away ends all connections and refuses others.
func (p *proxy) away() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener.Close()
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
	p.passing.Broadcast()
}

// outage takes the server away.
func (p *proxy) outage() (restore func()) {
	p.away()
	return p.back
}

// hang keeps back what the server says; what the client says arrives.
func (p *proxy) hang() (restore func()) { return p.stop(&p.held) }

// partition loses what both say, for as long as it lasts.
func (p *proxy) partition() (restore func()) {
	restoreHeld, restoreDeaf := p.stop(&p.held), p.stop(&p.deaf)
	return func() {
		restoreDeaf()
		restoreHeld()
	}
}

func (p *proxy) stop(what *bool) (restore func()) {
	set := func(v bool) {
		p.mu.Lock()
		*what = v
		p.mu.Unlock()
		p.passing.Broadcast()
	}
	set(true)
	return func() { set(false) }
}
