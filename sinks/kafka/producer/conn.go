package producer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"
)

// maxNegotiation bounds the answer to the first request, of which a few hundred bytes are usual.
const maxNegotiation = 1 << 20

// conn is one connection to a broker. One request is on it at a time.
type conn struct {
	*protocol.Conn
	wire    *meter
	used    time.Time
	expires time.Time // when its authentication does; zero is never
	timer   *time.Timer
}

// meter counts what is handed to the connection.
type meter struct {
	net.Conn
	written int64
}

func (m *meter) Write(b []byte) (int, error) {
	n, err := m.Conn.Write(b)
	m.written += int64(n)
	return n, err
}

// fresh reports whether the broker has no reason to close the connection soon.
func (c *conn) fresh(idle time.Duration) bool {
	return time.Since(c.used) < idle && (c.expires.IsZero() || time.Now().Before(c.expires))
}

// ask sends a request and reads the response. An error leaves the connection of no use. It reports whether a byte of the
// request was sent: before that nothing can have happened.
func (c *conn) ask(ctx context.Context, request protocol.Message, patience time.Duration) (protocol.Message, bool, error) {
	before := c.wire.written
	response, err := c.within(ctx, patience, func() (protocol.Message, error) { return c.RoundTrip(request) })
	return response, c.wire.written > before, err
}

// within ends what f does on the connection when the time is up or ctx is done.
func (c *conn) within(ctx context.Context, patience time.Duration, f func() (protocol.Message, error)) (protocol.Message, error) {
	deadline := time.Now().Add(patience)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := c.SetDeadline(deadline); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	response, err := f()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	return response, err
}

// dial makes a connection that is ready for requests.
func (p *Producer) dial(ctx context.Context, addr string) (*conn, *Error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.DialTimeout)
	defer cancel()
	failed := func(class Class, doing string, err error) *Error {
		e := &Error{Class: class, Text: fmt.Sprintf("broker %s: %s: %v", addr, doing, err), Err: err}
		errors.As(err, &e.Code)
		if a := advice(e.Code); a != "" {
			e.Text += "; " + a
		}
		return e
	}
	raw, err := p.cfg.Dial(ctx, "tcp", addr)
	if err != nil {
		return nil, failed(Retry, "connect", err)
	}
	secured, err := p.secure(ctx, raw, addr)
	if err != nil {
		raw.Close()
		return nil, failed(tlsClass(err), "TLS handshake", err)
	}
	wire := &meter{Conn: secured}
	c := &conn{Conn: protocol.NewConn(wire, p.cfg.ClientID), wire: wire}
	if _, err := c.within(ctx, p.cfg.DialTimeout, func() (protocol.Message, error) { return nil, c.negotiate(p.cfg.ClientID) }); err != nil {
		c.Close()
		class := Retry
		if errors.As(err, new(tls.AlertError)) {
			class = Sink // in TLS 1.3 a refused certificate shows here
		}
		return nil, failed(class, "ask for its API versions (a listener with TLS, or for others than clients?)", err)
	}
	if p.cfg.SASL == nil {
		return c, nil
	}
	host, port, _ := net.SplitHostPort(addr)
	number, _ := strconv.Atoi(port)
	ctx = sasl.WithMetadata(ctx, &sasl.Metadata{Host: host, Port: number})
	if _, err := c.within(ctx, p.cfg.DialTimeout, func() (protocol.Message, error) { return nil, c.authenticate(ctx, p.cfg.SASL) }); err != nil {
		c.Close()
		class := Sink
		if late := net.Error(nil); ctx.Err() != nil || errors.As(err, &late) && late.Timeout() {
			class = Retry
		}
		return nil, failed(class, "authenticate with "+p.cfg.SASL.Name(), err)
	}
	return c, nil
}

func (p *Producer) secure(ctx context.Context, raw net.Conn, addr string) (net.Conn, error) {
	if p.cfg.TLS == nil {
		return raw, nil
	}
	config, err := p.cfg.TLS()
	if err != nil {
		return nil, err
	}
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		config = config.Clone()
		config.ServerName = host
	}
	c := tls.Client(raw, config)
	return c, c.HandshakeContext(ctx)
}

// tlsClass tells what somebody has to mend from what may pass.
func tlsClass(err error) Class {
	var (
		verification *tls.CertificateVerificationError
		alert        tls.AlertError
		record       tls.RecordHeaderError
		authority    x509.UnknownAuthorityError
		network      net.Error
	)
	switch {
	case errors.As(err, &verification), errors.As(err, &authority), errors.As(err, &record), errors.As(err, &alert):
		return Sink
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Retry
	default:
		return Sink
	}
}

// negotiate settles which version of each request is used. It looks at the answer before it is decoded: what does not
// speak Kafka may seem to announce gigabytes.
func (c *conn) negotiate(clientID string) error {
	const number = -1 // the connection counts its requests from 1
	if err := protocol.WriteRequest(c, 0, number, clientID, new(apiversions.Request)); err != nil {
		return err
	}
	head, err := c.Peek(8)
	if err != nil {
		return err
	}
	be := binary.BigEndian
	if size := be.Uint32(head); size > maxNegotiation || int32(be.Uint32(head[4:])) != number {
		return fmt.Errorf("the answer begins with %q, which is not Kafka's", head)
	}
	_, message, err := protocol.ReadResponse(c, protocol.ApiVersions, 0)
	if err != nil {
		return err
	}
	response := message.(*apiversions.Response)
	if response.ErrorCode != 0 {
		return kafka.Error(response.ErrorCode)
	}
	versions := make(map[protocol.ApiKey]int16, len(response.ApiKeys))
	for _, r := range response.ApiKeys {
		key := protocol.ApiKey(r.ApiKey)
		versions[key] = key.SelectVersion(r.MinVersion, r.MaxVersion)
	}
	if versions[protocol.Produce] < 3 {
		return errors.New("the broker is older than Kafka 0.11")
	}
	c.SetVersions(versions)
	return nil
}

// authenticate runs the mechanism's exchange. A broker that ends it by closing the connection means a refusal.
func (c *conn) authenticate(ctx context.Context, mechanism sasl.Mechanism) error {
	message, err := c.RoundTrip(&saslhandshake.Request{Mechanism: mechanism.Name()})
	if err != nil {
		return refusal(err)
	}
	if code := message.(*saslhandshake.Response).ErrorCode; code != 0 {
		return kafka.Error(code)
	}
	exchange, say, err := mechanism.Start(ctx)
	if err != nil {
		return err
	}
	for done := false; !done; {
		message, err := c.RoundTrip(&saslauthenticate.Request{AuthBytes: say})
		if err != nil {
			return refusal(err)
		}
		response := message.(*saslauthenticate.Response)
		if response.ErrorCode != 0 {
			return kafka.Error(response.ErrorCode)
		}
		if lifetime := time.Duration(response.SessionLifetimeMs) * time.Millisecond; lifetime > 0 {
			c.expires = time.Now().Add(lifetime - lifetime/5)
		}
		if done, say, err = exchange.Next(ctx, response.AuthBytes); err != nil {
			return err
		}
	}
	return nil
}

func refusal(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("the broker closed the connection: %w", kafka.SASLAuthenticationFailed)
	}
	return err
}
