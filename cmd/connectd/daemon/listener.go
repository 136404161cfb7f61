package daemon

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// listen opens the HTTP listener. Without a token only loopback is served: the address is resolved first and the
// address that was resolved is the one that is opened, so a name cannot change its meaning in between.
func listen(address, token string) (net.Listener, error) {
	addr, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("daemon.http %q: %w", address, err)
	}
	if token == "" && !addr.IP.IsLoopback() {
		return nil, fmt.Errorf("daemon.http %q is open to other machines and daemon.token is not set; "+
			"set daemon.token (for example ${file:/etc/connectd/token}) or listen on 127.0.0.1", address)
	}
	l, err := net.ListenTCP("tcp", addr)
	if err != nil {
		var busy *net.OpError
		if errors.As(err, &busy) {
			err = busy.Err
		}
		return nil, fmt.Errorf("daemon.http: cannot listen on %s: %w (another address: connectd run --http ADDR, none: --http off)",
			address, err)
	}
	return l, nil
}

// loopbackHost says whether a Host header names this machine. A browser sends the name of the page it shows, so a
// page that makes its own name resolve to 127.0.0.1 (DNS rebinding) is told apart by it.
func loopbackHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// isLoopback says whether an opened listener can be reached from this machine only.
func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
