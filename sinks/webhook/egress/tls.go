package egress

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/connectd/connectd/sinks/webhook/reread"
)

// maxPEM bounds a file of certificates or a key; the system's bundle of all authorities has a quarter of that.
const maxPEM = 1 << 20

// TLS says whom an https server must be, and who the client is. The zero TLS trusts the system's authorities. When one of
// its files changes, new connections follow it within a second, and old ones take no more requests.
type TLS struct {
	CAFile             string // certificates to trust instead of the system's, PEM
	CertFile, KeyFile  string // the client's certificate, with those between it and its authority, and its key, PEM
	ServerName         string // the name the server must prove to have instead of the URL's host
	MinVersion         string // 1.2 or 1.3 [1.2]
	InsecureSkipVerify bool   // any server will do
}

// source returns the function that makes the configuration: another one when a file has changed.
func (t TLS) source() func() (*tls.Config, error) {
	var paths []string
	for _, path := range []string{t.CAFile, t.CertFile, t.KeyFile} {
		if path != "" {
			paths = append(paths, path)
		}
	}
	return reread.New(maxPEM, t.parse, paths...).Get
}

// parse makes a configuration of the contents of those files that there are.
func (t TLS) parse(contents [][]byte) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify}
	switch t.MinVersion {
	case "", "1.2":
	case "1.3":
		c.MinVersion = tls.VersionTLS13
	default:
		return nil, fmt.Errorf("TLS version %q is not 1.2 or 1.3", t.MinVersion)
	}
	if t.CAFile != "" {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(contents[0]) {
			return nil, fmt.Errorf("%s has no certificate in PEM", t.CAFile)
		}
		contents = contents[1:]
	}
	if t.CertFile == "" && t.KeyFile == "" {
		return c, nil
	}
	if t.CertFile == "" || t.KeyFile == "" {
		return nil, errors.New("a client's certificate needs its key, and a key its certificate")
	}
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return nil, fmt.Errorf("client certificate %s with key %s: %w", t.CertFile, t.KeyFile, err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}
