package egress

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core/tlsfiles"
)

func TestProbe(t *testing.T) {
	f := listen(t, func(_ *faulty, _ int, p *peer) {
		if p.request() {
			t.Error("a request was sent")
		}
	})
	c := client(t, Config{HTTP2: true, TLS: tlsfiles.Settings{InsecureSkipVerify: true}})
	if err := c.Probe(t.Context(), f.url); err != nil {
		t.Error(err)
	}
	for _, http2 := range []bool{false, true} {
		secure, requests := secureServer(t, nil, http2, quiet)
		if err := c.Probe(t.Context(), secure); err != nil {
			t.Errorf("HTTP/2 %v: %v", http2, err)
		}
		if requests.Load() != 0 {
			t.Errorf("HTTP/2 %v: %d requests", http2, requests.Load())
		}
	}
	wantError(t, PhaseConnect, false, c.Probe(t.Context(), parse(t, "http://127.0.0.1:1/")))
	wantError(t, PhaseRequest, false, c.Probe(t.Context(), parse(t, "http://u:p@127.0.0.1:1/")))
	silent := listen(t, func(_ *faulty, _ int, p *peer) { p.wait() })
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err := c.Probe(ctx, parse(t, secure(silent)))
	if wantError(t, PhaseTLS, false, err); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	wantError(t, PhaseWait, false, c.Probe(ctx, f.url))
}

// TestProbeWithLimitedConnections opens more than the limit, one after the other.
func TestProbeWithLimitedConnections(t *testing.T) {
	u := server(t, quiet)
	c := client(t, Config{MaxConnsPerHost: 2})
	for range 5 {
		if err := c.Probe(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHostHeader has no port that the scheme implies, as signatures over the host expect.
func TestHostHeader(t *testing.T) {
	for text, want := range map[string]string{
		"http://a.example:80/": "a.example", "http://a.example/": "a.example", "http://a.example:443/": "a.example:443",
		"https://[::1]:443/": "[::1]", "https://a.example:80": "a.example:80",
	} {
		if r := outgoing(t.Context(), Request{Method: "POST", URL: parse(t, text)}); r.Host != want {
			t.Errorf("%s: Host %s, want %s", text, r.Host, want)
		}
	}
}

// TestEchoShowsNothing has a server that answers with the request: its line and header must not be in the error.
func TestEchoShowsNothing(t *testing.T) {
	f := listen(t, func(_ *faulty, _ int, p *peer) {
		for {
			line, err := p.reader.ReadString('\n')
			if err != nil {
				return
			}
			p.say(line)
		}
	})
	u := *f.url
	u.Path, u.RawQuery = "/hunter2", "token=hunter2"
	_, err := client(t, Config{}).Do(t.Context(), Request{
		Method: "POST", URL: &u, Header: http.Header{"Authorization": {"Bearer hunter2"}}, Body: []byte("hunter2"),
	})
	wantError(t, PhaseHeader, true, err)
	if strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

// TestTook adds up.
func TestTook(t *testing.T) {
	release := make(chan struct{})
	var calls atomic.Int32
	u := server(t, func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 1 {
			<-release
		}
		fmt.Fprint(w, "x")
	})
	c := client(t, Config{Capture: 1})
	time.AfterFunc(30*time.Millisecond, func() { close(release) })
	a, err := post(t, c, u, "x")
	wantStatus(t, 200, a, err)
	if a.Took.Header < 20*time.Millisecond || a.Took.Connect <= 0 || a.Took.TLS != 0 || a.Took.DNS != 0 {
		t.Errorf("%+v", a.Took)
	}
	a, err = post(t, c, u, "x")
	wantStatus(t, 200, a, err)
	if a.Took.Connect != 0 || a.Took.Header <= 0 {
		t.Errorf("again: %+v", a.Took)
	}
}
