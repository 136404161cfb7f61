package producer

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const secret = "correct horse"

func TestSASL(t *testing.T) {
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			c := fake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser(mechanism, "relay", secret), kfake.SeedTopics(1, "orders"))
			opened(t, c.ListenAddrs(), func(c *Config) { c.SASL = credentials(t, mechanism, secret) })
			wrong := made(t, c.ListenAddrs(), func(c *Config) { c.SASL = credentials(t, mechanism, secret+"!") })
			began := time.Now()
			err := wrong.Open(within(t, patience))
			var e *Error
			if !errors.As(err, &e) || e.Class != Sink || !strings.Contains(e.Text, "password") || !strings.Contains(e.Text, mechanism) {
				t.Errorf("a wrong password: %v", err)
			}
			if strings.Contains(err.Error(), secret) || time.Since(began) > 3*time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		})
	}
}

func credentials(t *testing.T, mechanism, password string) sasl.Mechanism {
	t.Helper()
	if mechanism == "PLAIN" {
		return plain.Mechanism{Username: "relay", Password: password}
	}
	algorithm := scram.SHA256
	if mechanism == "SCRAM-SHA-512" {
		algorithm = scram.SHA512
	}
	m, err := scram.Mechanism(algorithm, "relay", password)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// mended is a mechanism whose password can be changed.
type mended struct {
	mu       sync.Mutex
	password string
}

func (*mended) Name() string { return "PLAIN" }

func (m *mended) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return plain.Mechanism{Username: "relay", Password: m.password}.Start(ctx)
}

// A password that is wrong later fails all, quickly, and recovers when it is mended, without a new producer.
func TestPasswordMended(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "relay", secret), kfake.SeedTopics(1, "orders"))
	m := &mended{password: secret}
	p := opened(t, c.ListenAddrs(), func(c *Config) { c.SASL, c.IdleTimeout = m, time.Millisecond })
	written(t, p.Produce(within(t, patience), numbered("orders", 2)))
	m.mu.Lock()
	m.password = "other"
	m.mu.Unlock()
	time.Sleep(5 * time.Millisecond) // the connections grow old
	results := p.Produce(within(t, patience), numbered("orders", 2))
	for _, r := range results {
		if r.Err == nil || r.Err.Class != Sink || r.Err.Unknown {
			t.Errorf("%+v", r.Err)
		}
	}
	m.mu.Lock()
	m.password = secret
	m.mu.Unlock()
	written(t, p.Produce(within(t, patience), numbered("orders", 2)))
}

func TestTLS(t *testing.T) {
	server, roots := certificate(t)
	c := fake(t, kfake.NumBrokers(1), kfake.TLS(server), kfake.SeedTopics(1, "orders"))
	p := opened(t, c.ListenAddrs(), func(c *Config) {
		c.TLS = func() (*tls.Config, error) { return &tls.Config{RootCAs: roots}, nil }
	})
	written(t, p.Produce(within(t, patience), numbered("orders", 10)))
	for name, tt := range map[string]struct {
		tls  func() (*tls.Config, error)
		text string
	}{
		"an unknown authority": {func() (*tls.Config, error) { return &tls.Config{RootCAs: x509.NewCertPool()}, nil }, "certificate"},
		"another name":         {func() (*tls.Config, error) { return &tls.Config{RootCAs: roots, ServerName: "elsewhere"}, nil }, "elsewhere"},
		"files that are bad":   {func() (*tls.Config, error) { return nil, errors.New("no such file") }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			err := made(t, c.ListenAddrs(), func(c *Config) { c.TLS = tt.tls }).Open(within(t, patience))
			var e *Error
			if !errors.As(err, &e) || e.Class != Sink || errors.Is(err, errUnreachable) || !strings.Contains(e.Text, tt.text) {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("no TLS", func(t *testing.T) {
		if err := made(t, c.ListenAddrs()).Open(within(t, patience)); err == nil || !strings.Contains(err.Error(), "TLS") {
			t.Errorf("%v", err)
		}
	})
}

// Something else at the address is told from a broker, and does not make the producer take memory for what it says.
func TestNotKafka(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			defer c.Close()
			c.Write([]byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"))
			c.Read(make([]byte, 1000))
		}
	}()
	err = made(t, []string{l.Addr().String()}).Open(within(t, patience))
	var e *Error
	if !errors.As(err, &e) || e.Class != Sink || !strings.Contains(e.Text, `"HTTP/1.1", which is not Kafka's`) {
		t.Errorf("%v", err)
	}
}

func certificate(t *testing.T) (*tls.Config, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "broker"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, roots
}

// A broker that gives no ids is used without, and the log says what that means.
func TestNoIdempotence(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	c.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		response := r.ResponseKind().(*kmsg.InitProducerIDResponse)
		response.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return response, nil, true
	})
	var words bytes.Buffer
	p := opened(t, c.ListenAddrs(), func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&words, nil)) })
	written(t, p.Produce(within(t, patience), numbered("orders", 3)))
	if p.Idempotent() || !strings.Contains(words.String(), "IdempotentWrite") {
		t.Errorf("idempotent: %v; log: %s", p.Idempotent(), words.String())
	}
	if r := log(t, c.ListenAddrs(), "orders")[0]; r[0].ProducerID != -1 {
		t.Errorf("the batch has the producer id %d", r[0].ProducerID)
	}
}

