package tlsfiles_test

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/core/tlsfiles"
	"github.com/connectd/connectd/core/tlsfiles/tlstest"
)

// TestCheck has the problems of each group of settings, at the pointer where it is.
func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "",
		`{"ca_file":"/a","cert_file":"b","key_file":"c","server_name":"x","min_version":"1.3"}`: "",
		`{"cert_file":"/a"}`:            "/sasl/tls/key_file is required with sasl.tls.cert_file",
		`{"key_file":"/a"}`:             "/sasl/tls/cert_file is required with sasl.tls.key_file",
		`{"ca_file":"a\u0000"}`:         "/sasl/tls/ca_file must not contain a NUL character",
		`{"insecure_skip_verify":true}`: "warn /sasl/tls/insecure_skip_verify lets anybody on the way read and change requests and answers; use sasl.tls.ca_file instead",
		`{"insecure_skip_verify":true,"ca_file":"/a"}`: "warn /sasl/tls/insecure_skip_verify lets anybody on the way read and change requests and answers; use sasl.tls.ca_file instead; " +
			"/sasl/tls/ca_file has no effect with sasl.tls.insecure_skip_verify; leave out one of them",
	} {
		s := decoded(t, text)
		s.Resolve("/base")
		if got := texts(s.Check("/sasl/tls")); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
}

func decoded(t *testing.T, text string) tlsfiles.Settings {
	t.Helper()
	var s tlsfiles.Settings
	if diagnostics := settings.Decode([]byte(text), &s); len(diagnostics) > 0 {
		t.Fatalf("%s: %v", text, diagnostics)
	}
	return s
}

func texts(diagnostics []core.Diagnostic) string {
	var all []string
	for _, d := range diagnostics {
		text := d.Pointer + " " + d.Message
		if d.Warning {
			text = "warn " + text
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

func TestResolve(t *testing.T) {
	s := decoded(t, `{"ca_file":"ca.pem","cert_file":"/x/c.pem","key_file":"k"}`)
	s.Resolve("")
	const refused = "/tls/ca_file must be absolute, beginning with /; /tls/key_file must be absolute, beginning with /"
	if got := texts(s.Check("/tls")); got != refused {
		t.Error(got)
	}
	s.Resolve("/base")
	if s.CAFile != "/base/ca.pem" || s.CertFile != "/x/c.pem" || s.KeyFile != "/base/k" || len(s.Check("/tls")) > 0 {
		t.Errorf("%+v", s)
	}
}

// TestSource follows the files: the same configuration as long as they are, another one after that, and the old one as it
// was.
func TestSource(t *testing.T) {
	first, second := tlstest.New(t), tlstest.New(t)
	dir := t.TempDir()
	certFile, keyFile := tlstest.Write(t, dir, first.Issue(t, tlstest.Leaf{User: "ada"}))
	s := tlsfiles.Settings{CAFile: first.File, CertFile: certFile, KeyFile: keyFile, MinVersion: "1.3"}
	source := s.Source()
	before, err := source()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := source(); err != nil || again != before {
		t.Errorf("another configuration of the same files, or %v", err)
	}
	if user := shake(t, before, first); user != "ada" {
		t.Errorf("the server saw %q", user)
	}

	renewed, err := os.ReadFile(second.File)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(first.File, renewed, 0o600); err != nil {
		t.Fatal(err)
	}
	tlstest.Write(t, dir, second.Issue(t, tlstest.Leaf{User: "grace"}))
	after, err := source()
	if err != nil || after == before {
		t.Fatalf("the same configuration of other files, or %v", err)
	}
	if user := shake(t, after, second); user != "grace" {
		t.Errorf("the server saw %q", user)
	}
	if user := shake(t, before, first); user != "ada" {
		t.Errorf("with the old configuration the server saw %q", user)
	}
}

// shake connects to a server of the authority's, of TLS 1.3 and with client certificates, and returns the user it saw.
func shake(t *testing.T, config *tls.Config, authority *tlstest.Authority) string {
	t.Helper()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	server := tls.Server(there, &tls.Config{
		Certificates: []tls.Certificate{authority.Issue(t, tlstest.Leaf{})},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: authority.Pool(),
	})
	named := config.Clone()
	named.ServerName = "127.0.0.1"
	client := tls.Client(here, named)
	done := make(chan error, 1)
	go func() {
		err := server.HandshakeContext(t.Context())
		if err == nil {
			_, err = server.Write([]byte("x")) // the client's certificate is the last thing that is looked at
		}
		done <- err
	}()
	if err := client.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return server.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// TestBadFiles are errors that name the file and show nothing of it; and none before the first use.
func TestBadFiles(t *testing.T) {
	certFile, keyFile := tlstest.Write(t, t.TempDir(), tlstest.New(t).Issue(t, tlstest.Leaf{}))
	words := filepath.Join(t.TempDir(), "words")
	if err := os.WriteFile(words, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		s    tlsfiles.Settings
		want string
	}{
		{tlsfiles.Settings{CAFile: words}, words + " has no certificate"},
		{tlsfiles.Settings{CAFile: words + ".no"}, words + ".no"},
		{tlsfiles.Settings{CertFile: words, KeyFile: keyFile}, words},
		{tlsfiles.Settings{CertFile: certFile, KeyFile: words}, words},
		{tlsfiles.Settings{CertFile: certFile}, "needs its key"},
		{tlsfiles.Settings{MinVersion: "1.1"}, "1.1"},
	} {
		if config, err := c.s.Source()(); err == nil || config != nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: %v, want %q", c.s, err, c.want)
		}
	}
}
