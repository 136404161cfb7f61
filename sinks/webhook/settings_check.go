package webhook

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/core/template"
	"github.com/connectd/connectd/core/tlsfiles"
)

// checker collects what is wrong, or dubious, with settings whose single values are right.
type checker struct{ settings.Problems }

// statuses checks the lists of answers.
func (k *checker) statuses(c *config) {
	lists := []struct {
		name string
		list statuses
	}{
		{"success_status", c.SuccessStatus}, {"retry_status", c.RetryStatus},
		{"permanent_status", c.PermanentStatus}, {"throttle_status", c.ThrottleStatus},
	}
	for i, a := range lists {
		for n, r := range a.list {
			at := fmt.Sprintf("/%s/%d", a.name, n)
			if a.name == "success_status" && (r.first < 200 || r.last >= 300 && r.first < 400) {
				k.Wrong(at, "must not have 1xx or 3xx: such an answer says that nothing was taken")
			} else if a.name == "success_status" && c.Receipt == receiptOn2xx && r.last >= 300 {
				k.Warn(at, "has answers that give no receipt: that is for 2xx only, so with retention.require_receipt these rows wait for the consumer's own")
			}
			for _, b := range lists[:i] {
				k.WrongIf(b.list.meets(r), at, "has a status that is in %s too", b.name)
			}
		}
	}
}

// connections checks what is about connections, limits and time.
func (k *checker) connections(c *config) {
	for _, t := range []struct {
		name string
		bad  bool
	}{
		{"connect", c.Timeouts.Connect > c.Timeouts.Total}, {"tls", c.Timeouts.TLS > c.Timeouts.Total},
		{"header", c.Timeouts.Header > c.Timeouts.Total},
	} {
		k.WrongIf(t.bad, "/timeouts/"+t.name, "must not be above timeouts.total, %s", c.Timeouts.Total)
	}
	if text := c.ProxyURL.Reveal(); text != "" {
		u, err := url.Parse(text)
		k.WrongIf(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "", "/proxy_url",
			"must be the URL of an HTTP proxy, such as http://proxy.example.com:3128")
		if c.guarded() {
			k.Warn("/proxy_url", "resolves host names itself: ssrf then sees the proxy's address only, so the proxy must filter")
		}
	}
	for i, name := range c.Capture.Headers {
		k.WrongIf(!token(name), fmt.Sprintf("/capture/headers/%d", i), "must be the name of a header")
	}
	if c.FollowRedirects != redirectNever {
		k.Warn("/follow_redirects", "sends signed requests where the receiver says; a url that needs no redirect is better")
	}
	if c.Breaker != nil && !c.hostVaries() {
		k.Warn("/breaker", "has no effect, because the url's host is the same for every row: the connector pauses as a whole")
	}
}

// tls checks the files' names; the files are read when the sink opens.
func (k *checker) tls(c *config) {
	k.Add(c.TLS.Check("/tls"))
	if c.TLS != (tlsfiles.Settings{MinVersion: c.TLS.MinVersion}) && c.target.base.Scheme == "http" {
		k.Warn("/tls", "has no effect, because the url begins with http://")
	}
}

// ssrf checks which addresses are let out.
func (k *checker) ssrf(c *config) {
	s := &c.SSRF
	for i, host := range s.AllowHosts {
		name := strings.TrimPrefix(host, "*.")
		_, err := netip.ParseAddr(name)
		k.WrongIf(!validHost(strings.ToLower(name)) && (err != nil || name != host), fmt.Sprintf("/ssrf/allow_hosts/%d", i),
			`must be a host such as "example.com", or "*.example.com" for every name below it`)
	}
	for i, port := range s.AllowPorts {
		k.WrongIf(port < 1 || port > 65535, fmt.Sprintf("/ssrf/allow_ports/%d", i), "must be a port of 1 to 65535")
	}
	if port, err := strconv.Atoi(c.target.port); err == nil && c.hostVaries() && len(s.AllowPorts) > 0 {
		k.WrongIf(!slices.Contains(s.AllowPorts, port), "/url", "has a port that is not in ssrf.allow_ports")
	}
	switch {
	case s.Mode == "off" && c.hostVaries() && len(s.AllowHosts) == 0:
		k.Wrong("/ssrf/mode", "must not be off when the url's host depends on the row, unless ssrf.allow_hosts lists the hosts: "+
			"rows could reach everything that this machine can")
	case !c.guarded() && !c.hostVaries() && len(s.AllowCIDRs)+len(s.DenyCIDRs)+len(s.AllowHosts)+len(s.AllowPorts) > 0:
		k.Warn("/ssrf", "has no effect, because the url's host is the same for every row; set ssrf.mode to on to check its addresses")
	}
}

// openly warns of what somebody between here and the receiver can read.
func (k *checker) openly(c *config) {
	u := c.target
	if u.base.Scheme != "http" || u.host == nil && loopback(u.base.Hostname()) {
		return
	}
	switch {
	case c.Auth != nil:
		k.Warn("/url", "begins with http://, so that auth and the records go over the network for everybody to read")
	case c.Signing.Scheme != schemeNone:
		k.Warn("/url", "begins with http://: a signature keeps nobody from reading the records; use https://")
	}
}

// strangers warns of credentials that go wherever a row says.
func (k *checker) strangers(c *config) {
	oneDomain := strings.Count(c.target.domain, ".") > 1 // ".example.com", but not ".com"
	if !c.hostVaries() || oneDomain || len(c.SSRF.AllowHosts) > 0 {
		return
	}
	const why = "goes to whatever host a row names, over http:// too if its URL says so; list the hosts in ssrf.allow_hosts"
	if c.Auth != nil {
		k.Warn("/auth", why)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		if t, err := template.Parse(c.Headers[name], ""); err == nil && t.Fixed() && secretive.MatchString(name) {
			k.Warn(headerPointer(name), why)
		}
	}
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && addr.IsLoopback()
}

// secretFiles checks the names of the files that hold secrets.
func (k *checker) secretFiles(c *config) {
	for i := range c.Signing.Secrets {
		k.Path(fmt.Sprintf("/signing/secrets/%d/file", i), c.Signing.Secrets[i].File)
	}
	if c.Auth != nil {
		k.Path("/auth/file", c.Auth.File)
	}
}
