package publisher

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// dialer makes connections. One goroutine at a time uses it.
type dialer struct {
	p       *Publisher
	next    int  // endpoint to be tried
	careful bool // the last connection was closed because of a message
}

// round tries each endpoint once, beginning with the next one, and returns the first session that can be used.
func (d *dialer) round(ctx context.Context) (*session, *Error) {
	var failed *Error
	for range d.p.config.Endpoints {
		endpoint := d.p.config.Endpoints[d.next%len(d.p.config.Endpoints)]
		d.next++
		s, err := d.connect(ctx, endpoint)
		if err == nil {
			return s, nil
		}
		failed = unconnected(endpoint, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failed
}

// connect makes a connection and whatever belongs to it.
func (d *dialer) connect(ctx context.Context, endpoint string) (*session, error) {
	c := &d.p.config
	ctx, cancel := context.WithTimeout(ctx, c.ConnectTimeout)
	defer cancel()
	s, err := d.handshake(ctx, endpoint)
	if err != nil {
		return nil, inTime(ctx, err)
	}
	// The library's calls know no context; they end with the connection.
	stop := context.AfterFunc(ctx, func() { s.end(&Error{Kind: KindConnection, Text: "time ran out while the connection was set up"}) })
	if err = d.prepare(ctx, s); err == nil && stop() {
		return s, nil
	}
	stop()
	s.end(&Error{Kind: KindConnection, Text: "the connection could not be set up"})
	s.wait()
	if err == nil {
		err = ctx.Err()
	}
	return nil, inTime(ctx, err)
}

// inTime is the error, or that time ran out.
func inTime(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("time ran out: %w", context.DeadlineExceeded)
	}
	return err
}

// handshake connects, by TCP, TLS and AMQP.
func (d *dialer) handshake(ctx context.Context, endpoint string) (*session, error) {
	c := &d.p.config
	login, err := d.login()
	if err != nil {
		return nil, err
	}
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", endpoint)
	if err != nil {
		return nil, err
	}
	tcp, ok := raw.(*net.TCPConn)
	if !ok {
		_ = raw.Close()
		return nil, fmt.Errorf("%T is no TCP connection", raw)
	}
	w := &wire{TCPConn: tcp, patience: c.BlockedTimeout}
	defer context.AfterFunc(ctx, w.kill)()
	var transport net.Conn = w
	if c.TLS != nil {
		if transport, err = d.secure(ctx, w, endpoint); err != nil {
			w.kill()
			return nil, err
		}
	}
	conn, err := amqp.Open(transport, amqp.Config{
		SASL: []amqp.Authentication{login}, Vhost: c.VHost, FrameSize: c.FrameMax, Heartbeat: c.Heartbeat, Locale: "en_US",
		Properties: amqp.Table{"product": "connectd", "connection_name": c.ConnectionName},
	})
	if err != nil {
		w.kill()
		return nil, err
	}
	d.p.frameMax.Store(int64(conn.Config.FrameSize))
	return newSession(c, d.p.log, endpoint, w, conn), nil
}

// secure does the handshake of TLS.
func (d *dialer) secure(ctx context.Context, w *wire, endpoint string) (net.Conn, error) {
	config, err := d.p.config.TLS()
	if err != nil {
		return nil, err
	}
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(endpoint)
		if err != nil {
			return nil, err
		}
		config = config.Clone()
		config.ServerName = host
	}
	conn := tls.Client(w, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return conn, nil
}

// prepare makes a new connection ready. The lanes come first and the probe last: a broker that wants no messages says so
// only when it gets one, and answers nothing from then on.
func (d *dialer) prepare(ctx context.Context, s *session) error {
	lanes, window := d.p.config.Lanes, d.p.config.Window
	if d.careful {
		// One message at a time: if the connection is closed again, the message is known.
		const messages = 1000
		lanes = 1
		s.careful.Store(messages)
	}
	if err := s.openLanes(lanes, window); err != nil {
		return err
	}
	if err := d.topology(ctx, s); err != nil {
		return err
	}
	if err := s.answers(ctx); err != nil && s.whyBlocked() == nil {
		return err
	}
	return nil
}

func (d *dialer) topology(ctx context.Context, s *session) error {
	check := d.p.config.Topology
	if check == nil {
		return nil
	}
	ch, err := s.conn.Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	if err := check(ctx, ch); err != nil {
		return err
	}
	return ch.Close()
}

// login is the authentication for one connection. The library's own type for a password would be emptied after its use.
func (d *dialer) login() (amqp.Authentication, error) {
	if d.p.config.Credentials == nil {
		d.p.user.Store(nil)
		return external{}, nil
	}
	user, password, err := d.p.config.Credentials()
	if err != nil {
		return nil, err
	}
	d.p.user.Store(&user)
	return plain{user: user, password: password}, nil
}

// plain is RFC 4616.
type plain struct{ user, password string }

func (plain) Mechanism() string  { return "PLAIN" }
func (p plain) Response() string { return "\x00" + p.user + "\x00" + p.password }

// String keeps the password out of what is printed.
func (p plain) String() string { return "PLAIN" }

// GoString does so too.
func (p plain) GoString() string { return "PLAIN" }

// external is RFC 4422, appendix A, with an empty identity: that of the certificate.
type external struct{}

func (external) Mechanism() string { return "EXTERNAL" }
func (external) Response() string  { return "" }

// wait is how long to wait before round n, from 0; random is in [0, 1).
func (b Backoff) wait(n int, random float64) time.Duration {
	longest := b.Min << min(n, 20)
	if longest > b.Max || longest <= 0 {
		longest = b.Max
	}
	return time.Duration(random * float64(longest))
}
