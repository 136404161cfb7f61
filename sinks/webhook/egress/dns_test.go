package egress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// resolver starts a DNS server, and returns a resolver that asks it. addresses gives the answer to the n-th question for
// a name's IPv4 addresses, from 0; none means that there is no such name. A nil addresses never answers.
func resolver(t *testing.T, addresses func(name string, n int) []string) *net.Resolver {
	t.Helper()
	server, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	// Package net goes on waiting for an answer for some seconds when nobody wants it any more.
	var mu sync.Mutex
	var questions []net.Conn
	t.Cleanup(func() {
		server.Close()
		<-done
		mu.Lock()
		defer mu.Unlock()
		for _, c := range questions {
			c.Close()
		}
	})
	go func() {
		defer close(done)
		asked := 0
		buffer := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			var question dnsmessage.Message
			if err := question.Unpack(buffer[:n]); err != nil || addresses == nil {
				continue
			}
			var found []string
			if question.Questions[0].Type == dnsmessage.TypeA {
				found = addresses(question.Questions[0].Name.String(), asked)
				asked++
			}
			if packed, err := dnsAnswer(question, found); err == nil {
				_, _ = server.WriteTo(packed, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			questions = append(questions, c)
		}
		return c, err
	}}
}

func dnsAnswer(m dnsmessage.Message, addresses []string) ([]byte, error) {
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	if m.Questions[0].Type == dnsmessage.TypeA && len(addresses) == 0 {
		m.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addresses {
		m.Answers = append(m.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET},
			Body:   &dnsmessage.AResource{A: netip.MustParseAddr(a).As4()},
		})
	}
	return m.Pack()
}

// private is a server on 127.0.0.2 that must never hear anything, and a public one on 127.0.0.1, on the same port.
func private(t *testing.T) (u *url.URL, rules Rules) {
	t.Helper()
	u = server(t, func(http.ResponseWriter, *http.Request) {})
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.2:"+u.Port())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			t.Error("the private server was connected to")
			c.Close()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	u.Host = "rebind.example:" + u.Port()
	port, err := net.LookupPort("tcp", u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return u, Rules{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, AllowPorts: []int{port}}
}

// TestRebinding resolves a name to a public address at first and to a private one afterwards: the address of the dial
// counts. https://github.com/liwala/ay-framework/issues/301
func TestRebinding(t *testing.T) {
	u, rules := private(t)
	c := client(t, Config{Guard: NewGuard(rules)})
	c.dialer.Resolver = resolver(t, func(_ string, n int) []string {
		return []string{[]string{"127.0.0.1", "127.0.0.2"}[min(n, 1)]}
	})
	answer, err := post(t, c, u, "x")
	wantStatus(t, 200, answer, err)
	c.pool.mu.Lock()
	c.pool.retire()
	c.pool.mu.Unlock()
	_, err = post(t, c, u, "x")
	wantError(t, PhaseConnect, false, err)
	wantRefused(t, err, "127.0.0.2 is loopback")
	if err := c.Probe(t.Context(), u); !errors.Is(err, ErrRefused) {
		t.Errorf("Probe: %v", err)
	}
}

// TestSeveralAddresses goes to the one that may be used, wherever it stands.
func TestSeveralAddresses(t *testing.T) {
	u, rules := private(t)
	for _, addresses := range [][]string{{"127.0.0.2", "127.0.0.1"}, {"127.0.0.1", "127.0.0.2"}, {"10.0.0.1", "127.0.0.2", "127.0.0.1"}} {
		c := client(t, Config{Guard: NewGuard(rules)})
		c.dialer.Resolver = resolver(t, func(string, int) []string { return addresses })
		answer, err := post(t, c, u, "x")
		wantStatus(t, 200, answer, err)
	}
	c := client(t, Config{Guard: NewGuard(rules)})
	c.dialer.Resolver = resolver(t, func(string, int) []string { return []string{"127.0.0.2", "10.0.0.1"} })
	_, err := post(t, c, u, "x")
	wantError(t, PhaseConnect, false, err)
	wantRefused(t, err, "")
}

// TestDownIsNoRefusal has a private address, and a public one where nobody listens: that may be otherwise tomorrow, and
// must not bury the record.
func TestDownIsNoRefusal(t *testing.T) {
	s := server(t, func(http.ResponseWriter, *http.Request) {})
	port, err := net.LookupPort("tcp", s.Port())
	if err != nil {
		t.Fatal(err)
	}
	guard := NewGuard(Rules{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.3/32")}, AllowPorts: []int{port}})
	for _, addresses := range [][]string{{"127.0.0.2", "127.0.0.3"}, {"127.0.0.3", "127.0.0.2"}} {
		c := client(t, Config{Guard: guard})
		c.dialer.Resolver = resolver(t, func(string, int) []string { return addresses })
		_, err := post(t, c, parse(t, "http://half.example:"+s.Port()), "x")
		wantError(t, PhaseConnect, false, err)
		if errors.Is(err, ErrRefused) {
			t.Errorf("%v: %v", addresses, err)
		}
	}
}

func TestNoSuchHost(t *testing.T) {
	c := client(t, Config{})
	c.dialer.Resolver = resolver(t, func(string, int) []string { return nil })
	_, err := post(t, c, parse(t, "http://nowhere.example/?token=hunter2"), "x")
	e := wantError(t, PhaseDNS, false, err)
	var dns *net.DNSError
	if !errors.As(err, &dns) || !dns.IsNotFound || e.Timeout() {
		t.Errorf("%v", err)
	}
	if !strings.Contains(err.Error(), "nowhere.example") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
}

// TestSlowDNS has a name server that never answers: the connect timeout ends that too, also when the request's own time
// is longer, and the other way round.
func TestSlowDNS(t *testing.T) {
	c := client(t, Config{Connect: 300 * time.Millisecond})
	c.dialer.Resolver = resolver(t, nil)
	start := time.Now()
	_, err := post(t, c, parse(t, "http://slow.example/"), "x")
	if e := wantError(t, PhaseDNS, false, err); !e.Timeout() {
		t.Errorf("no timeout: %v", err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}

	patient := client(t, Config{})
	patient.dialer.Resolver = c.dialer.Resolver
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err = patient.Do(ctx, Request{Method: "POST", URL: parse(t, "http://slow.example/")})
	wantError(t, PhaseDNS, false, err)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// TestGuardComesBeforeAnything refuses a literal without a connection or a question.
func TestGuardComesBeforeAnything(t *testing.T) {
	var asked atomic.Int32
	c := client(t, Config{Guard: NewGuard(Rules{})})
	c.dialer.Resolver = resolver(t, func(string, int) []string { asked.Add(1); return nil })
	for _, text := range []string{"http://127.0.0.1/", "http://u:p@x.example/", "gopher://x.example/"} {
		_, err := post(t, c, parse(t, text), "x")
		wantError(t, PhaseRequest, false, err)
		wantRefused(t, err, "")
	}
	// Go resolves these as names; a C library may take them for addresses, which are refused when they are dialed.
	for _, text := range []string{"http://127.1/", "http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/"} {
		_, err := post(t, c, parse(t, text), "x")
		wantError(t, PhaseDNS, false, err)
	}
	if asked.Load() == 0 {
		t.Error("the resolver was not used")
	}
}
