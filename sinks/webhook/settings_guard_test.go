package webhook

import (
	"errors"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/sinks/webhook/egress"
)

func parsed(t *testing.T, text string) config {
	t.Helper()
	c, diagnostics := parse([]byte(text), Options{Connector: "shop", Dir: "/base", Version: "1.2.3"})
	for _, d := range diagnostics {
		if !d.Warning {
			t.Fatalf("%s: %+v", text, d)
		}
	}
	return c
}

// TestGuard has addresses checked where rows name hosts, and where the settings want it.
func TestGuard(t *testing.T) {
	const public, loopback = "93.184.216.34:443", "127.0.0.1:443"
	for text, want := range map[string]map[string]bool{
		`{"url":"https://example.com"}`:                             nil,
		`{"url":"https://example.com:9000","ssrf":{"mode":"off"}}`:  nil,
		`{"url":"https://example.com","ssrf":{"mode":"on"}}`:        {public: true, loopback: false, "93.184.216.34:9443": false},
		`{"url":"https://example.com:9443","ssrf":{"mode":"on"}}`:   {public: true, "93.184.216.34:9443": true, "93.184.216.34:25": false},
		`{"url":"https://{key}.example.com"}`:                       {public: true, loopback: false, "[::1]:443": false, "10.0.0.1:443": false},
		`{"url":"https://{key}.example.com:9443/"}`:                 {public: true, "93.184.216.34:9443": true, "93.184.216.34:25": false},
		`{"url":"{route}","ssrf":{"allow_ports":[25]}}`:             {public: false, "93.184.216.34:25": true},
		`{"url":"{route}","ssrf":{"allow_cidrs":["127.0.0.1"]}}`:    {public: true, loopback: true, "127.0.0.2:443": false},
		`{"url":"{route}","ssrf":{"deny_cidrs":["93.184.0.0/16"]}}`: {public: false},
		`{"url":"{route}","ssrf":{"mode":"off","allow_hosts":["a.example"]}}`: {
			public: true, loopback: true, "[::1]:443": true, "[fd00::1]:443": true, "127.0.0.1:25": false},
		`{"url":"{route}","ssrf":{"mode":"off","allow_hosts":["a.example"],"deny_cidrs":["127.0.0.0/8"]}}`: {public: true, loopback: false},
	} {
		c := parsed(t, text)
		guard := c.guard()
		if (guard != nil) != (want != nil) {
			t.Errorf("%s: guard %v", text, guard)
		}
		for address, allowed := range want {
			err := guard.Address(netip.MustParseAddrPort(address))
			if (err == nil) != allowed || err != nil && !errors.Is(err, egress.ErrRefused) {
				t.Errorf("%s: %s: %v", text, address, err)
			}
		}
	}
	c := parsed(t, `{"url":"{route}","ssrf":{"mode":"off","allow_hosts":["a.example"]}}`)
	for host, allowed := range map[string]bool{"a.example": true, "b.example": false, "127.0.0.1": false} {
		if err := c.guard().URL(&url.URL{Scheme: "https", Host: host}); (err == nil) != allowed {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// TestDefaults are those that depend on other settings.
func TestDefaults(t *testing.T) {
	c := parsed(t, `{"url":"https://example.com","rate_limit":{"rate":"600/m"},"tls":{"ca_file":"ca.pem","cert_file":"/x/c.pem","key_file":"k"},
		"auth":{"type":"bearer","file":"token"},"signing":{"secrets":[{"file":"s"}]}}`)
	if c.PerEndpoint != 64 || c.MaxConnsPerHost != 64 || c.RateLimit.Burst != 10 || c.Signing.Scheme != schemeStandard || c.UserAgent != "connectd/1.2.3" {
		t.Errorf("%+v", c)
	}
	if c.TLS.CAFile != "/base/ca.pem" || c.TLS.CertFile != "/x/c.pem" || c.TLS.KeyFile != "/base/k" || c.Auth.File != "/base/token" ||
		c.Signing.Secrets[0].File != "/base/s" {
		t.Errorf("paths: %+v", c)
	}
	if want := (breaker{MinRequests: 10, FailureRatio: 0.7, OpenFor: settings.Duration(30 * time.Second), HalfOpen: 1}); *c.Breaker != want {
		t.Errorf("breaker %+v", *c.Breaker)
	}
	many := parsed(t, `{"url":"https://{key}.example.com","rate_limit":{"rate":"5/10s"},"user_agent":"x"}`)
	if many.PerEndpoint != 16 || many.MaxConnsPerHost != 16 || many.RateLimit.Burst != 1 || many.UserAgent != "x" {
		t.Errorf("%+v", many)
	}
	if few := parsed(t, `{"url":"https://{key}.example.com","concurrency":4}`); few.PerEndpoint != 4 {
		t.Errorf("%+v", few)
	}
	if events := parsed(t, `{"url":"https://example.com","body":"ce_batch"}`); *events.Batch != (batching{MaxRows: 100, MaxBytes: 256 << 10}) {
		t.Errorf("batch %+v", *events.Batch)
	}
}

// TestPathsWithoutADirectory must be absolute.
func TestPathsWithoutADirectory(t *testing.T) {
	for text, want := range map[string]string{
		`{"url":"https://example.com","tls":{"ca_file":"a"}}`:        "/tls/ca_file",
		`{"url":"https://example.com","tls":{"ca_file":"/a\u0000"}}`: "/tls/ca_file",
	} {
		if _, d := parse([]byte(text), Options{}); len(d) != 1 || d[0].Pointer != want {
			t.Errorf("%s: %+v", text, d)
		}
	}
}