// While nothing answers the sink is told after a few seconds, sooner the next time, and it goes on when something does. A
// network that swallows all is found out by deadlines; what was on its way is unknown.
func TestOutages(t *testing.T) {
	for _, how := range []string{"refused", "swallowed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			c := fake(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "orders"))
			n := &network{}
			p := opened(t, c.ListenAddrs(), func(c *Config) {
				c.Dial, c.RequestTimeout, c.DialTimeout = n.dial, time.Second, time.Second
				if how == "refused" {
					c.Dial = n.dialOrRefuse
					c.IdleTimeout = time.Millisecond
				}
			})
			written(t, p.Produce(within(t, patience), numbered("orders", 3)))
			time.Sleep(5 * time.Millisecond)
			n.drop(true)
			began := time.Now()
			for _, r := range p.Produce(within(t, patience), numbered("orders", 3)) {
				if r.Err == nil || r.Err.Class != Sink || r.Err.Unknown != (how == "swallowed") || !strings.Contains(r.Err.Text, "no broker answers") {
					t.Errorf("%+v", r.Err)
				}
			}
			if took := time.Since(began); took < unreachableAfter || took > unreachableAfter+6*time.Second {
				t.Errorf("it took %v", took)
			}
			began = time.Now()
			if r := p.Produce(within(t, patience), numbered("orders", 3)); r[0].Err == nil || r[0].Err.Class != Sink || r[0].Err.Unknown {
				t.Errorf("the next call: %+v", r[0].Err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("the next call took %v", took)
			}
			if err := p.Health(within(t, 5*time.Second)); err == nil {
				t.Error("healthy")
			}
			n.drop(false)
			eventually(t, "it recovers", func() bool { return p.Produce(within(t, patience), numbered("orders", 1))[0].Err == nil })
			if err := p.Health(within(t, patience)); err != nil {
				t.Error(err)
			}
		})
	}
}

// A thousand connections that break leave nothing behind, and there are never more than a few at the same time.
func TestReconnects(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(12, "orders"))
	n := &network{}
	p := opened(t, c.ListenAddrs(), func(c *Config) { c.Dial, c.BackoffMin, c.BackoffMax = n.dial, time.Millisecond, time.Millisecond })
	n.lose(30)
	for i := 0; ; i++ {
		p.Produce(within(t, patience), numbered("orders", 50))
		n.mu.Lock()
		dials := n.dials
		n.mu.Unlock()
		if dials >= 1000 || i > 5000 {
			break
		}
	}
	n.lose(0)
	// One that asks for the cluster's state and one that asks for ids, beside those that send.
	if n.most > sendersPerBroker+2 {
		t.Errorf("%d connections at the same time", n.most)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if n.open != 0 {
		t.Errorf("%d connections of %d are open after Close", n.open, n.dials)
	}
}

// Where authentication expires a connection is replaced in time: nothing fails.
func TestSessionsExpire(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "relay", secret), kfake.SeedTopics(1, "orders"),
		kfake.BrokerConfigs(map[string]string{"connections.max.reauth.ms": "500"}))
	n := &network{}
	p := opened(t, c.ListenAddrs(), func(c *Config) { c.SASL, c.Dial, c.Idempotent = credentials(t, "PLAIN", secret), n.dial, false })
	sent := 0
	for began := time.Now(); time.Since(began) < 1500*time.Millisecond; sent++ {
		written(t, p.Produce(within(t, patience), numbered("orders", 1)))
		time.Sleep(10 * time.Millisecond)
	}
	if n.dials < 3 {
		t.Errorf("%d connections", n.dials)
	}
	if got := c.PartitionInfo("orders", 0).HighWatermark; got != int64(sent) {
		t.Errorf("%d records in the log, want %d", got, sent)
	}
}

// A broker that swallows all is asked last for the cluster's state, and on a new connection: that of the others is known
// without waiting for it.
func TestSilentBrokerComesLast(t *testing.T) {
	c := fake(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "orders"))
	silent := c.ListenAddrs()[0]
	n, others := &network{}, &network{}
	p := opened(t, c.ListenAddrs(), func(c *Config) {
		c.RequestTimeout, c.DialTimeout = time.Second, time.Second
		c.Dial = func(ctx context.Context, kind, addr string) (net.Conn, error) {
			if addr == silent {
				return n.dial(ctx, kind, addr)
			}
			return others.dial(ctx, kind, addr)
		}
	})
	if err := c.MoveTopicPartition("orders", 0, 0); err != nil {
		t.Fatal(err)
	}
	written(t, p.Produce(within(t, patience), numbered("orders", 3)))
	leader := p.brokerAt(silent)
	var idle []*conn
	for range 3 { // what asking at the same time would have left
		c, err := p.dial(within(t, patience), silent)
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, c)
	}
	for _, c := range idle {
		leader.release(c)
	}
	n.drop(true)
	if err := c.MoveTopicPartition("orders", 0, 1); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	written(t, p.Produce(within(t, patience), numbered("orders", 3)))
	if took := time.Since(began); took > 1500*time.Millisecond { // one request's time
		t.Errorf("it took %v", took)
	}
	for range 10 {
		if all := p.candidates(); all[len(all)-1] != leader {
			t.Fatalf("%s does not come last", silent)
		}
	}
	if len(leader.idle) > 0 {
		t.Errorf("%d of its connections are kept", len(leader.idle))
	}
}
