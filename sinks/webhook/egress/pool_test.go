package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core/tlsfiles"
)

// eventually waits until the condition holds, for ten seconds at most.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("not within ten seconds: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// counted is a server that knows which connections are open.
type counted struct {
	mu     sync.Mutex
	open   map[net.Conn]bool
	opened int
}

func (c *counted) state(n net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s {
	case http.StateNew:
		c.opened++
		c.open[n] = true
	case http.StateClosed, http.StateHijacked:
		delete(c.open, n)
	}
}

func (c *counted) now() (open, opened int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open), c.opened
}

// TestOnePool sends many requests, 64 at a time: there are no more connections than that, and they stay:
// https://github.com/hookdeck/outpost/pull/1021
func TestOnePool(t *testing.T) {
	count := &counted{open: map[net.Conn]bool{}}
	u := countingServer(t, count, quiet)
	c := client(t, Config{IdlePerHost: 64})
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for range 30 {
				if a, err := post(t, c, u, "x"); err != nil || a.Status != 200 {
					t.Errorf("%+v, %v", a, err)
				}
			}
		})
	}
	callers.Wait()
	// A few are dialed for requests that get one that comes back meanwhile. With net/http's pool there are hundreds.
	if _, opened := count.now(); opened > 2*64 {
		t.Errorf("%d connections", opened)
	}
}

func countingServer(t *testing.T, count *counted, h http.HandlerFunc) *url.URL {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = count.state
	s.Start()
	t.Cleanup(s.Close)
	return parse(t, s.URL)
}

func TestMaxConnsPerHost(t *testing.T) {
	count := &counted{open: map[net.Conn]bool{}}
	u := countingServer(t, count, quiet)
	c := client(t, Config{MaxConnsPerHost: 3})
	var callers sync.WaitGroup
	for range 30 {
		callers.Go(func() {
			if a, err := post(t, c, u, "x"); err != nil || a.Status != 200 {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
	callers.Wait()
	if _, opened := count.now(); opened > 3 {
		t.Errorf("%d connections", opened)
	}

	hang := make(chan struct{})
	f := listen(t, func(_ *faulty, _ int, p *peer) { p.request(); close(hang); p.wait() })
	one := client(t, Config{MaxConnsPerHost: 1})
	ctx, cancel := context.WithCancel(t.Context())
	callers.Go(func() { _, _ = one.Do(ctx, Request{Method: "POST", URL: f.url}) })
	<-hang
	short, cancelShort := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancelShort()
	_, err := one.Do(short, Request{Method: "POST", URL: f.url})
	wantError(t, PhaseWait, false, err)
	cancel()
	callers.Wait()
}

// TestMaxAge gives the connections up when they are old: idle ones at once, one in use when it comes back.
func TestMaxAge(t *testing.T) {
	for _, http2 := range []bool{false, true, true, true, true} { // HTTP/2 may be quick to forget a stream, or not
		count := &counted{open: map[net.Conn]bool{}}
		inside, leave := make(chan struct{}), make(chan struct{})
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				close(inside)
				<-leave
			}
		}))
		s.Config.ConnState, s.EnableHTTP2 = count.state, http2
		s.StartTLS()
		t.Cleanup(s.Close)
		u := parse(t, s.URL)
		c := client(t, Config{HTTP2: http2, TLS: tlsfiles.Settings{InsecureSkipVerify: true}})

		var slow sync.WaitGroup
		slow.Go(func() {
			if a, err := post(t, c, parse(t, s.URL+"/slow"), "x"); err != nil || a.Status != 200 {
				t.Errorf("%+v, %v", a, err)
			}
		})
		<-inside
		a, err := post(t, c, u, "x")
		wantStatus(t, 200, a, err)
		_, before := count.now()

		c.pool.mu.Lock()
		c.pool.current.born = time.Now().Add(-5 * time.Minute)
		c.pool.mu.Unlock()
		a, err = post(t, c, u, "x")
		wantStatus(t, 200, a, err)
		if _, opened := count.now(); opened != before+1 {
			t.Errorf("HTTP/2 %v: %d connections were opened, then %d", http2, before, opened)
		}
		eventually(t, "the old idle connection is closed", func() bool { open, _ := count.now(); return open == 2 })
		close(leave)
		slow.Wait()
		eventually(t, fmt.Sprintf("the old connection in use is closed (HTTP/2 %v)", http2), func() bool { open, _ := count.now(); return open == 1 })
		c.Close()
		eventually(t, "all are closed", func() bool { open, _ := count.now(); return open == 0 })
		_, err = post(t, c, u, "x")
		wantError(t, PhaseWait, false, err)
		if !errors.Is(err, net.ErrClosed) || c.Probe(t.Context(), u) == nil {
			t.Error("it works after Close")
		}
	}
}

// TestCloseDuringRequest lets the request end.
func TestCloseDuringRequest(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	count := &counted{open: map[net.Conn]bool{}}
	u := countingServer(t, count, func(http.ResponseWriter, *http.Request) { close(inside); <-leave })
	c := client(t, Config{})
	var caller sync.WaitGroup
	caller.Go(func() {
		if a, err := post(t, c, u, "x"); err != nil || a.Status != 200 {
			t.Errorf("%+v, %v", a, err)
		}
	})
	<-inside
	c.Close()
	close(leave)
	caller.Wait()
	eventually(t, "the connection is closed", func() bool { open, _ := count.now(); return open == 0 })
}

// TestThousandFailures fails in all ways, and leaves no goroutine and no file open behind, but for idle connections while
// the Client is open.
func TestThousandFailures(t *testing.T) {
	ways := []func(_ *faulty, n int, p *peer){
		func(_ *faulty, _ int, p *peer) { p.reset() },
		func(_ *faulty, _ int, p *peer) { p.request(); p.reset() },
		func(_ *faulty, _ int, p *peer) { p.request(); p.say("HTTP/1.1 200 OK\r\nA"); p.reset() },
		func(_ *faulty, _ int, p *peer) {
			p.request()
			p.say("HTTP/1.1 101 Up\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			p.wait()
		},
		func(_ *faulty, _ int, p *peer) { p.request(); p.say("HTTP/1.1 200 OK\r\n\r\n"); p.endless("x") },
		func(_ *faulty, _ int, p *peer) { p.say("HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n") },
		func(_ *faulty, _ int, p *peer) { p.request(); p.say("HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\nx") },
		func(_ *faulty, _ int, p *peer) { p.request(); p.wait() }, // until the request is given up
	}
	servers := make([]*faulty, len(ways))
	for i, way := range ways {
		servers[i] = listen(t, way)
	}
	secure := *servers[0].url
	secure.Scheme = "https"
	c := client(t, Config{Body: 20 * time.Millisecond, Header: 20 * time.Millisecond})
	c.dialer.Resolver = resolver(t, func(string, int) []string { return nil })
	before, files := runtime.NumGoroutine(), openFiles(t)
	var callers sync.WaitGroup
	for caller := range 4 {
		callers.Go(func() {
			for i := range 250 {
				u := servers[(caller+i)%len(servers)].url
				switch i % 25 {
				case 0:
					u = parse(t, fmt.Sprintf("http://nowhere-%d.example/", i))
				case 1:
					u = &secure
				}
				_, _ = post(t, c, u, strings.Repeat("x", 1+i%3*(1<<16)))
			}
		})
	}
	callers.Wait()
	c.Close()
	eventually(t, "no goroutines are left", func() bool { return runtime.NumGoroutine() <= before })
	eventually(t, "no files are left open", func() bool { return openFiles(t) <= files })
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
