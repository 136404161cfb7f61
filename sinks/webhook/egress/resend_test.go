package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/connectd/connectd/core/tlsfiles"
	"github.com/connectd/connectd/core/tlsfiles/tlstest"
)

// late is a connection whose end is heard only when the test says so: the moment between the server's hanging up and the
// client's noticing is as long as the test wants. What is read before the end is not held up.
type late struct {
	*net.TCPConn
	hear  <-chan struct{}
	blind func() // if there is one, it is called after a write, and the connection can't be asked what there is to read
}

func (l late) Read(p []byte) (int, error) {
	n, err := l.TCPConn.Read(p)
	if err != nil {
		<-l.hear
	}
	return n, err
}

func (l late) Write(p []byte) (int, error) {
	n, err := l.TCPConn.Write(p)
	if l.blind != nil {
		l.blind()
	}
	return n, err
}

func (l late) SyscallConn() (syscall.RawConn, error) {
	if l.blind != nil {
		return nil, errors.New("blind")
	}
	return l.TCPConn.SyscallConn()
}

// lateClient returns a Client whose connections are late until hear is closed.
func lateClient(t *testing.T, c Config, hear <-chan struct{}, blind func()) *Client {
	client := client(t, c)
	client.pool.make = func(config *tls.Config, among *connections) *http.Transport {
		transport := client.transport(config, among)
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := client.dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return among.watch(late{c.(*net.TCPConn), hear, blind})
		}
		return transport
	}
	return client
}

// waitForEnds returns when the servers' ends of so many connections of the pool have arrived, whether or not the client
// has heard of them.
func (c *Client) waitForEnds(t *testing.T, n int) {
	t.Helper()
	c.pool.mu.Lock()
	among := &c.pool.current.connections
	c.pool.mu.Unlock()
	ended := func() (ends int) {
		among.mu.Lock()
		defer among.mu.Unlock()
		for one := range among.open {
			if one.readable() {
				ends++
			}
		}
		return ends
	}
	for deadline := time.Now().Add(10 * time.Second); ended() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d connections have ended", ended(), n)
		}
	}
}

// TestIdleConnectionsThatEnded has a server that closes all connections while they are idle, which the client has not
// noticed when it sends the next request. Nothing was written then, so it goes over a new connection, at once, once.
func TestIdleConnectionsThatEnded(t *testing.T) {
	const idle = 5
	authority := tlstest.New(t)
	for _, secure := range []bool{false, true} {
		together := newBarrier(idle)
		handle := func(_ *faulty, n int, p *peer) {
			for p.request() {
				if n < idle {
					together.wait()
				}
				p.say(ok200)
				if n < idle {
					return // hang up
				}
			}
		}
		var f *faulty
		if secure {
			f = listenTLS(t, &tls.Config{Certificates: []tls.Certificate{authority.Issue(t, tlstest.Leaf{})}}, handle)
		} else {
			f = listen(t, handle)
		}
		hear := make(chan struct{})
		c := lateClient(t, Config{TLS: tlsfiles.Settings{CAFile: authority.File}}, hear, nil)
		var callers sync.WaitGroup
		for i := range idle {
			callers.Go(func() {
				if a, err := post(t, c, f.url, fmt.Sprint(i)); err != nil || a.Status != 200 {
					t.Errorf("%+v, %v", a, err)
				}
			})
		}
		callers.Wait()
		c.waitForEnds(t, idle)
		a, err := c.Do(t.Context(), Request{
			Method: "POST", URL: f.url, Body: []byte("again"), Header: http.Header{"Idempotency-Key": {"k"}},
		})
		wantStatus(t, 200, a, err)
		connections, requests := f.seen()
		slices.Sort(requests)
		if connections != idle+1 || !slices.Equal(requests, []string{"0", "1", "2", "3", "4", "again"}) {
			t.Errorf("secure %v: %d connections, requests %q", secure, connections, requests)
		}
		close(hear)
	}
}

// barrier lets n callers pass when all of them are there.
type barrier struct {
	mu   sync.Mutex
	left int
	open chan struct{}
}

func newBarrier(n int) *barrier { return &barrier{left: n, open: make(chan struct{})} }

