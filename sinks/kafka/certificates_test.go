package kafka

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority issues certificates for 127.0.0.1, servers' and clients'.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	file        string // with its own certificate
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{}
	pair := a.issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	a.certificate, a.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	a.file, _ = a.files(t, pair)
	return a
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// server is a certificate for 127.0.0.1.
func (a *authority) server(t testing.TB) tls.Certificate {
	t.Helper()
	return a.issue(t, &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// client is a client's certificate, in files.
func (a *authority) client(t testing.TB) (cert, key string) {
	t.Helper()
	return a.files(t, a.issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "connectd"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}))
}

// issue signs a certificate; without an authority it signs itself.
func (a *authority) issue(t testing.TB, template *x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) files(t testing.TB, pair tls.Certificate) (cert, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for file, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, "key.pem": {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
}
