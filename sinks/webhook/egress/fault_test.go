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
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core/tlsfiles"
	"github.com/connectd/connectd/core/tlsfiles/tlstest"
)

func TestFaultsOfOneConnection(t *testing.T) {
	for name, c := range map[string]struct {
		handle func(f *faulty, n int, c *peer)
		sent   bool
		phase  Phase
		text   string
	}{
		"reset after the request":  {func(_ *faulty, _ int, c *peer) { c.request(); c.reset() }, true, PhaseHeader, "reset"},
		"closed after the request": {func(_ *faulty, _ int, c *peer) { c.request() }, true, PhaseHeader, "EOF"},
		"reset in the status":      {func(_ *faulty, _ int, c *peer) { c.request(); c.say("HTTP/1.1 20"); c.reset() }, true, PhaseHeader, ""},
		"closed in the header":     {func(_ *faulty, _ int, c *peer) { c.request(); c.say("HTTP/1.1 200 OK\r\nA: b\r\n") }, true, PhaseHeader, "EOF"},
		"no HTTP":                  {func(_ *faulty, _ int, c *peer) { c.request(); c.say("SSH-2.0-hunter2\r\n") }, true, PhaseHeader, "malformed"},
		"a status that is none":    {func(_ *faulty, _ int, c *peer) { c.request(); c.say("HTTP/1.1 hunter2\r\n\r\n") }, true, PhaseHeader, "malformed"},
		"a length that is none": {func(_ *faulty, _ int, c *peer) {
			c.request()
			c.say("HTTP/1.1 200 OK\r\nContent-Length: hunter2\r\n\r\n")
		}, true, PhaseHeader, "Content-Length"},
		"a header that is none": {func(_ *faulty, _ int, c *peer) { c.request(); c.say("HTTP/1.1 200 OK\r\nhunter2\r\n\r\n") }, true, PhaseHeader, "malformed"},
		"1 MB of header": {func(_ *faulty, _ int, c *peer) {
			c.request()
			c.say("HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 1<<20) + "\r\n\r\n")
		}, true, PhaseHeader, "exceeded"},
		"endless answers of 1xx":    {func(_ *faulty, _ int, c *peer) { c.request(); c.endless("HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n") }, true, PhaseHeader, "exceeded"},
		"reset before the request":  {func(_ *faulty, _ int, c *peer) { c.reset() }, false, "", ""},
		"closed before the request": {func(_ *faulty, _ int, _ *peer) {}, false, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := listen(t, c.handle)
			a, err := post(t, client(t, Config{}), f.url, "x")
			if err == nil {
				t.Fatalf("answer %+v", a)
			}
			if c.phase != "" {
				wantError(t, c.phase, c.sent, err)
			}
			if !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), `"`) {
				t.Errorf("%v, want %q", err, c.text)
			}
			if connections, requests := f.seen(); connections != 1 || len(requests) > 1 {
				t.Errorf("%d connections, requests %q", connections, requests)
			}
		})
	}
}

// endless says the text until the client hangs up.
func (p *peer) endless(text string) {
	for {
		if _, err := io.WriteString(p.Conn, text); err != nil {
			return
		}
	}
}