func (b *barrier) wait() {
	b.mu.Lock()
	if b.left--; b.left == 0 {
		close(b.open)
	}
	b.mu.Unlock()
	<-b.open
}

// TestNeverSentTwice has a server that hangs up while the request is on its way, over a connection that was used before,
// with all that makes net/http repeat a request: keys of idempotency, no body.
func TestNeverSentTwice(t *testing.T) {
	for _, name := range []string{"X-Other", "Idempotency-Key", "X-Idempotency-Key"} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			for _, body := range []string{"x", ""} {
				f := listen(t, func(_ *faulty, _ int, p *peer) {
					p.request()
					p.say(ok200)
					p.request() // and hang up
				})
				c := client(t, Config{})
				r := Request{Method: method, URL: f.url, Header: http.Header{name: {"k"}}, Body: []byte(body)}
				a, err := c.Do(t.Context(), r)
				wantStatus(t, 200, a, err)
				_, err = c.Do(t.Context(), r)
				wantError(t, PhaseHeader, true, err)
				if connections, requests := f.seen(); connections != 1 || !slices.Equal(requests, []string{body, body}) {
					t.Errorf("%s %s %q: %d connections, requests %q", name, method, body, connections, requests)
				}
			}
		}
	}
}

// TestWrittenIntoAnEndedConnection is that moment when the client cannot know: the request is written, and answered by a
// reset. It counts as sent, and is not sent again.
func TestWrittenIntoAnEndedConnection(t *testing.T) {
	closed := make(chan struct{})
	f := listen(t, func(_ *faulty, _ int, p *peer) {
		p.request()
		p.say(ok200)
		p.Close()
		close(closed)
	})
	hear := make(chan struct{})
	writes := 0
	c := lateClient(t, Config{}, hear, func() {
		if writes++; writes == 2 {
			close(hear)
		}
	})
	a, err := post(t, c, f.url, "1")
	wantStatus(t, 200, a, err)
	<-closed
	_, err = post(t, c, f.url, "2")
	wantError(t, PhaseHeader, true, err)
	if connections, requests := f.seen(); connections != 1 || !slices.Equal(requests, []string{"1"}) {
		t.Errorf("%d connections, requests %q", connections, requests)
	}
}

// TestServerThatHangsUpBetween counts each of many requests to a server that hangs up after every answer without saying
// so. Each arrives once if it is answered, and at most once if not.
func TestServerThatHangsUpBetween(t *testing.T) {
	f := listen(t, func(_ *faulty, _ int, p *peer) {
		if p.request() {
			p.say(ok200)
		}
	})
	c := client(t, Config{})
	unanswered := map[string]bool{}
	const calls = 400
	for i := range calls {
		id := fmt.Sprint(i)
		a, err := c.Do(t.Context(), Request{
			Method: "POST", URL: f.url, Body: []byte(id), Header: http.Header{"Idempotency-Key": {id}},
		})
		if err != nil {
			unanswered[id] = true
			if e := new(Error); !errors.As(err, &e) || !e.Sent {
				t.Errorf("%s: %v", id, err)
			}
			continue
		}
		wantStatus(t, 200, a, nil)
	}
	_, requests := f.seen()
	counts := map[string]int{}
	for _, id := range requests {
		counts[id]++
	}
	for i := range calls {
		id := fmt.Sprint(i)
		if n := counts[id]; n > 1 || n == 0 && !unanswered[id] {
			t.Errorf("request %s arrived %d times", id, n)
		}
	}
	t.Logf("%d of %d without an answer", len(unanswered), calls)
}

// TestEmptyBody is chunked over HTTP/1: it could be repeated by net/http otherwise.
func TestEmptyBody(t *testing.T) {
	u := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprint(w, r.Method, " ", len(body), " ", err, " ", r.ContentLength, " ", r.TransferEncoding)
	})
	c := client(t, Config{Capture: 100})
	for method, want := range map[string]string{"POST": "POST 0 <nil> -1 [chunked]", "DELETE": "DELETE 0 <nil> 0 []"} {
		a, err := c.Do(t.Context(), Request{Method: method, URL: u})
		wantStatus(t, 200, a, err)
		if string(a.Body) != want {
			t.Errorf("%q, want %q", a.Body, want)
		}
	}
}
