package egress

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core/tlsfiles"
	"github.com/connectd/connectd/core/tlsfiles/tlstest"
)

// secureServer starts an https server, and counts its requests.
func secureServer(t testing.TB, config *tls.Config, http2 bool, h http.HandlerFunc) (*url.URL, *atomic.Int32) {
	t.Helper()
	requests := new(atomic.Int32)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		h(w, r)
	}))
	s.TLS, s.EnableHTTP2 = config, http2
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return parse(t, s.URL), requests
}

func quiet(http.ResponseWriter, *http.Request) {}

func TestCertificatesOfServers(t *testing.T) {
	authority, stranger := tlstest.New(t), tlstest.New(t)
	for name, c := range map[string]struct {
		certificate tls.Certificate
		tls         tlsfiles.Settings
		as          any // of crypto/x509, what the error is; nil: it is accepted
	}{
		"good":            {authority.Issue(t, tlstest.Leaf{}), tlsfiles.Settings{CAFile: authority.File}, nil},
		"unknown":         {stranger.Issue(t, tlstest.Leaf{}), tlsfiles.Settings{CAFile: authority.File}, new(x509.UnknownAuthorityError)},
		"system's":        {authority.Issue(t, tlstest.Leaf{}), tlsfiles.Settings{}, new(x509.UnknownAuthorityError)},
		"another name":    {authority.Issue(t, tlstest.Leaf{Name: "b.example"}), tlsfiles.Settings{CAFile: authority.File}, new(x509.HostnameError)},
		"name as set":     {authority.Issue(t, tlstest.Leaf{Name: "b.example"}), tlsfiles.Settings{CAFile: authority.File, ServerName: "b.example"}, nil},
		"name not as set": {authority.Issue(t, tlstest.Leaf{}), tlsfiles.Settings{CAFile: authority.File, ServerName: "b.example"}, new(x509.HostnameError)},
		"expired":         {authority.Issue(t, tlstest.Leaf{Expired: true}), tlsfiles.Settings{CAFile: authority.File}, new(x509.CertificateInvalidError)},
		"any":             {stranger.Issue(t, tlstest.Leaf{Name: "b.example", Expired: true}), tlsfiles.Settings{InsecureSkipVerify: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			u, requests := secureServer(t, &tls.Config{Certificates: []tls.Certificate{c.certificate}}, true, quiet)
			client := client(t, Config{TLS: c.tls, HTTP2: true})
			a, err := post(t, client, u, "x")
			probe := client.Probe(t.Context(), u)
			if c.as == nil {
				wantStatus(t, 200, a, err)
				if probe != nil {
					t.Error(probe)
				}
				return
			}
			for _, err := range []error{err, probe} {
				wantError(t, PhaseTLS, false, err)
				var verification *tls.CertificateVerificationError
				if !errors.As(err, &verification) || !errors.As(err, c.as) {
					t.Errorf("%#v", err)
				}
			}
			if n := requests.Load(); n != 0 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// TestCertificatesOfClients has a server that wants one. Of TLS 1.3 its refusal comes after the handshake, when the
// request is on its way, which the server then does not read.
func TestCertificatesOfClients(t *testing.T) {
	authority, stranger := tlstest.New(t), tlstest.New(t)
	good, goodKey := tlstest.Write(t, t.TempDir(), authority.Issue(t, tlstest.Leaf{}))
	bad, badKey := tlstest.Write(t, t.TempDir(), stranger.Issue(t, tlstest.Leaf{}))
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, http2 := range []bool{false, true} {
			u, requests := secureServer(t, &tls.Config{
				Certificates: []tls.Certificate{authority.Issue(t, tlstest.Leaf{})}, MaxVersion: version,
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.Pool(),
			}, http2, quiet)
			for range 10 {
				a, err := post(t, client(t, Config{HTTP2: http2, TLS: tlsfiles.Settings{CAFile: authority.File, CertFile: good, KeyFile: goodKey}}), u, "x")
				wantStatus(t, 200, a, err)
				requests.Store(0)
				_, err = post(t, client(t, Config{HTTP2: http2, TLS: tlsfiles.Settings{CAFile: authority.File}}), u, "x")
				wantError(t, PhaseTLS, false, err)
				if !strings.Contains(err.Error(), "handshake") && !strings.Contains(err.Error(), "certificate required") {
					t.Errorf("missing: %v", err)
				}
				_, err = post(t, client(t, Config{HTTP2: http2, TLS: tlsfiles.Settings{CAFile: authority.File, CertFile: bad, KeyFile: badKey}}), u, "x")
				wantError(t, PhaseTLS, false, err)
				if n := requests.Load(); n != 0 {
					t.Errorf("%d requests", n)
				}
			}
		}
	}
}

// TestFilesThatChange renews the authority and the client's certificate: the next request, after the second that a look
// at the files is good for, goes over a new connection with the new ones.
func TestFilesThatChange(t *testing.T) {
	first, second := tlstest.New(t), tlstest.New(t)
	var now atomic.Pointer[tlstest.Authority]
	now.Store(first)
	issued := map[*tlstest.Authority]*tls.Certificate{}
	for _, a := range []*tlstest.Authority{first, second} {
		certificate := a.Issue(t, tlstest.Leaf{})
		issued[a] = &certificate
	}
	u, _ := secureServer(t, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		a := now.Load()
		return &tls.Config{
			Certificates: []tls.Certificate{*issued[a]}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.Pool(),
		}, nil
	}}, false, quiet)
	dir := t.TempDir()
	certFile, keyFile := tlstest.Write(t, dir, first.Issue(t, tlstest.Leaf{}))
	c := client(t, Config{TLS: tlsfiles.Settings{CAFile: first.File, CertFile: certFile, KeyFile: keyFile}})
	a, err := post(t, c, u, "x")
	wantStatus(t, 200, a, err)
	generation := c.pool.current

	now.Store(second)
	renewed, err := os.ReadFile(second.File)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(first.File, renewed, 0o600); err != nil {
		t.Fatal(err)
	}
	tlstest.Write(t, dir, second.Issue(t, tlstest.Leaf{}))
	c.pool.looked = time.Time{}
	a, err = post(t, c, u, "x")
	wantStatus(t, 200, a, err)
	if c.pool.current == generation {
		t.Error("the connections were not given up")
	}
	generation = c.pool.current
	c.pool.looked = time.Time{}
	a, err = post(t, c, u, "x")
	wantStatus(t, 200, a, err)
	if c.pool.current != generation {
		t.Error("the connections were given up although nothing has changed")
	}

	// Half renewed: a file is missing. The connections that there are go on, new ones wait for the rest.
	if err := os.Remove(certFile); err != nil {
		t.Fatal(err)
	}
	c.pool.looked = time.Time{}
	a, err = post(t, c, u, "x")
	wantStatus(t, 200, a, err)
	if c.pool.current != generation {
		t.Error("the connections were given up for files that cannot be used")
	}
	generation.born = time.Time{}
	_, err = post(t, c, u, "x")
	wantError(t, PhaseTLS, false, err)
}

// TestBadFiles says which file is bad, when it is needed.
func TestBadFiles(t *testing.T) {
	authority := tlstest.New(t)
	certFile, keyFile := tlstest.Write(t, t.TempDir(), authority.Issue(t, tlstest.Leaf{}))
	other, _ := tlstest.Write(t, t.TempDir(), authority.Issue(t, tlstest.Leaf{}))
	text := filepath.Join(t.TempDir(), "hunter2.txt")
	if err := os.WriteFile(text, []byte("secret words"), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for name, c := range map[string]struct {
		tls  tlsfiles.Settings
		word string
	}{
		"missing":     {tlsfiles.Settings{CAFile: missing}, missing},
		"a directory": {tlsfiles.Settings{CAFile: t.TempDir()}, "no regular file"},
		"no PEM":      {tlsfiles.Settings{CAFile: text}, "no certificate"},
		"no key":      {tlsfiles.Settings{CertFile: certFile}, "needs its key"},
		"only a key":  {tlsfiles.Settings{KeyFile: keyFile}, "its certificate"},
		"another key": {tlsfiles.Settings{CertFile: other, KeyFile: keyFile}, other},
		"key no PEM":  {tlsfiles.Settings{CertFile: certFile, KeyFile: text}, certFile},
		"version":     {tlsfiles.Settings{MinVersion: "1.1"}, "1.1"},
	} {
		_, err := post(t, client(t, Config{TLS: c.tls}), parse(t, "https://127.0.0.1:1/"), "x")
		wantError(t, PhaseTLS, false, err)
		if !strings.Contains(err.Error(), c.word) || strings.Contains(err.Error(), "secret words") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMinimalVersion(t *testing.T) {
	authority := tlstest.New(t)
	config := &tls.Config{Certificates: []tls.Certificate{authority.Issue(t, tlstest.Leaf{})}, MaxVersion: tls.VersionTLS12}
	u, _ := secureServer(t, config, false, quiet)
	a, err := post(t, client(t, Config{TLS: tlsfiles.Settings{CAFile: authority.File}}), u, "x")
	wantStatus(t, 200, a, err)
	_, err = post(t, client(t, Config{TLS: tlsfiles.Settings{CAFile: authority.File, MinVersion: "1.3"}}), u, "x")
	wantError(t, PhaseTLS, false, err)
}

// TestSchemesThatDoNotMatch speaks TLS to a plain server, and plain HTTP to one of TLS.
func TestSchemesThatDoNotMatch(t *testing.T) {
	plain := server(t, quiet)
	plain.Scheme = "https"
	_, err := post(t, client(t, Config{}), plain, "x")
	wantError(t, PhaseTLS, false, err)

	secure, requests := secureServer(t, nil, false, quiet)
	secure.Scheme = "http"
	a, err := post(t, client(t, Config{}), secure, "x")
	wantStatus(t, 400, a, err) // Go's server notices
	if requests.Load() != 0 {
		t.Error("the request was understood")
	}
}
