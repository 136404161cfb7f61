package publisher

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/connectd/connectd/scripts/services"
)

// api asks the management API of the shared server.
func api(t testing.TB, method, path, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), method, services.RabbitMQManagement(t)+path, strings.NewReader(body))
	must(t, err)
	answer, err := http.DefaultClient.Do(request)
	must(t, err)
	io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if answer.StatusCode >= 300 && answer.StatusCode != http.StatusNotFound {
		t.Fatalf("%s %s: %s", method, path, answer.Status)
	}
}

// user makes a user of the shared server, and returns a Config with the name and password.
func user(t testing.TB, name, write string) Config {
	t.Helper()
	path := "/api/users/" + name
	api(t, "PUT", path, `{"password":"open sesame","tags":""}`)
	t.Cleanup(func() { api(t, "DELETE", path, "") })
	permit(t, name, write)
	c := configFor(t, rabbit(t))
	c.Credentials = func() (string, string, error) { return name, "open sesame", nil }
	return c
}

func permit(t testing.TB, name, write string) {
	t.Helper()
	api(t, "PUT", "/api/permissions/%2F/"+name, fmt.Sprintf(`{"configure":"","read":"","write":%q}`, write))
}

// wantOpen fails unless Open fails in that way, and leaks nothing of the password.
func wantOpen(t testing.TB, c Config, kind Kind, code int) *Error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := New(c).Open(ctx)
	var e *Error
	if !errors.As(err, &e) || e.Kind != kind || e.Code != code || strings.Contains(e.Text, "sesame") {
		t.Fatalf("got %#v, want %s %d", err, kind, code)
	}
	return e
}

func TestWhatMayNotBe(t *testing.T) {
	c := user(t, "connectd-refused", ".*")
	c.Credentials = func() (string, string, error) { return "connectd-refused", "sesame?", nil }
	wantOpen(t, c, KindRefused, 403)

	c = user(t, "connectd-refused", ".*")
	c.VHost = "connectd-no-such-vhost"
	wantOpen(t, c, KindRefused, 530)

	c = configFor(t, rabbit(t))
	c.Topology = func(_ context.Context, ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive("connectd.no.such.exchange", "direct", true, false, false, false, nil)
	}
	wantOpen(t, c, KindMissingExchange, 404)

	c = configFor(t, rabbit(t))
	c.Credentials = func() (string, string, error) { return "", "", errors.New("the file is gone") }
	if e := wantOpen(t, c, KindConnection, 0); !strings.Contains(e.Text, "the file is gone") {
		t.Fatal(e)
	}

	c = configFor(t, rabbit(t))
	c.Endpoints = []string{"127.0.0.1:1"}
	wantOpen(t, c, KindConnection, 0)
}

// The user may write to one exchange only: not even the probe is allowed.
func TestARefusedExchange(t *testing.T) {
	b := shared(t)
	good, bad, queue := b.exchange("fanout"), b.exchange("topic"), b.queue(nil)
	must(t, b.ch.QueueBind(queue, "", good, false, nil))
	name := "connectd-writer"
	p := opened(t, user(t, name, "^"+good+"$"))
	must(t, p.Health(t.Context()))
	var messages []*Message
	for i := range 60 {
		m := to("", fmt.Sprint(i), fmt.Sprint(i))
		if m.Exchange = good; i%20 == 10 {
			m.Exchange = bad
		}
		messages = append(messages, m)
	}
	got := count(publish(t, p, messages...))
	if got["ok"] != 57 || got["refused"]+got["refused?"] != 3 {
		t.Fatal(got)
	}
	if got := count(publish(t, p, to(queue, "k", "default"), messages[0])); got["ok"] != 1 || got["refused"] != 1 {
		t.Fatal(got)
	}
	permit(t, name, ".*")
	must(t, b.ch.QueueBind(queue, "#", bad, false, nil))
	if got := count(publish(t, p, messages[10])); got["ok"] != 1 {
		t.Fatal(got)
	}
}

