package kafka

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/connectd/connectd/core/settings"
)

// checkBrokers wants addresses, and nothing that only looks like one.
func checkBrokers(p *settings.Problems, c *config) {
	seen := map[string]bool{}
	for i, address := range c.Brokers {
		at := fmt.Sprintf("/brokers/%d", i)
		host, port, err := net.SplitHostPort(address)
		number, portErr := strconv.ParseUint(port, 10, 16)
		switch {
		case strings.Contains(address, "://"):
			p.Wrong(at, "must be host:port alone, without a scheme: TLS has a setting of its own, tls")
		case strings.Contains(address, ","):
			p.Wrong(at, "must be one host:port; write several as a list")
		case err != nil || host == "" || portErr != nil || number == 0 || strings.ContainsAny(host, "@/ \t\r\n\x00"):
			p.Wrong(at, `must be host:port, such as "kafka-1.example.com:9092" or "[2001:db8::1]:9092"`)
		case seen[address]:
			p.Wrong(at, "is there twice")
		}
		seen[address] = true
	}
}

// checkAcks lets nobody lose records unknowingly.
func checkAcks(p *settings.Problems, c *config) {
	switch {
	case c.Acks == acksOne && !c.AllowUnsafeAcks:
		p.Wrong("/acks", "must be all: with one, a record counts as delivered and is lost when the leader is lost before the others have it; "+
			"who wants that sets allow_unsafe_acks: true")
	case c.Acks == acksOne:
		p.Warn("/acks", "one: a record that counts as delivered is lost when the leader is lost before the others have it; "+
			"and what a retry repeats is not dropped by the brokers")
	case c.AllowUnsafeAcks:
		p.Warn("/allow_unsafe_acks", "has no effect with acks: all; leave it out")
	}
}

// checkSecurity checks TLS and SASL.
func checkSecurity(p *settings.Problems, c *config) {
	if c.TLS != nil {
		p.Add(c.TLS.Check("/tls"))
	}
	s := c.SASL
	if s == nil {
		return
	}
	p.Add(s.Check("/sasl"))
	p.WrongIf(!s.Set(), "/sasl/password", "is required, or sasl.password_file")
	p.WrongIf(strings.ContainsRune(s.Username, 0), "/sasl/username", "must not contain a NUL character")
	if c.TLS != nil || allLoopback(c.Brokers) {
		return
	}
	if s.Mechanism == mechanismPlain {
		p.Warn("/sasl/mechanism", "PLAIN without tls sends the password over the network for everybody to read; set tls, or use SCRAM-SHA-512")
	} else {
		p.Warn("/sasl", "without tls records go over the network for everybody to read, and nobody knows whether the brokers are the right ones")
	}
}

func allLoopback(brokers []string) bool {
	for _, address := range brokers {
		host, _, err := net.SplitHostPort(address)
		addr, notIP := netip.ParseAddr(host)
		if err != nil || host != "localhost" && (notIP != nil || !addr.IsLoopback()) {
			return false
		}
	}
	return true
}

const topicNameRule = "must be 1 to 249 letters, digits, full stops, dashes and underscores, and not . or .."

// isTopicName reports whether brokers take s for a topic (org.apache.kafka.common.internals.Topic).
func isTopicName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_' {
			return false
		}
	}
	return s != "" && len(s) <= 249 && s != "." && s != ".."
}
