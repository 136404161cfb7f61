package egress

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
)

// faulty is a server that does to each connection what a test wants, and counts.
type faulty struct {
	url *url.URL

	mu          sync.Mutex
	connections []net.Conn
	requests    []string // their bodies, of those that were read whole
}

// listen starts a faulty server. handle has the n-th connection, from 0, which is closed when it returns.
func listen(t testing.TB, handle func(f *faulty, n int, c *peer)) *faulty {
	t.Helper()
	return listenTLS(t, nil, handle)
}

// listenTLS speaks TLS unless the configuration is nil.
func listenTLS(t testing.TB, config *tls.Config, handle func(f *faulty, n int, c *peer)) *faulty {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	scheme := "http"
	if config != nil {
		scheme = "https"
	}
	f := &faulty{url: &url.URL{Scheme: scheme, Host: listener.Addr().String(), Path: "/"}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			n := len(f.connections)
			f.connections = append(f.connections, c)
			f.mu.Unlock()
			running.Go(func() {
				defer c.Close()
				layer := c
				if config != nil {
					layer = tls.Server(c, config)
				}
				handle(f, n, &peer{Conn: layer, tcp: c.(*net.TCPConn), reader: bufio.NewReader(layer), faulty: f})
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		f.mu.Lock()
		for _, c := range f.connections {
			c.Close()
		}
		f.mu.Unlock()
		running.Wait()
	})
	return f
}

// seen returns how many connections there were, and the bodies of all requests.
func (f *faulty) seen() (connections int, requests []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.connections), append([]string(nil), f.requests...)
}

// peer is the server's end of a connection.
type peer struct {
	net.Conn
	tcp    *net.TCPConn
	reader *bufio.Reader
	faulty *faulty
}

// request reads a whole request, or returns false at the end of the connection.
func (p *peer) request() bool {
	r, err := http.ReadRequest(p.reader)
	if err != nil {
		return false
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return false
	}
	p.faulty.mu.Lock()
	defer p.faulty.mu.Unlock()
	p.faulty.requests = append(p.faulty.requests, string(body))
	return true
}

func (p *peer) say(text string) { _, _ = io.WriteString(p.Conn, text) }

// reset makes the connection end with an RST.
func (p *peer) reset() {
	_ = p.tcp.SetLinger(0)
	_ = p.tcp.Close()
}

// wait returns when the client has hung up.
func (p *peer) wait() { _, _ = io.Copy(io.Discard, p.reader) }

const ok200 = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
