package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// ErrRefused is wrapped by the error of a request that the Guard does not let out. Nothing was sent, and to try again is
// of no use.
var ErrRefused = errors.New("destination refused")

// Rules are an operator's changes to what a Guard lets out.
type Rules struct {
	// AllowCIDRs are let out although they are special: private, loopback and so on.
	AllowCIDRs []netip.Prefix
	// DenyCIDRs are not let out, whatever AllowCIDRs has.
	DenyCIDRs []netip.Prefix
	// AllowHosts, unless empty, are the only hosts that URLs may have: names or addresses, or *.example.com for every
	// name below example.com. Their addresses are looked at all the same.
	AllowHosts []string
	// AllowPorts, unless empty, replace 80, 443, 8080 and 8443.
	AllowPorts []int
}

// Guard keeps requests whose URL comes from a stranger away from what only this network can reach. It may be used
// concurrently, and does not change.
type Guard struct {
	allow, deny []netip.Prefix
	hosts       []string
	ports       []int
}

// NewGuard returns a Guard that lets out what is public, as the rules change it. A prefix of IPv4-mapped addresses
// (::ffff:10.0.0.0/104) means the addresses of IPv4.
func NewGuard(rules Rules) *Guard {
	g := &Guard{allow: unmapped(rules.AllowCIDRs), deny: unmapped(rules.DenyCIDRs), ports: slices.Clone(rules.AllowPorts)}
	if len(g.ports) == 0 {
		g.ports = []int{80, 443, 8080, 8443}
	}
	for _, host := range rules.AllowHosts {
		g.hosts = append(g.hosts, plainHost(host))
	}
	return g
}

func unmapped(prefixes []netip.Prefix) []netip.Prefix {
	plain := make([]netip.Prefix, len(prefixes))
	for i, p := range prefixes {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		plain[i] = p.Masked()
	}
	return plain
}

// plainHost is how hosts are compared: without case, brackets and the dot that ends a full name.
func plainHost(host string) string {
	return strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
}

// URL says whether requests may go to the URL, as far as it tells: its host is resolved only when it is dialed. The error
// wraps ErrRefused and shows nothing of the URL but its scheme, host and port.
func (g *Guard) URL(u *url.URL) error {
	if err := checkURL(u); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	host := plainHost(u.Hostname())
	if len(g.hosts) > 0 && !slices.ContainsFunc(g.hosts, func(pattern string) bool { return matches(pattern, host) }) {
		return fmt.Errorf("%w: host %s is not among the allowed ones", ErrRefused, host)
	}
	port, err := strconv.ParseUint(portOf(u), 10, 16)
	if err != nil {
		return fmt.Errorf("%w: the URL's port is no number", ErrRefused)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return g.Address(netip.AddrPortFrom(addr, uint16(port)))
	}
	return g.port(int(port))
}

func matches(pattern, host string) bool {
	if below, found := strings.CutPrefix(pattern, "*"); found {
		return len(host) > len(below) && strings.HasSuffix(host, below)
	}
	return host == pattern
}

// Address says whether a connection to the address may be made. The error wraps ErrRefused.
func (g *Guard) Address(to netip.AddrPort) error {
	if err := g.port(int(to.Port())); err != nil {
		return err
	}
	addr := to.Addr().Unmap().WithZone("")
	if !addr.IsValid() {
		return fmt.Errorf("%w: there is no address", ErrRefused)
	}
	if err := g.address(addr); err != nil {
		return err
	}
	if inner, found := embedded(addr); found {
		if err := g.address(inner); err != nil {
			return fmt.Errorf("%w (it is inside %s)", err, addr)
		}
	}
	return nil
}

func (g *Guard) port(port int) error {
	if !slices.Contains(g.ports, port) {
		return fmt.Errorf("%w: port %d is not among the allowed ones", ErrRefused, port)
	}
	return nil
}

func (g *Guard) address(addr netip.Addr) error {
	for _, p := range g.deny {
		if p.Contains(addr) {
			return fmt.Errorf("%w: address %s is denied (%s)", ErrRefused, addr, p)
		}
	}
	for _, p := range g.allow {
		if p.Contains(addr) {
			return nil
		}
	}
	for _, s := range specials {
		if s.prefix.Contains(addr) {
			return fmt.Errorf("%w: address %s is %s (%s)", ErrRefused, addr, s.what, s.prefix)
		}
	}
	return nil
}

// checkURL says whether an HTTP request can be made of the URL. The user's part is refused, and not ignored as net/http
// does: it would look like authentication and be none.
func checkURL(u *url.URL) error {
	switch {
	case u == nil:
		return errors.New("there is no URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("the URL's scheme is %.20q, not http or https", u.Scheme)
	case u.Opaque != "" || u.Hostname() == "":
		return errors.New("the URL has no host")
	case u.User != nil:
		return errors.New("the URL has a user or password in it")
	}
	return nil
}

// portOf is the port of the URL's host, or that of its scheme.
func portOf(u *url.URL) string {
	switch port := u.Port(); {
	case port != "":
		return port
	case u.Scheme == "https":
		return "443"
	default:
		return "80"
	}
}
