package egress

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// edges has of each range its first and last address, and those one outside; "" is where another refused range goes on.
var edges = []struct{ prefix, first, last, before, after string }{
	{"0.0.0.0/8", "0.0.0.0", "0.255.255.255", "", "1.0.0.0"},
	{"10.0.0.0/8", "10.0.0.0", "10.255.255.255", "9.255.255.255", "11.0.0.0"},
	{"100.64.0.0/10", "100.64.0.0", "100.127.255.255", "100.63.255.255", "100.128.0.0"},
	{"127.0.0.0/8", "127.0.0.0", "127.255.255.255", "126.255.255.255", "128.0.0.0"},
	{"168.63.129.16/32", "168.63.129.16", "168.63.129.16", "168.63.129.15", "168.63.129.17"},
	{"169.254.0.0/16", "169.254.0.0", "169.254.255.255", "169.253.255.255", "169.255.0.0"},
	{"172.16.0.0/12", "172.16.0.0", "172.31.255.255", "172.15.255.255", "172.32.0.0"},
	{"192.0.0.0/24", "192.0.0.0", "192.0.0.255", "191.255.255.255", "192.0.1.0"},
	{"192.0.2.0/24", "192.0.2.0", "192.0.2.255", "192.0.1.255", "192.0.3.0"},
	{"192.88.99.0/24", "192.88.99.0", "192.88.99.255", "192.88.98.255", "192.88.100.0"},
	{"192.168.0.0/16", "192.168.0.0", "192.168.255.255", "192.167.255.255", "192.169.0.0"},
	{"198.18.0.0/15", "198.18.0.0", "198.19.255.255", "198.17.255.255", "198.20.0.0"},
	{"198.51.100.0/24", "198.51.100.0", "198.51.100.255", "198.51.99.255", "198.51.101.0"},
	{"203.0.113.0/24", "203.0.113.0", "203.0.113.255", "203.0.112.255", "203.0.114.0"},
	{"224.0.0.0/4", "224.0.0.0", "239.255.255.255", "223.255.255.255", ""},
	{"240.0.0.0/4", "240.0.0.0", "255.255.255.255", "", ""},

	{"::/128", "::", "::", "", ""},
	{"::1/128", "::1", "::1", "", ""},
	{"::/96", "::2", "::ffff:ffff", "", ""},
	{"::ffff:0:0:0/96", "::ffff:0:0:0", "::ffff:0:ffff:ffff", "", ""},
	{"64:ff9b::/96", "64:ff9b::", "64:ff9b::ffff:ffff", "", ""},
	{"64:ff9b:1::/48", "64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"100::/64", "100::", "100::ffff:ffff:ffff:ffff", "", ""},
	{"::/3", "0:0:0:1::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", "2000::"},
	{"2001::/23", "2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:200::"},
	{"2001:db8::/32", "2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db9::"},
	{"2002::/16", "2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2003::"},
	{"3fff::/20", "3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "3fff:1000::"},
	{"4000::/2", "4000::", "7fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""},
	{"5f00::/16", "5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"8000::/1", "8000::", "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"fc00::/7", "fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"fe80::/10", "fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"fec0::/10", "fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"ff00::/8", "ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
}

func at(addr string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(addr), 443) }

// wantRefused fails the test unless the error is a refusal that names the word.
func wantRefused(t *testing.T, err error, word string) {
	t.Helper()
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), word) {
		t.Errorf("%v, want a refusal that says %q", err, word)
	}
}

func TestEveryEdgeOfEveryRange(t *testing.T) {
	g := NewGuard(Rules{})
	for _, e := range edges {
		wantRefused(t, g.Address(at(e.first)), "("+e.prefix+")")
		wantRefused(t, g.Address(at(e.last)), "("+e.prefix+")")
		for _, outside := range []string{e.before, e.after} {
			if outside == "" {
				continue
			}
			if err := g.Address(at(outside)); err != nil {
				t.Errorf("%s, next to %s: %v", outside, e.prefix, err)
			}
		}
	}
	if len(edges) != len(specials) {
		t.Errorf("%d of %d ranges are tested", len(edges), len(specials))
	}
}

// TestDisguises hides 10.0.0.1, 127.0.0.1 and the clouds' metadata inside addresses of IPv6, which are allowed here.
func TestDisguises(t *testing.T) {
	g := NewGuard(Rules{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("::/0")}})
	for _, addr := range []string{
		"::ffff:10.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", // IPv4-mapped
		"::10.0.0.1", "::127.0.0.1", // IPv4-compatible
		"::ffff:0:10.0.0.1",                       // IPv4-translated
		"64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe", // NAT64
		"64:ff9b:1::10.0.0.1",                   // local NAT64
		"2002:a00:1::", "2002:7f00:1:1:2:3:4:5", // 6to4
	} {
		wantRefused(t, g.Address(at(addr)), "(")
	}
	for _, addr := range []string{"64:ff9b::8.8.8.8", "2002:808:808::1", "::8.8.8.8", "::1", "fd00::1", "::ffff:8.8.8.8"} {
		if err := g.Address(at(addr)); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

func TestAllowAndDeny(t *testing.T) {
	g := NewGuard(Rules{
		AllowCIDRs: []netip.Prefix{
			netip.MustParsePrefix("10.1.0.7/16"), // with host bits
			netip.MustParsePrefix("::ffff:172.16.0.0/108"),
			netip.MustParsePrefix("64:ff9b::/96"),
		},
		DenyCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24"), netip.MustParsePrefix("8.8.8.0/24")},
	})
	for addr, word := range map[string]string{
		"10.1.0.1":               "",
		"::ffff:10.1.0.1":        "",
		"172.16.0.1":             "",
		"172.32.0.1":             "",
		"64:ff9b::10.1.0.1":      "",
		"8.8.4.4":                "",
		"10.2.0.1":               "10.0.0.0/8",
		"10.1.2.3":               "denied",
		"::ffff:10.1.2.3":        "denied",
		"64:ff9b::10.1.2.3":      "denied",
		"64:ff9b::8.8.8.8":       "denied",
		"64:ff9b::10.2.0.1":      "inside 64:ff9b::a02:1",
		"8.8.8.8":                "denied",
		"fe80::1%eth0":           "link-local",
		"::ffff:127.0.0.1%weird": "loopback",
	} {
		err := g.Address(at(addr))
		if word == "" && err != nil {
			t.Errorf("%s: %v", addr, err)
		}
		if word != "" {
			wantRefused(t, err, word)
		}
	}
	wantRefused(t, g.Address(netip.AddrPort{}), "port 0")
	wantRefused(t, NewGuard(Rules{AllowPorts: []int{0}}).Address(netip.AddrPort{}), "no address")
}

func TestURLs(t *testing.T) {
	open := NewGuard(Rules{})
	named := NewGuard(Rules{AllowHosts: []string{"a.example", "*.B.example.", "[2606:4700::1]"}, AllowPorts: []int{443, 9443}})
	for _, c := range []struct {
		guard     *Guard
		url, word string
	}{
		{open, "https://a.example/x?y=z", ""},
		{open, "http://a.example", ""},
		{open, "http://a.example:8080/", ""},
		{open, "HTTPS://A.EXAMPLE:8443/", ""},
		{open, "http://8.8.8.8/", ""},
		{open, "http://[2606:4700::1]/", ""},
		{open, "http://a.example:81/", "port 81"},
		{open, "http://a.example:22/", "port 22"},
		{open, "http://a.example:99999/", "port is no number"},
		{open, "http://a.example:0/", "port 0"},
		{open, "ftp://a.example/", "scheme"},
		{open, "file:///etc/passwd", "scheme"},
		{open, "//a.example/", "scheme"},
		{open, "https:a.example", "no host"},
		{open, "https:///path", "no host"},
		{open, "https://:443/", "no host"},
		{open, "https://hunter2@a.example/", "user or password"},
		{open, "https://u:hunter2@a.example/?q=hunter2", "user or password"},
		{open, "http://127.0.0.1/", "loopback"},
		{open, "http://127.0.0.1./", "loopback"},
		{open, "http://[::1]/", "loopback"},
		{open, "http://[::ffff:7f00:1]/", "loopback"},
		{open, "http://169.254.169.254/latest/?q=hunter2", "metadata"},
		{open, "http://[fd00:ec2::254]/", "private"},
		{open, "http://[fe80::1%25eth0]/", "link-local"},
		{named, "https://a.example/", ""},
		{named, "https://A.Example./", ""},
		{named, "https://x.b.example:9443/", ""},
		{named, "https://x.y.b.example/", ""},
		{named, "https://[2606:4700::1]/", ""},
		{named, "https://b.example/", "not among"},
		{named, "https://xb.example/", "not among"},
		{named, "https://.b.example/", "not among"},
		{named, "https://a.example.evil.example/", "not among"},
		{named, "http://a.example/", "port 80"},
		{named, "https://8.8.8.8/", "not among"},
	} {
		u, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		err = c.guard.URL(u)
		if c.word == "" && err != nil {
			t.Errorf("%s: %v", c.url, err)
		}
		if c.word != "" {
			wantRefused(t, err, c.word)
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: the error shows a secret: %v", c.url, err)
			}
		}
	}
	wantRefused(t, open.URL(nil), "no URL")
}
