package publisher

import (
	"net"
	"sync"
	"testing"
)

// proxy stands between a publisher and its broker, and can lose what they send.
type proxy struct {
	t    *testing.T
	to   string
	addr string

	mu       sync.Mutex
	listener net.Listener // nil while it is away
	conns    []net.Conn
	frozen   chan struct{} // closed when nothing is held back; never nil
	copying  sync.WaitGroup
}

func proxyTo(t *testing.T, to string) *proxy {
	t.Helper()
	p := &proxy{t: t, to: to, addr: "127.0.0.1:0", frozen: make(chan struct{})}
	close(p.frozen)
	p.back()
	t.Cleanup(func() {
		p.thaw()
		p.away()
		p.copying.Wait()
	})
	return p
}

// back lets connections come through, at the address of before.
func (p *proxy) back() {
	l, err := net.Listen("tcp", p.addr)
	must(p.t, err)
	p.mu.Lock()
	p.listener, p.addr = l, l.Addr().String()
	p.mu.Unlock()
	p.copying.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			p.join(in)
		}
	})
}

func (p *proxy) join(in net.Conn) {
	out, err := net.Dial("tcp", p.to)
	if err != nil {
		in.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, in, out)
	p.mu.Unlock()
	p.copying.Go(func() { p.copy(in, out) })
	p.copying.Go(func() { p.copy(out, in) })
}

func (p *proxy) copy(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		frozen := p.frozen
		p.mu.Unlock()
		<-frozen
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// freeze holds everything back, as a network does that drops packets.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = make(chan struct{})
}

func (p *proxy) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.frozen:
	default:
		close(p.frozen)
	}
}

// cut ends the connections that there are.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// away also refuses new ones.
func (p *proxy) away() {
	p.mu.Lock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	p.mu.Unlock()
	p.cut()
}
