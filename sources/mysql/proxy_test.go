package mysql_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/connectd/connectd/sources/mysql"
)

// proxy stands between a source and its server, and can take the server away.
type proxy struct {
	t        *testing.T
	to       string
	addr     string
	mu       sync.Mutex
	listener net.Listener
	conns    []net.Conn
	wg       sync.WaitGroup
	bytes    atomic.Int64 // that came from the server
	lost     atomic.Value // a string: what has it on its way to the server does not arrive
}

// losing leaves out what is lost.
type losing struct {
	net.Conn
	lost *atomic.Value
}

func (l losing) Write(b []byte) (int, error) {
	if word, is := l.lost.Load().(string); is && strings.Contains(string(b), word) {
		return len(b), nil
	}
	return l.Conn.Write(b)
}

// behindProxy is cfg by way of a proxy.
func behindProxy(t *testing.T, cfg mysql.Config) (mysql.Config, *proxy) {
	t.Helper()
	c, err := driver.ParseDSN(cfg.DSN)
	must(t, err)
	p := &proxy{t: t, to: c.Addr, addr: "127.0.0.1:0"}
	p.back()
	t.Cleanup(func() {
		p.away()
		p.wg.Wait()
	})
	c.Addr = p.addr
	cfg.DSN = c.FormatDSN()
	return cfg, p
}

// back lets connections come through, at the address of before.
func (p *proxy) back() {
	l, err := net.Listen("tcp", p.addr)
	must(p.t, err)
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
			p.conns = append(p.conns, in, out)
			p.mu.Unlock()
			for _, pair := range [][2]net.Conn{{in, out}, {losing{out, &p.lost}, in}} {
				p.wg.Go(func() {
					n, _ := io.Copy(struct{ io.Writer }{pair[0]}, pair[1])
					if pair[0] == in {
						p.bytes.Add(n)
					}
					pair[0].Close()
				})
			}
		}
	})
}

// away ends all connections and refuses others.
func (p *proxy) away() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener.Close()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}
