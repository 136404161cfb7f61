package egress

import (
	"encoding/binary"
	"net/netip"
)

// special is a range of addresses that are no destination on the public internet.
type special struct {
	prefix netip.Prefix
	what   string
}

// specials is what IANA's registries of special-purpose addresses (RFC 6890 and its successors) say is not globally
// reachable, and what is no unicast at all. Of IPv6 only 2000::/3 is allocated for global unicast: the last three entries
// are the rest, those before them name parts of it, or hide IPv4 addresses. The order is that of the search.
// https://www.iana.org/assignments/iana-ipv4-special-registry, https://www.iana.org/assignments/iana-ipv6-special-registry
var specials = [...]special{
	{netip.MustParsePrefix("0.0.0.0/8"), "this network"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "a carrier's shared network"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("168.63.129.16/32"), "Azure's platform"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local, where clouds keep metadata"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "protocol assignments"},
	{netip.MustParsePrefix("192.0.2.0/24"), "documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4 relays"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarking"},
	{netip.MustParsePrefix("198.51.100.0/24"), "documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved or broadcast"},

	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("::/96"), "IPv4-compatible"},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "IPv4-translated"},
	{netip.MustParsePrefix("64:ff9b::/96"), "NAT64"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "local NAT64"},
	{netip.MustParsePrefix("100::/64"), "discard-only"},
	{netip.MustParsePrefix("2001::/23"), "protocol assignments, Teredo"},
	{netip.MustParsePrefix("2001:db8::/32"), "documentation"},
	{netip.MustParsePrefix("2002::/16"), "6to4"},
	{netip.MustParsePrefix("3fff::/20"), "documentation"},
	{netip.MustParsePrefix("5f00::/16"), "segment routing"},
	{netip.MustParsePrefix("fc00::/7"), "private"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fec0::/10"), "site-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
	{netip.MustParsePrefix("::/3"), "not global unicast"},
	{netip.MustParsePrefix("4000::/2"), "not global unicast"},
	{netip.MustParsePrefix("8000::/1"), "not global unicast"},
}

// Ranges of IPv6 addresses with an IPv4 address in them, which a gateway, or this host, may send the packets to.
var (
	compatible = netip.MustParsePrefix("::/96")           // RFC 4291, section 2.5.5.1
	translated = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 2765, section 2.1
	nat64      = netip.MustParsePrefix("64:ff9b::/96")    // RFC 6052, section 2.1
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")  // RFC 8215; a gateway with a prefix of 96 bits is assumed
	sixToFour  = netip.MustParsePrefix("2002::/16")       // RFC 3056, section 2
)

// embedded returns the IPv4 address inside an address of IPv6, if it has one.
func embedded(addr netip.Addr) (netip.Addr, bool) {
	if !addr.Is6() {
		return netip.Addr{}, false
	}
	bytes := addr.As16()
	switch {
	case sixToFour.Contains(addr):
		return netip.AddrFrom4([4]byte(bytes[2:6])), true
	case compatible.Contains(addr):
		// :: and ::1 are in this range and have a meaning of their own.
		return netip.AddrFrom4([4]byte(bytes[12:])), binary.BigEndian.Uint32(bytes[12:]) > 1
	case translated.Contains(addr), nat64.Contains(addr), localNAT64.Contains(addr):
		return netip.AddrFrom4([4]byte(bytes[12:])), true
	}
	return netip.Addr{}, false
}
