package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/connectd/connectd/core/tlsfiles"
	"github.com/connectd/connectd/core/tlsfiles/tlstest"
)

// speakHTTP2 plays the server of a connection of HTTP/2: for each request it has read whole it calls answer with the
// stream's id.
func speakHTTP2(p *peer, answer func(w *http2.Framer, stream uint32) (goOn bool)) {
	if _, err := io.CopyN(io.Discard, p.reader, int64(len(http2.ClientPreface))); err != nil {
		return
	}
	w := http2.NewFramer(p.Conn, p.reader)
	_ = w.WriteSettings()
	bodies := map[uint32][]byte{}
	for {
		frame, err := w.ReadFrame()
		if err != nil {
			return
		}
		if settings, ok := frame.(*http2.SettingsFrame); ok && !settings.IsAck() {
			_ = w.WriteSettingsAck()
		}
		data, ok := frame.(*http2.DataFrame)
		if !ok {
			continue // every request here has a body
		}
		id := data.StreamID
		bodies[id] = append(bodies[id], data.Data()...)
		if !data.StreamEnded() {
			continue
		}
		p.faulty.mu.Lock()
		p.faulty.requests = append(p.faulty.requests, string(bodies[id]))
		p.faulty.mu.Unlock()
		if !answer(w, id) {
			return
		}
	}
}

// respond answers a stream with a status and no body.
func respond(w *http2.Framer, stream uint32, status string) {
	var block strings.Builder
	_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: status})
	_ = w.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true,
	})
}

func listenHTTP2(t *testing.T, a *tlstest.Authority, answer func(n int, w *http2.Framer, stream uint32) (goOn bool)) *faulty {
	config := &tls.Config{Certificates: []tls.Certificate{a.Issue(t, tlstest.Leaf{})}, NextProtos: []string{"h2"}}
	return listenTLS(t, config, func(_ *faulty, n int, p *peer) {
		speakHTTP2(p, func(w *http2.Framer, stream uint32) bool { return answer(n, w, stream) })
	})
}

// TestGivenBack has a server of HTTP/2 that says of a request that it did nothing with it, the first time: then it is
// sent once more, the same bytes. What says less is not sent again. (RFC 9113, section 8.7)
func TestGivenBack(t *testing.T) {
	reset := func(code http2.ErrCode) func(*http2.Framer, uint32) {
		return func(w *http2.Framer, stream uint32) { _ = w.WriteRSTStream(stream, code) }
	}
	leave := func(seen uint32, code http2.ErrCode) func(*http2.Framer, uint32) {
		return func(w *http2.Framer, _ uint32) { _ = w.WriteGoAway(seen, code, []byte("hunter2")) }
	}
	authority := tlstest.New(t)
	for name, c := range map[string]struct {
		refuse   func(w *http2.Framer, stream uint32)
		requests int
	}{
		"stream refused":       {reset(http2.ErrCodeRefusedStream), 2},
		"going away before it": {leave(0, http2.ErrCodeNo), 2},
		"protocol error":       {reset(http2.ErrCodeProtocol), 1},
		"internal error":       {reset(http2.ErrCodeInternal), 1},
		"cancelled":            {reset(http2.ErrCodeCancel), 1},
		"calm down":            {reset(http2.ErrCodeEnhanceYourCalm), 1},
		"going away in anger":  {leave(0, http2.ErrCodeEnhanceYourCalm), 1},
		"going away after it":  {leave(1, http2.ErrCodeInternal), 1},
	} {
		for _, body := range []string{"x", ""} {
			t.Run(name+" "+body, func(t *testing.T) {
				var mu sync.Mutex
				first := true
				f := listenHTTP2(t, authority, func(_ int, w *http2.Framer, stream uint32) bool {
					mu.Lock()
					defer mu.Unlock()
					if !first {
						respond(w, stream, "200")
						return true
					}
					first = false
					c.refuse(w, stream)
					return !strings.HasPrefix(name, "going away a") && !strings.HasPrefix(name, "going away in")
				})
				a, err := client(t, Config{HTTP2: true, TLS: tlsfiles.Settings{CAFile: authority.File}}).Do(t.Context(), Request{
					Method: "POST", URL: f.url, Body: []byte(body), Header: http.Header{"Idempotency-Key": {"k"}},
				})
				if c.requests == 2 {
					wantStatus(t, 200, a, err)
				} else {
					wantError(t, PhaseHeader, true, err)
					if strings.Contains(err.Error(), "hunter2") {
						t.Error(err)
					}
				}
				if _, requests := f.seen(); len(requests) != c.requests || slices.ContainsFunc(requests, func(s string) bool { return s != body }) {
					t.Errorf("requests %q", requests)
				}
			})
		}
	}
}

