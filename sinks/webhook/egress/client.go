// Package egress is an HTTP client for destinations that nobody trusts, and for requests that must not be sent twice
// unnoticed. It follows no redirects, keeps no cookies, heeds no proxy of the environment, unpacks nothing, and reads no
// more of an answer than it was told. What fails tells how far it had come, and whether the destination may have acted.
// A Guard checks addresses where they are dialed, so that no name that resolves to another address tomorrow, or in the
// next moment, leads inside.
package egress

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/connectd/connectd/core/tlsfiles"
)

// Config is how a Client works. Zero values are the defaults in brackets.
type Config struct {
	Connect      time.Duration // limit for one connection, with name resolution [5s]
	TLSHandshake time.Duration // [5s]
	Header       time.Duration // from the end of the request to the end of the answer's header [15s]
	Body         time.Duration // for the answer's body; what has not come by then is missing [1s]

	Capture int // bytes of an answer's body that are kept [0]

	// TLS says whom an https server must be, and who the client is. When one of its files changes, new connections follow it
	// within a second, and old ones take no more requests.
	TLS   tlsfiles.Settings
	HTTP2 bool // where the server offers it

	MaxConnsPerHost int           // more wait [no limit]
	IdlePerHost     int           // idle connections kept for the next requests [64]
	IdleTimeout     time.Duration // idle connections are closed after [60s]
	MaxAge          time.Duration // connections are used no more after [5m]

	Guard *Guard // [everything goes]
	// Proxy is an http, https or socks5 URL, with user and password if it wants them; the environment's is never used
	// [none]. It resolves names and connects, so that the Guard sees no addresses but those that are written in URLs:
	// what the proxy can reach is for the proxy to guard.
	Proxy *url.URL
}

// Client sends requests. It may be used concurrently.
type Client struct {
	config Config
	dialer net.Dialer
	pool   pool
}

// New returns a Client, which connects to nothing yet. It must be closed.
func New(c Config) *Client {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&c.Connect, 5*time.Second)
	set(&c.TLSHandshake, 5*time.Second)
	set(&c.Header, 15*time.Second)
	set(&c.Body, time.Second)
	set(&c.IdleTimeout, time.Minute)
	set(&c.MaxAge, 5*time.Minute)
	if c.IdlePerHost == 0 {
		c.IdlePerHost = 64
	}
	client := &Client{config: c, dialer: net.Dialer{Timeout: c.Connect}}
	client.pool = pool{tls: c.TLS.Source(), make: client.transport, maxAge: c.MaxAge}
	return client
}

// Request is what is to be sent.
type Request struct {
	Method string
	URL    *url.URL // absolute, without user and password
	// Header has the names in their canonical form. Host and Content-Length in it are ignored, since they follow from the
	// URL and the Body, and so are those that are about a connection.
	Header http.Header
	Body   []byte
}

// Do sends the request once and returns the answer, whatever its status. An error is an *Error. Do only reads the request,
// and nothing of it after it has returned. ctx limits all of it.
//
// The request is written again in two cases, at once, and both times the destination has not seen it: when it was to go
// over a connection that had been idle and had ended before a byte was written, and, one time, when HTTP/2 gave it back
// unprocessed.
func (c *Client) Do(ctx context.Context, r Request) (*Answer, error) {
	if err := c.check(ctx, r.URL); err != nil {
		return nil, err
	}
	// A dead connection is not kept, so that after so many of them there is a new one.
	redials, resends := c.config.IdlePerHost+1, 1
	for {
		answer, err, can := c.attempt(ctx, r)
		switch {
		case err == nil:
			return answer, nil
		case can == redial && redials > 0:
			redials--
		case can == resend && resends > 0:
			resends--
		default:
			return nil, err
		}
	}
}

// check returns why the request must not, or can no longer, be sent.
func (c *Client) check(ctx context.Context, u *url.URL) error {
	if err := ctx.Err(); err != nil {
		return &Error{Phase: PhaseWait, Err: err}
	}
	check := checkURL
	if c.config.Guard != nil {
		check = c.config.Guard.URL
	}
	if err := check(u); err != nil {
		return &Error{Phase: PhaseRequest, Err: err}
	}
	return nil
}

func (c *Client) attempt(ctx context.Context, r Request) (*Answer, *Error, remedy) {
	g, failure := c.pool.acquire()
	if failure != nil {
		return nil, failure, none
	}
	defer c.pool.release(g)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	x, observed := observe(ctx)
	response, err := g.RoundTrip(outgoing(observed, r))
	if err != nil {
		e, can := x.failed(ctx, err)
		return nil, e, can
	}
	return c.read(response, x.answered(), cancel), nil, none
}

// aboutConnection are the headers that only who has the connection may set (RFC 9110, section 7.6.1), and Expect, which
// would only delay: the body is in memory.
var aboutConnection = [...]string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect",
}

// outgoing makes net/http's request. It has copies of all that the caller may change when Do has returned: an answer may
// come, and end it, while the request is still being written.
//
// GetBody is nil and the body is never http.NoBody, even if it is empty: a request that net/http could repeat is one that
// it does repeat by itself, for instance when it has an Idempotency-Key. The price is that an empty body goes out chunked
// over HTTP/1.
func outgoing(ctx context.Context, r Request) *http.Request {
	u := *r.URL
	host := u.Host
	if u.Scheme == "https" {
		host = strings.TrimSuffix(host, ":443")
	} else {
		host = strings.TrimSuffix(host, ":80")
	}
	header := r.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	for _, name := range aboutConnection {
		header.Del(name)
	}
	request := &http.Request{
		Method: r.Method, URL: &u, Host: host, Header: header,
		Body: io.NopCloser(bytes.NewReader(bytes.Clone(r.Body))), ContentLength: int64(len(r.Body)),
	}
	return request.WithContext(ctx)
}

// Probe asks whether the URL's host can be reached: it resolves the name, connects, shakes hands where the scheme is
// https, and hangs up. No request is sent. Of a plain URL behind a proxy it reaches the proxy only, and a server of TLS 1.3
// that misses a client's certificate says so too late to be heard. An error is an *Error.
func (c *Client) Probe(ctx context.Context, u *url.URL) error {
	if err := c.check(ctx, u); err != nil {
		return err
	}
	g, failure := c.pool.acquire()
	if failure != nil {
		return failure
	}
	defer c.pool.release(g)
	// Of its own: with MaxConnsPerHost, net/http counts such a connection when it closes and not when it opens, and panics.
	t := c.transport(g.tls, &g.connections)
	t.MaxConnsPerHost = 0
	defer t.CloseIdleConnections()
	x, observed := observe(ctx)
	connection, err := t.NewClientConn(observed, u.Scheme, net.JoinHostPort(u.Hostname(), portOf(u)))
	if err != nil {
		e, _ := x.failed(ctx, err)
		return e
	}
	_ = connection.Close() // there is nothing in it that could be lost
	return nil
}

// Close closes the connections that are not in use; those that are, close when they come back. Requests that run go on
// until their contexts end; later ones fail.
func (c *Client) Close() { c.pool.close() }
