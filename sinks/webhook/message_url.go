package webhook

import (
	"errors"
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
	domain   string             // what every row's host ends with
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
	if _, err := template.Parse(text, connector); err != nil {
		return nil, err // with its place in the whole text
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
	t.domain = host[strings.LastIndexByte(host, '}')+1:]
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
