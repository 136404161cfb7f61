package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	maxHeaderBytes = 64 << 10 // of an answer
	minIdle        = 512      // idle connections that are kept overall, at least

	// A connection of HTTP/2 that is silent this long is asked whether it is alive, and has this long to say so, and this
	// long to take a byte of what is written.
	pingAfter    = 15 * time.Second
	pingTimeout  = 5 * time.Second
	writeTimeout = 10 * time.Second
)

// transport returns what keeps a generation's connections.
func (c *Client) transport(config *tls.Config, among *connections) *http.Transport {
	t := &http.Transport{
		TLSClientConfig:        config.Clone(),
		TLSHandshakeTimeout:    c.config.TLSHandshake,
		ResponseHeaderTimeout:  c.config.Header,
		MaxResponseHeaderBytes: maxHeaderBytes,
		DisableCompression:     true,
		MaxConnsPerHost:        c.config.MaxConnsPerHost,
		MaxIdleConnsPerHost:    c.config.IdlePerHost,
		MaxIdleConns:           max(minIdle, c.config.IdlePerHost),
		IdleConnTimeout:        c.config.IdleTimeout,
		Protocols:              new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: writeTimeout,
		},
	}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := c.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return among.watch(connection)
	}
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(c.config.HTTP2)
	if c.config.Proxy != nil {
		t.Proxy = http.ProxyURL(c.config.Proxy)
		t.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("the proxy answered %d", answer.StatusCode)
			}
			return nil
		}
	}
	return t
}

// dial connects to one of an address's hosts that the Guard lets out.
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := c.dialer
	var admitted atomic.Bool
	if c.config.Guard != nil && c.config.Proxy == nil {
		dialer.ControlContext = func(_ context.Context, _, resolved string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(resolved)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrRefused, err)
			}
			if err := c.config.Guard.Address(to); err != nil {
				return err
			}
			admitted.Store(true)
			return nil
		}
	}
	connection, err := dialer.DialContext(ctx, network, address)
	if err != nil && admitted.Load() && errors.Is(err, ErrRefused) {
		// Only the first address's error is known. That another one was let out, and failed, is no refusal.
		return nil, fmt.Errorf("dial %s: some of its addresses are refused, the others cannot be reached", address)
	}
	return connection, err
}
