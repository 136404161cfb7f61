package rabbitmq

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/core/tlsfiles"
)

// The ports that AMQP has with and without TLS.
const (
	portPlain = "5672"
	portTLS   = "5671"
)

// checkURLs checks the URLs. Their texts are not shown: somebody may have put a password into them.
func checkURLs(p *settings.Problems, c *config) {
	for i, text := range c.URLs {
		at := fmt.Sprintf("/urls/%d", i)
		u, err := url.Parse(text)
		if err != nil {
			p.Wrong(at, "must be a URL such as amqps://rabbit.example.com:5671")
			continue
		}
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		switch {
		case u.Scheme != "amqp" && u.Scheme != "amqps", u.Hostname() == "":
			p.Wrong(at, "must be a URL such as amqps://rabbit.example.com:5671")
		case u.User != nil:
			p.Wrong(at, "must have no user name or password: they have settings of their own, username and password")
		case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
			p.Wrong(at, "must end behind its port: the virtual host has a setting of its own, vhost, and so has all else")
		case u.Port() != "" && (err != nil || port == 0):
			p.Wrong(at, "must have a port of 1 to 65535")
		case i > 0 && strings.HasPrefix(text, "amqps:") != c.secure():
			p.Wrong(at, "must begin as the first one does: all nodes have TLS, or none has")
		}
	}
}

// secure says whether there is TLS.
func (c *config) secure() bool { return len(c.URLs) > 0 && strings.HasPrefix(c.URLs[0], "amqps:") }

// endpoints are the nodes as host:port. The URLs were checked.
func (c *config) endpoints() []string {
	var all []string
	for _, text := range c.URLs {
		u, err := url.Parse(text)
		if err != nil {
			continue
		}
		port := u.Port()
		if port == "" && u.Scheme == "amqps" {
			port = portTLS
		} else if port == "" {
			port = portPlain
		}
		all = append(all, net.JoinHostPort(u.Hostname(), port))
	}
	return all
}

// local says whether all nodes are on this machine.
func (c *config) local() bool {
	return !slices.ContainsFunc(c.endpoints(), func(endpoint string) bool {
		host, _, _ := net.SplitHostPort(endpoint)
		addr, err := netip.ParseAddr(host)
		return host != "localhost" && !strings.HasSuffix(host, ".localhost") && (err != nil || !addr.IsLoopback())
	})
}

// checkLogin checks who the sink is to the server, and TLS.
func checkLogin(p *settings.Problems, c *config) {
	p.Add(c.TLS.Check("/tls"))
	if c.TLS != (tlsfiles.Settings{MinVersion: c.TLS.MinVersion}) && !c.secure() {
		p.Warn("/tls", "has no effect, because the urls begin with amqp://")
	}
	if c.SASL == saslExternal {
		p.WrongIf(!c.secure(), "/sasl", "must not be external without TLS: a client certificate needs amqps")
		p.WrongIf(c.TLS.CertFile == "", "/tls/cert_file", "is required with sasl external")
		p.WrongIf(c.Username != "", "/username", "is for sasl plain: with external the certificate says who the sink is")
		p.WrongIf(c.Password.Set(), "/password", "is for sasl plain: with external the certificate says who the sink is")
		return
	}
	p.WrongIf(c.Username == "", "/username", "is required, except for a server on this machine that lets guest in")
	p.WrongIf(c.Username != "" && !c.Password.Set(), "/password", "is required with username, or password_file")
	p.WrongIf(strings.ContainsRune(c.Username, 0), "/username", "must not contain a NUL character") // it ends the name in PLAIN
	p.Add(c.Password.Check(""))
	if !c.secure() && !c.local() {
		p.Warn("/urls/0", "begins with amqp://, so that the password and the records go over the network for everybody to read")
	}
}