// A connection that is lost is made again, at another endpoint, with the credentials of then and a look at the topology.
func TestAnotherEndpointTakesOver(t *testing.T) {
	b := shared(t)
	queue := b.queue(nil)
	c := configFor(t, rabbit(t))
	one, two := proxyTo(t, c.Endpoints[0]), proxyTo(t, c.Endpoints[0])
	c.Endpoints = []string{one.addr, "127.0.0.1:1", two.addr}
	var logins, looks atomic.Int64
	login := c.Credentials
	c.Credentials = func() (string, string, error) { logins.Add(1); return login() }
	c.Topology = func(_ context.Context, ch *amqp.Channel) error {
		looks.Add(1)
		_, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	}
	p := opened(t, c)
	if got := outcomes(publish(t, p, to(queue, "k", "1"))); got[0] != "ok" {
		t.Fatal(got)
	}
	for i, away := range []*proxy{one, two} {
		away.away()
		eventually(t, "it goes on elsewhere", func() bool {
			return publish(t, p, to(queue, "k", fmt.Sprint(i)))[0].Err == nil
		})
		away.back()
	}
	if logins.Load() < 2 || looks.Load() < 2 {
		t.Fatal(logins.Load(), looks.Load())
	}
	one.away()
	two.away()
	eventually(t, "it says why it cannot", func() bool {
		err := publish(t, p, to(queue, "k", "x"))[0].Err
		return err != nil && !err.Unknown && strings.Contains(err.Text, "connection refused")
	})
	if p.Health(t.Context()) == nil {
		t.Fatal("healthy without a connection")
	}
}

// The network drops every packet in the middle of a call.
func TestDeadlinesHoldWhenTheNetworkIsGone(t *testing.T) {
	b := shared(t)
	queue := b.queue(nil)
	c := configFor(t, rabbit(t))
	way := proxyTo(t, c.Endpoints[0])
	c.Endpoints, c.Heartbeat = []string{way.addr}, 2*time.Second
	p := opened(t, c)
	must(t, p.Health(t.Context()))
	for _, size := range []int{10, 20_000} { // the latter fills every buffer on the way, and the write blocks
		way.freeze()
		var messages []*Message
		for i := range 1500 {
			m := to(queue, fmt.Sprint(i%1200), fmt.Sprint(size, i))
			m.Publishing.Body = make([]byte, size)
			messages = append(messages, m)
		}
		const limit = 2 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		start := time.Now()
		results := p.Publish(ctx, messages)
		if took := time.Since(start); took > limit {
			t.Fatalf("the call took %v", took)
		}
		cancel()
		got := count(results)
		t.Log(got)
		if got["ok"] != 0 || got["timeout?"]+got["connection?"] == 0 {
			t.Fatal(got)
		}
		eventually(t, "the loss is noticed", func() bool { return p.Health(t.Context()) != nil })
		way.thaw()
		eventually(t, "it goes on", func() bool { return publish(t, p, to(queue, "k", "later"))[0].Err == nil })
	}
}

// A confirm that does not come: the channel is given up, and the connection if that cannot be done.
func TestAConfirmThatDoesNotCome(t *testing.T) {
	b := shared(t)
	queue := b.queue(nil)
	c := configFor(t, rabbit(t))
	way := proxyTo(t, c.Endpoints[0])
	c.Endpoints, c.Heartbeat, c.ConfirmTimeout = []string{way.addr}, time.Minute, 300*time.Millisecond
	p := opened(t, c)
	way.freeze()
	if got := outcomes(publish(t, p, to(queue, "a", "1"), to(queue, "a", "2"))); !slices.Equal(got, []string{"timeout?", "not_attempted"}) {
		t.Fatal(got)
	}
	eventually(t, "the connection is given up", func() bool {
		err := publish(t, p, to(queue, "a", "1"))[0].Err
		return err != nil && err.Kind == KindConnection
	})
	way.thaw()
	eventually(t, "it goes on", func() bool { return publish(t, p, to(queue, "a", "1"))[0].Err == nil })
}

// A message that makes the broker close the whole connection, once nothing checks it.
func TestAMessageThatKillsTheConnection(t *testing.T) {
	b := shared(t)
	queue := b.queue(nil)
	p := opened(t, configFor(t, rabbit(t)))
	var messages []*Message
	for i := range 50 {
		messages = append(messages, to(queue, fmt.Sprint(i), fmt.Sprint(i)))
	}
	messages[20].Publishing.Headers = amqp.Table{"large": strings.Repeat("x", 200_000)}
	if got := outcomes(publish(t, p, messages[20])); got[0] != "invalid" {
		t.Fatal(got)
	}
	left := messages
	var found *Error
	eventually(t, "the others go on", func() bool {
		p.frameMax.Store(1 << 30) // each connection sets it
		var failed []*Message
		for i, r := range publish(t, p, left...) {
			switch {
			case r.Err == nil:
			case r.Err.Kind == KindPrecondition:
				if found = r.Err; left[i] != messages[20] {
					t.Fatalf("message %s is blamed", left[i].Publishing.MessageId)
				}
			case r.Err.Kind == KindConnection:
				failed = append(failed, left[i])
			default:
				t.Fatal(r.Err)
			}
		}
		left = failed
		return len(left) == 0
	})
	if found == nil {
		t.Fatal("the message was not found")
	}
	t.Log(found)
}

