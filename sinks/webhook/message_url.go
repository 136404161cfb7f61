package webhook

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/template"
)

// urlTemplate is the url setting. A row's value cannot change the structure of the text it is put into: it stays within
// the host's characters, its path segment or its place in the query. Only a URL that is one field alone is the row's
// as a whole.
type urlTemplate struct {
	whole *template.Template // the row's whole URL; all else is unset then

	base     url.URL            // scheme, and, unless host is set, host and port
	host     *template.Template // nil when it is the same for every row
	port     string             // of base and host, as written
	segments []segment          // of the path, between slashes
	query    *template.Template // nil without one
	static   *url.URL           // the URL when no part depends on the row
}

// segment is what stands between two slashes of a path.
type segment struct {
	text   *template.Template
	varies bool
}

var errPath = errors.New("has a path with a character that must be percent-encoded, or a percent sign without two hexadecimal digits")

// parseURL reads the setting. Its errors are what follows "url" in a sentence, and never repeat the text.
func parseURL(text, connector string) (*urlTemplate, error) {
	if alone(text) {
		whole, err := template.Parse(text, connector)
		if err == nil && whole.Fixed() {
			err = errors.New("must begin with http:// or https://")
		}
		return &urlTemplate{whole: whole}, err
	}
	t := &urlTemplate{}
	scheme, rest, found := strings.Cut(text, "://")
	if !found || scheme != "http" && scheme != "https" {
		return nil, errors.New("must begin with http:// or https://, or be one {field} alone that holds a whole URL")
	}
	t.base.Scheme = scheme
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("has a character that no URL has; percent-encode it, and write a host that is not ASCII in punycode")
	}
	if outside(rest, "#") >= 0 {
		return nil, errors.New("must not have a fragment (#): it is never sent; write %23 for the character")
	}
	authority, path := split(rest, "/?")
	path, query := split(path, "?")
	if err := t.parseAuthority(authority, connector); err != nil {
		return nil, err
	}
	if err := t.parsePath(path, connector); err != nil {
		return nil, err
	}
	if query != "" {
		var err error
		if t.query, err = template.Parse(query[1:], connector); err != nil {
			return nil, err
		}
	}
	return t, t.settle()
}

// alone reports whether the text is one field and nothing else.
func alone(text string) bool {
	return strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "{{") && strings.IndexByte(text, '}') == len(text)-1
}

// outside is the place of the first of chars in a template's own text, -1 without any: what stands in braces, such as
// what a field falls back to, is not looked at.
func outside(text, chars string) int {
	for i := 0; i < len(text); i++ {
		switch {
		case strings.HasPrefix(text[i:], "{{") || strings.HasPrefix(text[i:], "}}"):
			i++
		case text[i] == '{':
			end := strings.IndexByte(text[i:], '}')
			if end < 0 {
				return -1 // the template's parser says what is wrong
			}
			i += end
		case strings.IndexByte(chars, text[i]) >= 0:
			return i
		}
	}
	return -1
}

// split cuts before the first of chars in a template's own text.
func split(text, chars string) (before, from string) {
	if i := outside(text, chars); i >= 0 {
		return text[:i], text[i:]
	}
	return text, ""
}

func (t *urlTemplate) parseAuthority(text, connector string) error {
	if outside(text, "@") >= 0 {
		return errors.New("must not have user info (before an @); use the setting auth")
	}
	whole, err := template.Parse(text, connector)
	if err != nil {
		return err
	}
	if whole.Fixed() {
		fixed, err := whole.Expand(&core.Record{}, nil)
		if err != nil {
			return err
		}
		u, err := url.Parse(t.base.Scheme + "://" + fixed)
		if err != nil || u.Host == "" || u.Hostname() == "" {
			return errors.New("must have a host after ://, such as https://example.com/hook")
		}
		t.base.Host, t.port = strings.ToLower(u.Host), u.Port()
		return checkPort(u.Host, t.port)
	}
	host, port := split(text, ":")
	if t.host, err = template.Parse(host, connector); err != nil {
		return err
	}
	if port != "" {
		t.port = port[1:]
		return checkPort(port, t.port)
	}
	return nil
}

// checkPort checks the port of an authority, which has a colon when it has a port.
func checkPort(authority, port string) error {
	if port == "" && !strings.HasSuffix(authority, ":") {
		return nil
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errors.New("must have a port of 1 to 65535 after the colon, the same for every row")
	}
	return nil
}

func (t *urlTemplate) parsePath(text, connector string) error {
	for text != "" {
		piece, rest := split(text[1:], "/") // it begins with a slash
		text = rest
		tmpl, err := template.Parse(piece, connector)
		if err != nil {
			return err
		}
		s := segment{text: tmpl, varies: !tmpl.Fixed()}
		if literal, err := tmpl.Expand(&core.Record{}, nil); !s.varies && (err != nil || dots(literal)) {
			return errors.New(`must not have "." or ".." between slashes`)
		}
		t.segments = append(t.segments, s)
	}
	return nil
}

// settle makes the URL that is the same for every row, if it is.
func (t *urlTemplate) settle() error {
	if t.hostVaries() || t.query != nil && !t.query.Fixed() {
		return nil
	}
	for _, s := range t.segments {
		if s.varies {
			return nil
		}
	}
	u, err := t.expand(&core.Record{})
	t.static = u
	return err
}

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
		if u.RawQuery, err = t.query.Expand(r, escapeURL); err != nil {
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
		if b, err = s.text.Append(b, r, escapeURL); err != nil {
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
	if _, err := netip.ParseAddr(u.Hostname()); err != nil && !validHost(u.Hostname()) {
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

// escapeURL percent-encodes all but the characters that mean nothing anywhere in a URL (RFC 3986 section 2.3).
func escapeURL(s string) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if isAlphanumeric(c) || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
	}
	return b.String()
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