// TestAnswersThatCount has a status in time and something odd around it.
func TestAnswersThatCount(t *testing.T) {
	for name, c := range map[string]struct {
		say    string
		status int
		body   string
		whole  bool
	}{
		"plain":                     {ok200, 200, "ok", true},
		"no body":                   {"HTTP/1.1 204 No Content\r\n\r\n", 204, "", true},
		"closed at its end":         {"HTTP/1.0 200 OK\r\n\r\nok", 200, "ok", true},
		"1xx before":                {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" + ok200, 200, "ok", true},
		"another protocol":          {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nbytes", 101, "", false},
		"101 without a protocol":    {"HTTP/1.1 101 Switching Protocols\r\n\r\n", 101, "", false},
		"body broken off":           {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", 200, "ok", false},
		"broken chunks":             {"HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nzz", 500, "ok", false},
		"compressed, left as it is": {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b", 200, "\x1f\x8b", true},
		"a status of its own":       {"HTTP/1.1 799 What\r\nContent-Length: 0\r\n\r\n", 799, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			f := listen(t, func(_ *faulty, _ int, p *peer) {
				p.request()
				p.say(c.say)
			})
			a, err := post(t, client(t, Config{Capture: 100}), f.url, "x")
			wantStatus(t, c.status, a, err)
			if string(a.Body) != c.body || a.Whole != c.whole {
				t.Errorf("body %q, whole %v; want %q, %v", a.Body, a.Whole, c.body, c.whole)
			}
		})
	}
}

// TestBodiesDoNotHold has answers whose body never ends, or does not come: the status is there, and that is enough.
func TestBodiesDoNotHold(t *testing.T) {
	for name, c := range map[string]struct {
		handle func(p *peer)
		body   string
	}{
		"endless": {func(p *peer) { p.say("HTTP/1.1 200 OK\r\n\r\n"); p.endless("ab") }, "abab"},
		"slow":    {func(p *peer) { p.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"); p.wait() }, "ab"},
		"missing": {func(p *peer) { p.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"); p.wait() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := listen(t, func(_ *faulty, _ int, p *peer) {
				p.request()
				c.handle(p)
			})
			start := time.Now()
			a, err := post(t, client(t, Config{Capture: 4, Body: 100 * time.Millisecond}), f.url, "x")
			wantStatus(t, 200, a, err)
			if string(a.Body) != c.body || a.Whole {
				t.Errorf("body %q, whole %v", a.Body, a.Whole)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestLargeBodyKeepsConnection reads what is not wanted of a body, up to a limit, so that the connection can be used again.
func TestLargeBodyKeepsConnection(t *testing.T) {
	for size, want := range map[int]int{0: 1, 100: 1, maxDrain: 1, maxDrain + 100: 1, 10 * maxDrain: 2} {
		f := listen(t, func(_ *faulty, _ int, p *peer) {
			for p.request() {
				p.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size)))
			}
		})
		c := client(t, Config{Capture: 100})
		for range 2 {
			a, err := post(t, c, f.url, "x")
			wantStatus(t, 200, a, err)
			if len(a.Body) != min(size, 100) || a.Whole != (size <= 100) {
				t.Errorf("size %d: %d bytes, whole %v", size, len(a.Body), a.Whole)
			}
		}
		if connections, _ := f.seen(); connections != want {
			t.Errorf("size %d: %d connections, want %d", size, connections, want)
		}
	}
}

// TestRedirectsAreAnswers has a loop of redirects of every kind: each is an answer, and nothing is followed:
// https://github.com/portpowered/you-agent-factory/pull/1850, https://github.com/keygen-sh/keygen-api/pull/1138
func TestRedirectsAreAnswers(t *testing.T) {
	for _, status := range []int{300, 301, 302, 303, 304, 307, 308} {
		f := listen(t, func(f *faulty, _ int, p *peer) {
			for p.request() {
				p.say(fmt.Sprintf("HTTP/1.1 %d Over There\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", status, f.url))
			}
		})
		a, err := post(t, client(t, Config{}), f.url, "x")
		wantStatus(t, status, a, err)
		if a.Header.Get("Location") != f.url.String() {
			t.Errorf("header %v", a.Header)
		}
		if _, requests := f.seen(); !slices.Equal(requests, []string{"x"}) {
			t.Errorf("%d: requests %q", status, requests)
		}
	}
}

// TestEarlyAnswer has a server that refuses a request when it has seen the header, and hangs up while the body is still
// being written: the answer counts, not the write that fails.
func TestEarlyAnswer(t *testing.T) {
	const early = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nlong"
	refuse := func(_ *faulty, _ int, p *peer) {
		if _, err := http.ReadRequest(p.reader); err != nil {
			return
		}
		p.say(early)
	}
	body := strings.Repeat("x", 8<<20)
	authority := tlstest.New(t)
	for scheme, f := range map[string]*faulty{
		"http":  listen(t, refuse),
		"https": listenTLS(t, &tls.Config{Certificates: []tls.Certificate{authority.Issue(t, tlstest.Leaf{})}}, refuse),
	} {
		c := client(t, Config{Capture: 100, TLS: tlsfiles.Settings{CAFile: authority.File}})
		for range 10 {
			a, err := post(t, c, f.url, body)
			if err != nil {
				t.Fatalf("%s: %v", scheme, err)
			}
			wantStatus(t, 413, a, nil)
			if string(a.Body) != "long" {
				t.Errorf("body %q", a.Body)
			}
		}
		if connections, requests := f.seen(); connections != 10 || len(requests) != 0 {
			t.Errorf("%s: %d connections, %d requests read", scheme, connections, len(requests))
		}
	}
}

// TestHungUpWhileWriting has a server that hangs up in the midst of a body, and says nothing.
func TestHungUpWhileWriting(t *testing.T) {
	f := listen(t, func(_ *faulty, _ int, p *peer) {
		_, _ = http.ReadRequest(p.reader)
		p.reset()
	})
	_, err := post(t, client(t, Config{}), f.url, strings.Repeat("x", 8<<20))
	wantError(t, PhaseWrite, true, err)
}

// TestNothingIsReadAfterDo changes the request as soon as Do has returned, while the server has not read it.
func TestNothingIsReadAfterDo(t *testing.T) {
	f := listen(t, func(_ *faulty, _ int, p *peer) {
		p.say("HTTP/1.1 400 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		p.wait()
	})
	c := client(t, Config{})
	header := http.Header{}
	body := make([]byte, 1<<20)
	for i := range 50 {
		header.Set(fmt.Sprintf("X-%d", i), "value")
		body[i]++
		u := *f.url
		_, err := c.Do(t.Context(), Request{Method: "POST", URL: &u, Header: header, Body: body})
		u.Path = "/changed"
		if err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
		}
	}
}

// TestLimitsOfTime has a server that stops at each step: https://github.com/hookdeck/outpost/pull/600
func TestLimitsOfTime(t *testing.T) {
	hang := func(*faulty, int, *peer) { <-t.Context().Done() } // reads nothing
	silent := func(_ *faulty, _ int, p *peer) { p.request(); p.wait() }
	slow := func(_ *faulty, _ int, p *peer) { p.request(); p.say("HTTP/1.1 200 OK\r\nA: b\r\n"); p.wait() }
	const short, patient = 500 * time.Millisecond, time.Second // the latter begins with the call, so that it has some reserve
	for name, c := range map[string]struct {
		url     string
		config  Config
		body    int
		timeout time.Duration
		phase   Phase
		sent    bool
	}{
		"connect":               {"http://" + full(t), Config{Connect: short}, 1, 0, PhaseConnect, false},
		"connect, context":      {"http://" + full(t), Config{}, 1, patient, PhaseConnect, false},
		"TLS":                   {secure(listen(t, silent)), Config{TLSHandshake: short}, 1, 0, PhaseTLS, false},
		"TLS, context":          {secure(listen(t, silent)), Config{}, 1, patient, PhaseTLS, false},
		"write, context":        {listen(t, hang).url.String(), Config{}, 32 << 20, 2 * patient, PhaseWrite, true},
		"header":                {listen(t, silent).url.String(), Config{Header: short}, 1, 0, PhaseHeader, true},
		"header, slow":          {listen(t, slow).url.String(), Config{Header: short}, 1, 0, PhaseHeader, true},
		"header, context":       {listen(t, silent).url.String(), Config{}, 1, patient, PhaseHeader, true},
		"over before it begins": {listen(t, silent).url.String(), Config{}, 1, time.Nanosecond, PhaseWait, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			if c.timeout > 0 {
				limited, cancel := context.WithTimeout(ctx, c.timeout)
				defer cancel()
				ctx = limited
			}
			if c.timeout == time.Nanosecond {
				<-ctx.Done()
			}
			start := time.Now()
			_, err := client(t, c.config).Do(ctx, Request{Method: "POST", URL: parse(t, c.url), Body: make([]byte, c.body)})
			e := wantError(t, c.phase, c.sent, err)
			if !e.Timeout() || c.timeout > 0 && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%#v", e.Err)
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func secure(f *faulty) string { return "https://" + f.url.Host }

func TestCancel(t *testing.T) {
	asked := make(chan struct{})
	f := listen(t, func(_ *faulty, _ int, p *peer) { p.request(); close(asked); p.wait() })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	_, err := client(t, Config{}).Do(ctx, Request{Method: "POST", URL: f.url, Body: []byte("x")})
	if e := wantError(t, PhaseHeader, true, err); !errors.Is(err, context.Canceled) || e.Timeout() {
		t.Errorf("%v", err)
	}
}

// TestWhatCannotBeSent is about the request alone.
func TestWhatCannotBeSent(t *testing.T) {
	c := client(t, Config{})
	u := parse(t, "http://127.0.0.1:1/?hunter2")
	for name, r := range map[string]Request{
		"no URL":       {Method: "POST"},
		"user":         {Method: "POST", URL: parse(t, "http://u:hunter2@127.0.0.1:1/")},
		"scheme":       {Method: "POST", URL: parse(t, "ftp://127.0.0.1/")},
		"no host":      {Method: "POST", URL: parse(t, "http:///x")},
		"method":       {Method: "PO ST", URL: u},
		"header name":  {Method: "POST", URL: u, Header: http.Header{"a b": {"hunter2"}}},
		"header value": {Method: "POST", URL: u, Header: http.Header{"A": {"hunter2\r\nB: c"}}},
		"NUL":          {Method: "POST", URL: u, Header: http.Header{"A": {"hunter2\x00"}}},
	} {
		_, err := c.Do(t.Context(), r)
		wantError(t, PhaseRequest, false, err)
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows a secret: %v", name, err)
		}
	}
}

func TestRefusedConnection(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	_, err = post(t, client(t, Config{}), parse(t, "http://"+listener.Addr().String()+"/?hunter2"), "x")
	wantError(t, PhaseConnect, false, err)
	if strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}