// checkTopology checks what is looked for, or made, and the connection's times.
func checkTopology(p *settings.Problems, c *config) {
	t, active := &c.Topology, c.Declare == declareActive
	p.WrongIf(c.Declare == declareNone && len(t.Exchanges)+len(t.Queues) > 0, "/topology", "has no effect with declare none")
	p.WrongIf(!active && len(t.Bindings) > 0, "/topology/bindings", "are for declare active: the server cannot be asked for a binding")
	p.WrongIf(active && len(t.Exchanges)+len(t.Queues)+len(t.Bindings) == 0, "/topology", "is required with declare active")
	const servers = "begins with amq., which is the server's own: it can be looked for, and not made"
	const looked = "are for declare active: only whether the name is there can be looked for"
	for i, x := range t.Exchanges {
		p.WrongIf(!active && len(x.Arguments) > 0, fmt.Sprintf("/topology/exchanges/%d/arguments", i), looked)
		p.WrongIf(active && strings.HasPrefix(x.Name, "amq."), fmt.Sprintf("/topology/exchanges/%d/name", i), servers)
	}
	for i, q := range t.Queues {
		at := fmt.Sprintf("/topology/queues/%d", i)
		p.WrongIf(active && strings.HasPrefix(q.Name, "amq."), at+"/name", servers)
		p.WrongIf(!active && len(q.Arguments) > 0, at+"/arguments", looked)
		_, there := q.Arguments[amqp.QueueTypeArg]
		p.WrongIf(there, at+"/arguments/"+amqp.QueueTypeArg, "has a setting of its own, type")
	}
	p.WrongIf(time.Duration(c.Heartbeat)%time.Second != 0, "/heartbeat", "must be whole seconds")
	p.WrongIf(c.ReconnectBackoff.Min > c.ReconnectBackoff.Max, "/reconnect_backoff/min", "must not be above reconnect_backoff.max, %s", c.ReconnectBackoff.Max)
}

// reservedHeader says why a header's value is not for settings or rows to give; "" if it is.
func (c *config) reservedHeader(name string) string {
	lower := strings.ToLower(name)
	switch {
	case name == "CC" || name == "BCC":
		return "routes copies that nothing tells the fate of"
	case lower == headerContentType:
		return "has a setting of its own, content_type"
	case strings.HasPrefix(lower, ownHeaders):
		return "is one of those that connectd sends"
	case c.Format != formatRaw && (strings.HasPrefix(lower, "cloudevents_") || strings.HasPrefix(lower, "cloudevents:")):
		return "is an attribute of the CloudEvent"
	}
	return ""
}

// checkHeaders checks the names of headers.
func checkHeaders(p *settings.Problems, c *config) {
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		reserved := c.reservedHeader(name)
		p.WrongIf(reserved != "", pointer("headers", name), "cannot be set: it %s", reserved)
		p.WrongIf(name == "" || len(name) > maxShort, pointer("headers", name), "must have a name of 1 to %d bytes", maxShort)
	}
	for i, name := range c.ForwardHeaders {
		at := fmt.Sprintf("/forward_headers/%d", i)
		_, set := c.Headers[name]
		switch reserved := c.reservedHeader(name); {
		case name == everyHeader && len(c.ForwardHeaders) > 1:
			p.Wrong(at, "must be alone: it stands for all headers")
		case strings.EqualFold(name, headerContentType):
			p.Wrong(at, "need not be listed: the row's content-type is the message's")
		case reserved != "":
			p.Wrong(at, "cannot be forwarded: it %s", reserved)
		case set:
			p.Wrong(at, "is set in headers too")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.HeaderTypes)) {
		at := pointer("header_types", name)
		_, set := c.Headers[name]
		sent := set || slices.Contains(c.ForwardHeaders, everyHeader) || slices.Contains(c.ForwardHeaders, name)
		if reserved := c.reservedHeader(name); reserved != "" {
			p.Wrong(at, "cannot be set: it %s", reserved)
		} else if !sent {
			p.Wrong(at, "has no effect: neither headers nor forward_headers has a header of this name")
		}
	}
}

func pointer(group, name string) string { return "/" + group + "/" + settings.Escape(name) }
