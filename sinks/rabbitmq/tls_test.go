package rabbitmq

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/scripts/services"
)

// authority signs certificates for a test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("authority", nil)
	a.write("ca.pem", "CERTIFICATE", a.cert.Raw)
	return a
}

// issue makes a certificate, for an IP address or for nothing but the name.
func (a *authority) issue(name string, ip net.IP) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.next++
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	c := &x509.Certificate{
		SerialNumber: big.NewInt(a.next), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := c, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	} else {
		c.IsCA, c.BasicConstraintsValid, c.ExtKeyUsage = true, true, nil
	}
	if ip != nil {
		c.IPAddresses = []net.IP{ip}
	}
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)))), key
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// client is the settings of a client with a certificate.
func (a *authority) client(name string) string {
	cert, key := a.issue(name, nil)
	return fmt.Sprintf(`"cert_file":%q,"key_file":%q`,
		a.write(name+".pem", "CERTIFICATE", cert.Raw), a.write(name+".key", "EC PRIVATE KEY", must(x509.MarshalECPrivateKey(key))))
}

// listener is Erlang that has RabbitMQ listen with TLS, letting in who has a certificate. RabbitMQ takes one for a login only if its general options are strict.
const listener = `
ok = application:set_env(rabbit, auth_mechanisms, ['PLAIN', 'EXTERNAL']),
ok = application:set_env(rabbit, ssl_cert_login_from, common_name),
File = filename:join(rabbit_mnesia:dir(), "plugins"),
ok = application:set_env(rabbit, enabled_plugins_file, File),
ok = file:write_file(File, "[rabbitmq_management,rabbitmq_auth_mechanism_ssl]."),
{ok, _, _} = rabbit_plugins:ensure(File),
Strict = [{verify, verify_peer}, {fail_if_no_peer_cert, true}],
ok = application:set_env(rabbit, ssl_options, Strict),
D = fun base64:decode/1,
rabbit_networking:start_ssl_listener(%d, [{cacerts, [D("%s")]}, {cert, D("%s")}, {key, {'ECPrivateKey', D("%s")}} | Strict], 2).`

// TestTLS connects with TLS both ways: with a certificate and a password, and with the certificate as the login.
func TestTLS(t *testing.T) {
	own := services.Own(t, "rabbitmq")
	s := serverAt(t, own.RabbitMQ(), own.RabbitMQManagement())
	s.exchange("shop", "quorum", nil)
	a := newAuthority(t)
	cert, key := a.issue("server", net.IPv4(127, 0, 0, 1))
	port := freePort(t)
	text := base64.StdEncoding.EncodeToString
	own.RabbitMQCtl("eval", fmt.Sprintf(listener, port, text(a.cert.Raw), text(cert.Raw), text(must(x509.MarshalECPrivateKey(key)))))
	s.setPassword("relay", "unused")
	s.allow("relay", "^shop$")

	target := fmt.Sprintf(`"exchange":"shop","routing_key":"{type}","urls":["amqps://127.0.0.1:%d"]`, port)
	ca := fmt.Sprintf(`"ca_file":%q,`, a.dir+"/ca.pem")
	sink := opened(t, s.settings("", `{`+target+`,"tls":{`+ca+a.client("anybody")+`}}`))
	wantDelivered(t, deliver(t, sink, rows(2, "a")))

	external := fmt.Sprintf(`{"vhost":%q,"sasl":"external",%s`, s.vhost, target)
	sink = opened(t, []byte(external+`,"tls":{`+ca+a.client("relay")+`}}`))
	wantDelivered(t, deliver(t, sink, rows(2, "a")))
	if n := len(s.take("shop")); n != 4 {
		t.Errorf("%d messages arrived", n)
	}

	for settings, says := range map[string]string{
		external + `,"tls":{` + ca + a.client("stranger") + `}}`:                                "login was refused",
		external + `,"tls":{` + a.client("relay") + `}}`:                                        "certificate",
		external + `,"tls":{` + ca + a.client("relay") + `,"server_name":"elsewhere.example"}}`: "elsewhere.example",
		string(s.settings("", `{`+target+`,"tls":{"ca_file":"`+a.dir+`/ca.pem"}}`)):             "connect to RabbitMQ at",
		external + `,"tls":{` + ca + `"cert_file":"` + a.dir + `/none","key_file":"/none"}}`:    "no such file",
	} {
		if err := configured(t, []byte(settings)).Open(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
