package egress

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http/httptrace"
	"sync"
	"time"
)

// Took is how long the phases of an exchange lasted. Those of a connection that was there already are zero.
type Took struct {
	Wait, DNS, Connect, TLS, Write, Header, Body time.Duration
}

// exchange observes one attempt to have one request answered. Its hooks also run in goroutines of net/http: a dial goes on
// when its request has got another connection, or has been given up.
type exchange struct {
	wire wire // of HTTP/1

	mu      sync.Mutex
	phase   Phase
	since   time.Time
	took    Took
	got     bool // a connection
	reused  bool
	shared  bool // HTTP/2
	written bool // of HTTP/2: a header may have been
}

// observe returns an exchange and the context that tells it what net/http does.
func observe(ctx context.Context) (*exchange, context.Context) {
	x := &exchange{phase: PhaseRequest, since: time.Now()}
	return x, httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:           func(string) { x.dialing(PhaseWait) },
		DNSStart:          func(httptrace.DNSStartInfo) { x.dialing(PhaseDNS) },
		ConnectStart:      func(string, string) { x.dialing(PhaseConnect) },
		TLSHandshakeStart: func() { x.dialing(PhaseTLS) },
		GotConn:           x.connected,
		WroteHeaderField:  func(string, []string) { x.writing() },
		WroteRequest:      func(info httptrace.WroteRequestInfo) { x.wrote(info.Err) },
	})
}

// dialing is about a connection that is being made for this request, which may have got another one since.
func (x *exchange) dialing(next Phase) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.got {
		x.enter(next)
	}
}

func (x *exchange) connected(info httptrace.GotConnInfo) {
	secure, shared := false, false
	if c, ok := info.Conn.(*tls.Conn); ok {
		secure, shared = true, c.ConnectionState().NegotiatedProtocol == "h2"
	}
	if c, ok := watched(info.Conn); ok && shared {
		c.shared.Store(true)
	} else if ok {
		x.wire.secure, x.wire.reused = secure, info.Reused
		c.wire.Store(&x.wire)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.got, x.reused, x.shared = true, info.Reused, shared
	x.enter(PhaseWrite)
}

// writing comes before the first byte of HTTP/2 is written, and of HTTP/1 before it leaves the buffer.
func (x *exchange) writing() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.written = true
}

func (x *exchange) wrote(err error) {
	_, failure := x.wire.state() // which was not reported
	x.mu.Lock()
	defer x.mu.Unlock()
	if err == nil && failure == nil && x.phase == PhaseWrite {
		x.enter(PhaseHeader)
	}
}

// enter ends one phase and begins the next; the caller holds the lock.
func (x *exchange) enter(next Phase) {
	now := time.Now()
	spent := now.Sub(x.since)
	switch x.phase {
	case PhaseWait:
		x.took.Wait += spent
	case PhaseDNS:
		x.took.DNS += spent
	case PhaseConnect:
		x.took.Connect += spent
	case PhaseTLS:
		x.took.TLS += spent
	case PhaseWrite:
		x.took.Write += spent
	case PhaseHeader:
		x.took.Header += spent
	}
	x.phase, x.since = next, now
}

// answered ends the exchange when the answer's header has come, whether or not the request was written to its end.
func (x *exchange) answered() Took {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.enter("")
	return x.took
}

// remedy is what may be done about a failure at once.
type remedy uint8

const (
	none   remedy = iota
	redial        // an idle connection had ended before a byte of the request was written: another one will do
	resend        // a connection of HTTP/2 ended before that, or the server gave the request back unprocessed
)

// failed says what err, the end of the attempt, means.
func (x *exchange) failed(ctx context.Context, err error) (*Error, remedy) {
	sent, _ := x.wire.state()
	x.mu.Lock()
	defer x.mu.Unlock()
	e := &Error{Phase: x.phase, Sent: sent, Err: withoutQuotes(err)}
	ended := ctx.Err() != nil
	switch {
	case ended && x.phase == PhaseRequest:
		e.Phase = PhaseWait
		return e, none
	case !x.got:
		return e, none
	case ended:
		// An HTTP/2 request that is given up may be written a moment later.
		e.Sent = sent || x.shared
		return e, none
	case refusedCertificate(err) && !x.reused:
		e.Phase, e.Sent = PhaseTLS, false
		return e, none
	case x.shared && tooLarge(err):
		e.Phase, e.Sent = PhaseRequest, false
		return e, none
	case x.shared && !x.written && !x.reused:
		// HTTP/2 does not pass on what the server said, which is most likely about the client's certificate.
		e.Phase, e.Err = PhaseTLS, fmt.Errorf("the server hung up after the handshake: %w", e.Err)
		return e, none
	case x.shared:
		e.Sent = x.written && !unprocessed(err)
	}
	switch {
	case e.Sent:
		return e, none
	case x.shared:
		return e, resend
	case x.reused:
		return e, redial
	}
	return e, none
}
