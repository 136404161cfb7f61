package kafka

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/tlsfiles/tlstest"
	"github.com/connectd/connectd/sinks/sinktest"
)

// fake is a cluster in this process that wants SCRAM and TLS.
type fake struct {
	*kfake.Cluster
	t         testing.TB
	authority *tlstest.Authority
	options   []kgo.Opt // of its administrator
}

const (
	adminPassword = "admin-secret"
	userPassword  = "hunter2-secret"
)

// newFake starts one. The user connectd may do nothing but what the ACLs say.
func newFake(t testing.TB, mechanism string, acls []kfake.ACL, options ...kfake.Opt) *fake {
	t.Helper()
	a := tlstest.New(t)
	f := &fake{t: t, authority: a, options: []kgo.Opt{
		kgo.DialTLSConfig(&tls.Config{RootCAs: a.Pool()}),
		kgo.SASL(scram.Auth{User: "admin", Pass: adminPassword}.AsSha256Mechanism()),
	}}
	options = append(options, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{a.Issue(t, tlstest.Leaf{})}}),
		kfake.Superuser("SCRAM-SHA-256", "admin", adminPassword), kfake.User(mechanism, "connectd", userPassword, acls...))
	var err error
	if f.Cluster, err = kfake.NewCluster(options...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// settings are those of the user connectd, and others.
func (f *fake) settings(mechanism, password, others string) []byte {
	brokers, err := json.Marshal(f.ListenAddrs())
	if err != nil {
		f.t.Fatal(err)
	}
	return fmt.Appendf(nil, `{"brokers": %s, "tls": {"ca_file": %q}, "sasl": {"mechanism": %q, "username": "connectd", %s}%s}`,
		brokers, f.authority.File, mechanism, password, others)
}

func inline(password string) string { return fmt.Sprintf(`"password": %q`, password) }

// mayWrite are the rights that the sink needs.
func mayWrite() []kfake.ACL {
	return []kfake.ACL{{Resource: kmsg.ACLResourceTypeTopic, Name: "*", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationWrite, Allow: true}}
}

// allow gives the user connectd a right on a topic.
func (f *fake) allow(name string, operation kmsg.ACLOperation) {
	f.t.Helper()
	client := f.admin()
	defer client.Close()
	request := kmsg.NewPtrCreateACLsRequest()
	creation := kmsg.NewCreateACLsRequestCreation()
	creation.ResourceType, creation.ResourceName, creation.ResourcePatternType = kmsg.ACLResourceTypeTopic, name, kmsg.ACLResourcePatternTypeLiteral
	creation.Principal, creation.Host = "User:connectd", "*"
	creation.Operation, creation.PermissionType = operation, kmsg.ACLPermissionTypeAllow
	request.Creations = append(request.Creations, creation)
	if _, err := request.RequestWith(f.t.Context(), client); err != nil {
		f.t.Fatal(err)
	}
}

// admin is a client that may do anything.
func (f *fake) admin() *kgo.Client {
	f.t.Helper()
	return (&topic{options: append(f.options, kgo.SeedBrokers(f.ListenAddrs()...))}).connected(f.t)
}

// opened is a sink that is open, and closed when the test ends.
func opened(t testing.TB, settings []byte) *Sink {
	t.Helper()
	s := configured(t, settings)
	if err := s.Open(soon(t)); err != nil {
		t.Fatalf("Open: %v", err)
	}
	return s
}

func configured(t testing.TB, settings []byte) *Sink {
	t.Helper()
	s := New(slog.New(slog.NewTextHandler(t.Output(), nil)), Options{Connector: "orders", Version: "test"})
	diagnostics, err := s.Configure(t.Context(), settings)
	for _, d := range diagnostics {
		if !d.Warning {
			t.Fatalf("Configure: %+v", d)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// soon is the time that things may take that should work.
func soon(t testing.TB) context.Context { return within(t, 20*time.Second) }

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// delivered sends records and writes their outcomes: "delivered , permanent too_large".
func delivered(t testing.TB, ctx context.Context, s *Sink, batch []core.Record) string {
	t.Helper()
	outcomes, err := s.Deliver(ctx, batch)
	if err != nil {
		t.Fatalf("Deliver: %v", err)
	}
	texts := make([]string, len(outcomes))
	for i, o := range outcomes {
		texts[i] = verdict(o)
		if text := o.Code + o.Message; strings.Contains(text, userPassword) || strings.Contains(text, adminPassword) {
			t.Errorf("an outcome shows a secret: %s", text)
		}
		if o.Kind != core.Delivered {
			t.Logf("%s is %s: %s", batch[i].ID, texts[i], o.Message)
		}
	}
	return strings.Join(texts, ", ")
}

// eventually waits until f reports what is wanted.
func eventually(t testing.TB, want string, f func() string) {
	t.Helper()
	ctx := soon(t)
	got := f()
	for ; got != want && ctx.Err() == nil; got = f() {
		time.Sleep(10 * time.Millisecond)
	}
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestConformanceFake is the suite with nothing installed: over TLS, with SCRAM, with templates.
func TestConformanceFake(t *testing.T) {
	sinktest.Run(t, inProcess(func(t testing.TB) sinktest.Harness {
		f := newFake(t, "SCRAM-SHA-512", mayWrite())
		k := newTopic(t, f.ListenAddrs(), 3, map[string]string{"max.message.bytes": "67108864"}, f.options...)
		away := false
		return sinktest.Harness{
			Settings: f.settings("SCRAM-SHA-512", inline(userPassword),
				fmt.Sprintf(`, "topic": "{header:topic|%s}", "max_batch_bytes": "64MiB", "compression": "lz4"`, k.name)),
			Secrets:     []string{userPassword},
			BadSettings: badSettings(),
			Received: func(t testing.TB) []core.Record {
				if away { // for everybody, so nothing can have come
					return k.kept(t)
				}
				return k.records(t)
			},
			Refuse: func(r core.Record) core.Record {
				r.Headers = append(r.Headers, core.Header{Name: "topic", Value: "no name"})
				return r
			},
			Outage: func(t testing.TB) func() {
				k.read(t)
				away = true
				restored := make(chan struct{})
				f.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
					select {
					case <-restored:
						f.DropControl()
						return nil, nil, false
					default:
						f.KeepControl()
						return nil, errors.New("away"), true
					}
				})
				return func() {
					away = false
					close(restored)
				}
			},
		}
	}))
}