// A message at which the broker itself fails is found as well. It is not condemned: the broker may have had another reason.
func TestAMessageAtWhichTheBrokerFails(t *testing.T) {
	b := shared(t)
	queue := b.queue(nil)
	p := opened(t, configFor(t, rabbit(t)))
	var messages []*Message
	for i := range 50 {
		messages = append(messages, to(queue, fmt.Sprint(i), fmt.Sprint(i)))
	}
	// RabbitMQ 3.10 takes what is behind this for the address of a client, and fails: 541 INTERNAL_ERROR.
	messages[20].Publishing.Headers = amqp.Table{"CC": []any{directReply + "g1h2AA.x"}}
	left := messages
	var found *Error
	eventually(t, "the others go on", func() bool {
		var failed []*Message
		for i, r := range publish(t, p, left...) {
			switch {
			case r.Err == nil:
			case r.Err.Kind == KindChannel:
				if found = r.Err; left[i] != messages[20] {
					t.Fatalf("message %s is blamed", left[i].Publishing.MessageId)
				}
			default:
				failed = append(failed, left[i])
			}
		}
		left = failed
		return len(left) == 0
	})
	if found == nil || !found.Unknown || found.Code != amqp.InternalError {
		t.Fatalf("the message was not found: %+v", found)
	}
}

func TestTLS(t *testing.T) {
	b := shared(t)
	queue := b.queue(nil)
	c := configFor(t, rabbit(t))
	certificate, pool := certificateFor(t, "localhost")
	l, err := tls.Listen("tcp", "localhost:0", &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	must(t, err)
	way := &proxy{t: t, to: c.Endpoints[0], frozen: make(chan struct{}), listener: l}
	close(way.frozen)
	way.copying.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			way.join(in)
		}
	})
	defer way.copying.Wait()
	defer way.away()
	_, port, err := net.SplitHostPort(l.Addr().String())
	must(t, err)
	c.Endpoints = []string{"localhost:" + port}
	c.ConnectTimeout = 3 * time.Second
	wantOpen(t, c, KindConnection, 0) // not TLS
	c.TLS = func() (*tls.Config, error) { return &tls.Config{MinVersion: tls.VersionTLS12}, nil }
	if e := wantOpen(t, c, KindConnection, 0); !strings.Contains(e.Text, "certificate") {
		t.Fatal(e)
	}
	c.TLS = func() (*tls.Config, error) { return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil }
	p := opened(t, c)
	if got := outcomes(publish(t, p, to(queue, "k", "1"))); got[0] != "ok" {
		t.Fatal(got)
	}
	shut(t, p)
}

// certificateFor is a certificate that signs itself.
func certificateFor(t *testing.T, host string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	certificate, err := x509.ParseCertificate(der)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(certificate)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestLife(t *testing.T) {
	c := configFor(t, rabbit(t))
	p := New(c)
	if r := publish(t, p, to("q", "k", "1")); outcome(r[0]) != "connection" {
		t.Fatal(outcomes(r))
	}
	must(t, p.Close(t.Context())) // before it was opened
	if err := p.Open(t.Context()); err == nil {
		t.Fatal("opened after Close")
	}
	p = opened(t, c)
	if err := p.Open(t.Context()); err == nil {
		t.Fatal("opened twice")
	}
	if r := publish(t, p); len(r) != 0 {
		t.Fatal(r)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if r := p.Publish(ended, []*Message{to("q", "k", "1")}); outcome(r[0]) != "not_attempted" {
		t.Fatal(outcomes(r))
	}
	shut(t, p)
	shut(t, p)
	if r := publish(t, p, to("q", "k", "1")); outcome(r[0]) != "connection" {
		t.Fatal(outcomes(r))
	}
	if p.Health(t.Context()) == nil {
		t.Fatal("healthy after Close")
	}
	if text := fmt.Sprintf("%v %+v %#v", plain{"u", "secret"}, plain{"u", "secret"}, plain{"u", "secret"}); strings.Contains(text, "secret") {
		t.Fatal(text)
	}
}
