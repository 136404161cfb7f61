// Package tlsfiles is the TLS of a client, a sink or a source, as settings have it: whom the server must be, and who the
// client is. Certificates and keys are in files, which are renewed beside a client that runs for months and so are read
// again when they have changed.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/reread"
	"github.com/connectd/connectd/core/settings"
)

// maxPEM bounds a file of certificates or a key; the system's bundle of all authorities has a quarter of that.
const maxPEM = 1 << 20

// Settings is a group of settings, or part of one that embeds it. The zero Settings trusts the system's authorities and
// shows no certificate.
type Settings struct {
	CAFile             string `json:"ca_file" doc:"certificates to trust, PEM, instead of the system's"`
	CertFile           string `json:"cert_file" doc:"client certificate, with those between it and its authority, PEM"`
	KeyFile            string `json:"key_file" doc:"its key, PEM"`
	ServerName         string `json:"server_name" doc:"name the server's certificate must have instead of the host's"`
	MinVersion         string `json:"min_version" default:"1.2" enum:"1.2,1.3" doc:"of TLS"`
	InsecureSkipVerify bool   `json:"insecure_skip_verify" default:"false" doc:"accept any certificate"`
}

// Resolve makes the files' paths absolute: relative ones are relative to dir. Without a dir they stay, for Check to
// refuse.
func (s *Settings) Resolve(dir string) { settings.Absolute(dir, &s.CAFile, &s.CertFile, &s.KeyFile) }

// Check says what is wrong with the settings, which are those at the pointer ("/tls"). It comes after Resolve and opens no
// file.
func (s *Settings) Check(pointer string) []core.Diagnostic {
	var p settings.Problems
	name := settings.Name(pointer)
	p.WrongIf(s.CertFile != "" && s.KeyFile == "", pointer+"/key_file", "is required with %s.cert_file", name)
	p.WrongIf(s.KeyFile != "" && s.CertFile == "", pointer+"/cert_file", "is required with %s.key_file", name)
	if s.InsecureSkipVerify {
		p.Warn(pointer+"/insecure_skip_verify", "lets anybody on the way read and change requests and answers; use "+name+".ca_file instead")
		p.WrongIf(s.CAFile != "", pointer+"/ca_file", "has no effect with %s.insecure_skip_verify; leave out one of them", name)
	}
	p.Path(pointer+"/ca_file", s.CAFile)
	p.Path(pointer+"/cert_file", s.CertFile)
	p.Path(pointer+"/key_file", s.KeyFile)
	return p
}

// Source returns the function that makes the configuration of the files as they are now. It is for use before each
// handshake, concurrently or not: it returns the same configuration as long as no file has changed, and then another one,
// so that whoever keeps connections can tell by the pointer that they are out of date. A configuration that it returned
// does not change and is not to be changed: clone it. Errors name the file and show nothing of it; nothing is read before
// the first call.
func (s Settings) Source() func() (*tls.Config, error) {
	var paths []string
	for _, path := range []string{s.CAFile, s.CertFile, s.KeyFile} {
		if path != "" {
			paths = append(paths, path)
		}
	}
	return reread.New(maxPEM, s.parse, paths...).Get
}

// parse makes a configuration of the contents of those files that there are.
func (s Settings) parse(contents [][]byte) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.ServerName, InsecureSkipVerify: s.InsecureSkipVerify}
	switch s.MinVersion {
	case "", "1.2":
	case "1.3":
		c.MinVersion = tls.VersionTLS13
	default:
		return nil, fmt.Errorf("TLS version %q is not 1.2 or 1.3", s.MinVersion)
	}
	if s.CAFile != "" {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(contents[0]) {
			return nil, fmt.Errorf("%s has no certificate in PEM", s.CAFile)
		}
		contents = contents[1:]
	}
	if s.CertFile == "" && s.KeyFile == "" {
		return c, nil
	}
	if s.CertFile == "" || s.KeyFile == "" {
		return nil, errors.New("a client's certificate needs its key, and a key its certificate")
	}
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return nil, fmt.Errorf("client certificate %s with key %s: %w", s.CertFile, s.KeyFile, err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}