// TestGivenBackAlways is sent once more and no more.
func TestGivenBackAlways(t *testing.T) {
	authority := tlstest.New(t)
	f := listenHTTP2(t, authority, func(_ int, w *http2.Framer, stream uint32) bool {
		_ = w.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
		return true
	})
	_, err := post(t, client(t, Config{HTTP2: true, TLS: tlsfiles.Settings{CAFile: authority.File}}), f.url, "x")
	wantError(t, PhaseHeader, false, err)
	if _, requests := f.seen(); len(requests) != 2 {
		t.Errorf("requests %q", requests)
	}
}

// TestHTTP2LosesTheConnection has a server that reads a request and hangs up.
func TestHTTP2LosesTheConnection(t *testing.T) {
	authority := tlstest.New(t)
	f := listenHTTP2(t, authority, func(_ int, w *http2.Framer, stream uint32) bool {
		if stream == 1 {
			respond(w, stream, "200")
			return true
		}
		return false
	})
	c := client(t, Config{HTTP2: true, TLS: tlsfiles.Settings{CAFile: authority.File}})
	a, err := post(t, c, f.url, "1")
	wantStatus(t, 200, a, err)
	_, err = post(t, c, f.url, "2")
	wantError(t, PhaseHeader, true, err)
	a, err = post(t, c, f.url, "3")
	wantStatus(t, 200, a, err)
	if connections, requests := f.seen(); connections != 2 || !slices.Equal(requests, []string{"1", "2", "3"}) {
		t.Errorf("%d connections, requests %q", connections, requests)
	}
}

// TestHTTP2SharesOneConnection has many requests at once.
func TestHTTP2SharesOneConnection(t *testing.T) {
	var mu sync.Mutex
	peers := map[string]bool{}
	together := newBarrier(20)
	u, _ := secureServer(t, nil, true, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		peers[r.RemoteAddr] = true
		mu.Unlock()
		if r.URL.Path == "/together" {
			together.wait()
		}
		fmt.Fprint(w, r.Proto)
	})
	c := client(t, Config{HTTP2: true, Capture: 10, TLS: tlsfiles.Settings{InsecureSkipVerify: true}})
	a, err := post(t, c, u, "x")
	wantStatus(t, 200, a, err)
	if string(a.Body) != "HTTP/2.0" {
		t.Fatalf("protocol %s", a.Body)
	}
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			if a, err := post(t, c, parse(t, u.String()+"/together"), "x"); err != nil || a.Status != 200 {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
	callers.Wait()
	if len(peers) != 1 {
		t.Errorf("%d connections", len(peers))
	}
	a, err = post(t, client(t, Config{Capture: 10, TLS: tlsfiles.Settings{InsecureSkipVerify: true}}), u, "x")
	wantStatus(t, 200, a, err)
	if string(a.Body) != "HTTP/1.1" {
		t.Errorf("protocol %s with HTTP/2 off", a.Body)
	}
}

