package webhook

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/template"
)

// hostVaries says whether the scheme, host or port depends on the row.
func (t *urlTemplate) hostVaries() bool { return t.whole != nil || t.host != nil }

// expand makes the record's URL. The error says why there is none.
func (t *urlTemplate) expand(r *core.Record) (*url.URL, error) {
	switch {
	case t.static != nil:
		return t.static, nil
	case t.whole != nil:
		return t.expandWhole(r)
	}
	u := t.base
	if t.host != nil {
		host, err := t.host.Expand(r, nil)
		if err != nil {
			return nil, err
		}
		if host = strings.ToLower(host); !validHost(host) {
			return nil, errors.New("the host made from the record is no host name")
		}
		if u.Host = host; t.port != "" {
			u.Host = net.JoinHostPort(host, t.port)
		}
	}
	path, err := t.path(r)
	if err != nil {
		return nil, err
	}
	// A path that Go would encode anew could lose the difference between a slash and a value's %2F.
	u.RawPath = path
	if u.Path, err = url.PathUnescape(path); err != nil || u.EscapedPath() != path {
		return nil, errPath
	}
	if t.query != nil {
		if u.RawQuery, err = t.query.Expand(r, template.EscapeURL); err != nil {
			return nil, err
		}
	}
	return &u, nil
}

func (t *urlTemplate) path(r *core.Record) (string, error) {
	var b []byte
	for _, s := range t.segments {
		b = append(b, '/')
		begin := len(b)
		var err error
		if b, err = s.text.Append(b, r, template.EscapeURL); err != nil {
			return "", err
		}
		if made := string(b[begin:]); s.varies && (made == "" || dots(made)) {
			return "", fmt.Errorf("the record's values make a path segment %q, which has another meaning in a URL", made)
		}
	}
	return string(b), nil
}

// expandWhole reads a record's own URL.
func (t *urlTemplate) expandWhole(r *core.Record) (*url.URL, error) {
	text, err := t.whole.Expand(r, nil)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("the record's URL is no URL of printable ASCII characters")
	case u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "":
		return nil, errors.New("the record's URL does not begin with http:// or https://")
	case u.User != nil:
		return nil, errors.New("the record's URL has user info, which is not sent")
	case strings.Contains(text, "#"):
		return nil, errors.New("the record's URL has a fragment, which is never sent")
	}
	u.Host = strings.ToLower(u.Host)
	if addr, err := netip.ParseAddr(u.Hostname()); (err != nil || addr.Zone() != "") && !validHost(u.Hostname()) {
		return nil, errors.New("the record's URL has no valid host name")
	}
	if err := checkPort(u.Host, u.Port()); err != nil {
		return nil, errors.New("the record's URL has no valid port")
	}
	return u, nil
}

// endpointOf is the URL's scheme, host and port.
func endpointOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(u.Hostname(), port)
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// dots reports whether a path segment means "here" or "above", which is not for a value to say, encoded or not.
func dots(segment string) bool {
	text, err := url.PathUnescape(segment)
	return err == nil && (text == "." || text == "..")
}

// validHost reports whether a row may have made this host: a name (RFC 1123, and underscores, which some networks have)
// or an IPv4 address as everybody reads it.
func validHost(host string) bool {
	if len(host) > 253 {
		return false
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; !isAlphanumeric(c) && c != '-' && c != '_' {
				return false
			}
		}
	}
	// Some resolvers read 127.1, 0177.0.0.1 and 0x7f000001 as addresses.
	if last := labels[len(labels)-1]; strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		addr, err := netip.ParseAddr(host)
		return err == nil && addr.Is4()
	}
	return true
}
