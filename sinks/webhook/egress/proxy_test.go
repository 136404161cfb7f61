package egress

import (
	"bufio"
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core/tlsfiles"
)

// proxy is an HTTP proxy that wants a password, and goes where it is told.
func proxy(t *testing.T, asked *atomic.Int32) *faulty {
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("me:hunter2"))
	return listen(t, func(_ *faulty, _ int, p *peer) {
		r, err := http.ReadRequest(p.reader)
		if err != nil {
			return
		}
		asked.Add(1)
		if r.Header.Get("Proxy-Authorization") != want {
			p.say("HTTP/1.1 407 Who? hunter2\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			return
		}
		to, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.Host)
		if err != nil {
			p.say("HTTP/1.1 502 Nobody There\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			return
		}
		defer to.Close()
		if r.Method != http.MethodConnect {
			r.Header.Set("Connection", "close")
			_ = r.Write(to)
			_, _ = io.Copy(p, bufio.NewReader(to))
			return
		}
		p.say("HTTP/1.1 200 Here You Are\r\n\r\n")
		var ways sync.WaitGroup
		ways.Go(func() { _, _ = io.Copy(to, p.reader); to.Close() })
		_, _ = io.Copy(p, to)
		p.Close()
		ways.Wait()
	})
}

func TestProxy(t *testing.T) {
	var asked atomic.Int32
	through := proxy(t, &asked)
	plain := server(t, quiet)
	secure, _ := secureServer(t, nil, true, quiet)
	good := parse(t, "http://me:hunter2@"+through.url.Host)
	// The proxy's own address is none that the Guard would let out; nor are the servers', which it does not see.
	named := *secure
	named.Host = "localhost:" + secure.Port()
	guard := NewGuard(Rules{AllowPorts: []int{port(t, secure.Port())}})
	for name, c := range map[string]struct {
		config Config
		url    string
	}{
		"plain":          {Config{Proxy: good}, plain.String()},
		"https":          {Config{Proxy: good, TLS: tlsfiles.Settings{InsecureSkipVerify: true}}, secure.String()},
		"HTTP/2":         {Config{Proxy: good, HTTP2: true, TLS: tlsfiles.Settings{InsecureSkipVerify: true}}, secure.String()},
		"behind a guard": {Config{Proxy: good, Guard: guard, TLS: tlsfiles.Settings{InsecureSkipVerify: true}}, named.String()},
	} {
		asked.Store(0)
		client := client(t, c.config)
		a, err := post(t, client, parse(t, c.url), "x")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantStatus(t, 200, a, nil)
		if asked.Load() != 1 {
			t.Errorf("%s: the proxy was asked %d times", name, asked.Load())
		}
		if err := client.Probe(t.Context(), parse(t, c.url)); err != nil {
			t.Errorf("%s: Probe: %v", name, err)
		}
	}
	// What is written in the URL is seen.
	_, err := post(t, client(t, Config{Proxy: good, Guard: guard}), secure, "x")
	wantError(t, PhaseRequest, false, err)
	wantRefused(t, err, "loopback")
}

func port(t *testing.T, text string) int {
	t.Helper()
	n, err := net.LookupPort("tcp", text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestProxyThatRefuses(t *testing.T) {
	var asked atomic.Int32
	through := proxy(t, &asked)
	secure, requests := secureServer(t, nil, false, quiet)
	bad := parse(t, "http://me:hunter2x@"+through.url.Host)
	_, err := post(t, client(t, Config{Proxy: bad}), secure, "x")
	wantError(t, PhaseConnect, false, err)
	if text := err.Error(); !strings.Contains(text, "proxy answered 407") || strings.Contains(text, "hunter2") {
		t.Error(err)
	}
	a, err := post(t, client(t, Config{Proxy: bad}), parse(t, "http://127.0.0.1:1/"), "x")
	wantStatus(t, 407, a, err) // of a plain request the proxy's answer is the answer

	good := parse(t, "http://me:hunter2@"+through.url.Host)
	_, err = post(t, client(t, Config{Proxy: good}), parse(t, "https://127.0.0.1:1/"), "x")
	wantError(t, PhaseConnect, false, err)
	if text := err.Error(); !strings.Contains(text, "proxy answered 502") || strings.Contains(text, "hunter2") {
		t.Error(err)
	}

	nobody := parse(t, "http://me:hunter2@127.0.0.1:1")
	_, err = post(t, client(t, Config{Proxy: nobody}), secure, "x")
	wantError(t, PhaseConnect, false, err)
	if strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
	if requests.Load() != 0 {
		t.Errorf("%d requests", requests.Load())
	}
}

// TestProxyThatHangs says nothing to CONNECT.
func TestProxyThatHangs(t *testing.T) {
	through := listen(t, func(_ *faulty, _ int, p *peer) { p.wait() })
	c := client(t, Config{Proxy: through.url})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := c.Do(ctx, Request{Method: "POST", URL: parse(t, "https://127.0.0.1:1/")})
	wantError(t, PhaseConnect, false, err)
}

// TestEnvironmentIsIgnored sets a proxy that nobody configured. (net/http would not use it for an address of this host.)
func TestEnvironmentIsIgnored(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	u := server(t, quiet)
	c := client(t, Config{})
	c.dialer.Resolver = resolver(t, func(string, int) []string { return []string{"127.0.0.1"} })
	a, err := post(t, c, parse(t, "http://here.example:"+u.Port()), "x")
	wantStatus(t, 200, a, err)
}