// TestHTTP2Answers are odd, and bounded.
func TestHTTP2Answers(t *testing.T) {
	asked := make(chan struct{}, 2)
	u, _ := secureServer(t, nil, true, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/early":
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		case "/hints":
			for range 3 {
				w.WriteHeader(http.StatusEarlyHints)
			}
		case "/header":
			w.Header().Set("A", strings.Repeat("a", 1<<20))
		case "/endless":
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "ab")
			}
		case "/slow", "/silent":
			if r.URL.Path == "/slow" {
				_ = http.NewResponseController(w).Flush()
			} else {
				_, _ = io.Copy(io.Discard, r.Body)
				asked <- struct{}{}
			}
			<-r.Context().Done()
		}
	})
	c := client(t, Config{
		HTTP2: true, Capture: 4, Header: 150 * time.Millisecond, Body: 100 * time.Millisecond, TLS: tlsfiles.Settings{InsecureSkipVerify: true},
	})
	for path, want := range map[string]struct {
		status int
		body   string
		whole  bool
	}{
		"/early":   {413, "", true},
		"/hints":   {200, "", true},
		"/endless": {200, "abab", false},
		"/slow":    {200, "", false},
	} {
		a, err := post(t, c, parse(t, u.String()+path), strings.Repeat("x", 4<<20))
		wantStatus(t, want.status, a, err)
		if string(a.Body) != want.body || a.Whole != want.whole {
			t.Errorf("%s: body %q, whole %v", path, a.Body, a.Whole)
		}
	}
	_, err := post(t, c, parse(t, u.String()+"/silent"), "x")
	if e := wantError(t, PhaseHeader, true, err); !e.Timeout() {
		t.Error(err)
	}
	<-asked
	patient := client(t, Config{HTTP2: true, TLS: tlsfiles.Settings{InsecureSkipVerify: true}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	_, err = patient.Do(ctx, Request{Method: "POST", URL: parse(t, u.String()+"/silent"), Body: []byte("x")})
	// The receiver may have the body before the client knows that it is written.
	if e := (*Error)(nil); !errors.As(err, &e) || !e.Sent || e.Phase != PhaseHeader && e.Phase != PhaseWrite {
		t.Errorf("cancelled while there is no answer: %v", err)
	}
	_, err = post(t, patient, parse(t, u.String()+"/header"), "x")
	wantError(t, PhaseHeader, true, err)
}

// TestHeaderTooLargeForHTTP2 is the request's own fault: the server said how much it takes.
func TestHeaderTooLargeForHTTP2(t *testing.T) {
	u, requests := secureServer(t, nil, true, quiet)
	c := client(t, Config{HTTP2: true, TLS: tlsfiles.Settings{InsecureSkipVerify: true}})
	r := Request{Method: "POST", URL: u, Header: http.Header{"A": {strings.Repeat("a", 2<<20)}}, Body: []byte("x")}
	a, err := post(t, c, u, "x")
	wantStatus(t, 200, a, err)
	_, err = c.Do(t.Context(), r)
	wantError(t, PhaseRequest, false, err)
	if requests.Load() != 1 {
		t.Errorf("%d requests", requests.Load())
	}
}

// TestHalfDeadConnection has a server of HTTP/2 that falls silent without hanging up: the pings find out, long before the
// request's own limits, and the next request goes over another connection.
func TestHalfDeadConnection(t *testing.T) {
	authority := tlstest.New(t)
	f := listenHTTP2(t, authority, func(n int, w *http2.Framer, stream uint32) bool {
		if n == 0 && stream > 1 {
			<-t.Context().Done()
		}
		respond(w, stream, "200")
		return true
	})
	c := client(t, Config{HTTP2: true, TLS: tlsfiles.Settings{CAFile: authority.File}})
	c.pool.make = func(config *tls.Config, among *connections) *http.Transport {
		transport := c.transport(config, among)
		if h := transport.HTTP2; h.SendPingTimeout != 15*time.Second || h.PingTimeout != 5*time.Second {
			t.Errorf("%+v", h)
		}
		transport.HTTP2.SendPingTimeout, transport.HTTP2.PingTimeout = 100*time.Millisecond, 200*time.Millisecond
		return transport
	}
	a, err := post(t, c, f.url, "1")
	wantStatus(t, 200, a, err)
	start := time.Now()
	_, err = post(t, c, f.url, "2")
	wantError(t, PhaseHeader, true, err)
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	a, err = post(t, c, f.url, "3")
	wantStatus(t, 200, a, err)
	if connections, requests := f.seen(); connections != 2 || !slices.Equal(requests, []string{"1", "2", "3"}) {
		t.Errorf("%d connections, requests %q", connections, requests)
	}
}
