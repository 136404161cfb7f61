package kafka

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/connectd/connectd/core/tlsfiles/tlstest"
)

const to = `, "topic": "orders"`

func wantError(t testing.TB, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v, want %q in it", err, part)
		}
	}
	if strings.Contains(fmt.Sprint(err), userPassword) || strings.Contains(fmt.Sprint(err), "wrong-secret") {
		t.Errorf("the error shows a secret: %v", err)
	}
}

func TestMechanisms(t *testing.T) {
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			f := newFake(t, mechanism, mayWrite(), kfake.SeedTopics(1, "orders"))
			s := opened(t, f.settings(mechanism, inline(userPassword), to))
			if got := delivered(t, soon(t), s, rows("a1")); got != "delivered " {
				t.Error(got)
			}
			wrong := configured(t, f.settings(mechanism, inline("wrong-secret"), to))
			wantError(t, wrong.Open(soon(t)), "authenticat", mechanism)
			other := "SCRAM-SHA-512"
			if mechanism == other {
				other = "PLAIN"
			}
			wantError(t, configured(t, f.settings(other, inline(userPassword), to)).Open(soon(t)), "authenticat", other)
		})
	}
}

// A sink with a wrong password opens when the file is mended, without being configured again.
func TestPasswordMended(t *testing.T) {
	f := newFake(t, "SCRAM-SHA-256", mayWrite(), kfake.SeedTopics(1, "orders"))
	file := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("wrong-secret")
	s := configured(t, f.settings("SCRAM-SHA-256", fmt.Sprintf(`"password_file": %q`, file), to))
	wantError(t, s.Open(soon(t)), "authenticat")
	os.Remove(file)
	wantError(t, s.Open(soon(t)), file)
	write(userPassword)
	if err := s.Open(soon(t)); err != nil {
		t.Fatal(err)
	}
	if got := delivered(t, soon(t), s, rows("a1")); got != "delivered " {
		t.Error(got)
	}
}

// A password that is changed while the sink runs pauses it, and the new one in the file lets it go on by itself.
func TestPasswordChanged(t *testing.T) {
	f := newFake(t, "SCRAM-SHA-256", mayWrite(), kfake.SeedTopics(1, "orders"))
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("wrong-secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.setPassword("wrong-secret")
	s := opened(t, f.settings("SCRAM-SHA-256", fmt.Sprintf(`"password_file": %q`, file), to))
	if got := delivered(t, soon(t), s, rows("a1")); got != "delivered " {
		t.Fatal(got)
	}
	f.setPassword(userPassword)
	f.cut()
	eventually(t, "retryable sink authentication, retryable sink authentication", func() string {
		return delivered(t, soon(t), s, rows("a2", "b1"))
	})
	eventually(t, "true", func() string { return fmt.Sprint(strings.Contains(fmt.Sprint(s.Health(soon(t))), "authenticat")) })
	if err := os.WriteFile(file, []byte(userPassword), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "delivered , delivered ", func() string { return delivered(t, soon(t), s, rows("a2", "b1")) })
	eventually(t, "<nil>", func() string { return fmt.Sprint(s.Health(soon(t))) })
}

// setPassword changes the password of the user connectd for SCRAM-SHA-256.
func (f *fake) setPassword(password string) {
	f.t.Helper()
	client := f.admin()
	defer client.Close()
	const sha256ID, iterations = 1, 4096
	salt := []byte("salt")
	salted, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		f.t.Fatal(err)
	}
	change := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
	change.Name, change.Mechanism, change.Iterations, change.Salt, change.SaltedPassword = "connectd", sha256ID, iterations, salt, salted
	request := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	request.Upsertions = append(request.Upsertions, change)
	response, err := request.RequestWith(f.t.Context(), client)
	if err != nil || response.Results[0].ErrorCode != 0 {
		f.t.Fatalf("change the password: %v, %+v", err, response)
	}
}

// cut ends each connection once, when it is used next.
func (f *fake) cut() {
	f.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { return nil, errors.New("cut"), true })
	f.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) { return nil, errors.New("cut"), true })
}

func TestTLS(t *testing.T) {
	a := tlstest.New(t)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"), kfake.TLS(&tls.Config{
		Certificates: []tls.Certificate{a.Issue(t, tlstest.Leaf{})}, ClientCAs: a.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	cert, key := tlstest.Write(t, t.TempDir(), a.Issue(t, tlstest.Leaf{User: "connectd"}))
	settings := func(tls string) []byte {
		return fmt.Appendf(nil, `{"brokers": [%q], "topic": "orders"%s}`, cluster.ListenAddrs()[0], tls)
	}
	mutual := settings(fmt.Sprintf(`, "tls": {"ca_file": %q, "cert_file": %q, "key_file": %q}`, a.File, cert, key))
	if got := delivered(t, soon(t), opened(t, mutual), rows("a1")); got != "delivered " {
		t.Error(got)
	}
	for name, test := range map[string]struct{ tls, want string }{
		"nobody":            {fmt.Sprintf(`, "tls": {"ca_file": %q}`, a.File), "certificate"},
		"no TLS":            {"", "a listener with TLS"},
		"another authority": {fmt.Sprintf(`, "tls": {"ca_file": %q, "cert_file": %q, "key_file": %q}`, tlstest.New(t).File, cert, key), "unknown authority"},
		"another name": {fmt.Sprintf(`, "tls": {"ca_file": %q, "cert_file": %q, "key_file": %q, "server_name": "kafka.example.com"}`, a.File, cert, key),
			"kafka.example.com"},
		"no file": {`, "tls": {"ca_file": "/no/such/file"}`, "/no/such/file"},
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, configured(t, settings(test.tls)).Open(soon(t)), test.want)
		})
	}
}

// A missing right pauses the sink when it is about the one topic, and only that topic's keys when rows name topics. It goes
// on by itself.
func TestMissingRight(t *testing.T) {
	f := newFake(t, "SCRAM-SHA-256", nil, kfake.SeedTopics(1, "orders", "bills"))
	f.allow("orders", kmsg.ACLOperationDescribe)
	one := opened(t, f.settings("SCRAM-SHA-256", inline(userPassword), to))
	if got := delivered(t, soon(t), one, rows("a1", "b1")); got != "retryable sink not_authorized, retryable sink not_authorized" {
		t.Error(got)
	}
	wantError(t, one.Health(soon(t)), `topic "orders"`, "Write")

	f.allow("bills", kmsg.ACLOperationWrite)
	many := opened(t, f.settings("SCRAM-SHA-256", inline(userPassword), `, "topic": "{route}"`))
	got := delivered(t, soon(t), many, rows("a1/orders", "b1/bills", "a2/bills", "c1/nothing"))
	if got != "retryable key not_authorized, delivered , not_attempted behind, retryable key not_authorized" {
		t.Error(got)
	}
	if err := many.Health(soon(t)); err != nil {
		t.Error(err)
	}

	f.allow("orders", kmsg.ACLOperationWrite)
	eventually(t, "delivered , delivered ", func() string { return delivered(t, soon(t), one, rows("a1", "b1")) })
	if err := one.Health(soon(t)); err != nil {
		t.Error(err)
	}
}
