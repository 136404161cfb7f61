package webhook

import (
	"net/url"
	"strings"
	"testing"

	"github.com/connectd/connectd/core"
)

func TestURL(t *testing.T) {
	for template, want := range map[string]string{
		"https://example.com":                                 "https://example.com https://example.com:443",
		"http://example.com/":                                 "http://example.com/ http://example.com:80",
		"https://[::1]:8443/x":                                "https://[::1]:8443/x https://[::1]:8443",
		"https://example.com/{connector}/{route}?type={type}": "https://example.com/shop/orders?type=OrderPlaced https://example.com:443",
		"https://example.com/a%2Fb/{id}/":                     "https://example.com/a%2Fb/c-1/ https://example.com:443",
		"https://example.com//x//{id}":                        "https://example.com//x//c-1 https://example.com:443",
		"https://{route}.Example.com:9443/{id}":               "https://orders.example.com:9443/c-1 https://orders.example.com:9443",
		"https://{header:tenant}.example.com":                 "https://t1.example.com https://t1.example.com:443",
		"https://example.com/{header:none|a/b?c}":             "https://example.com/a%2Fb%3Fc https://example.com:443",
		"https://example.com/x?a={key}&b={header:none|&c=#}":  "https://example.com/x?a=order-7&b=%26c%3D%23 https://example.com:443",
		"https://example.com/{type}-{id}.json":                "https://example.com/OrderPlaced-c-1.json https://example.com:443",
	} {
		m := composed(t, `{"url":"`+template+`"}`, order())
		if got := m.url.String() + " " + m.endpoint; got != want {
			t.Errorf("%s: %s, want %s", template, got, want)
		}
	}
}

// hostile are values that mean something in a URL, a header or a request line.
var hostile = []string{
	"a/b", "../../admin", "..", ".", "", "%2e%2e", "..%2f", "a?b=c", "a#b", "a@evil.example", "a:b", "//evil.example/", `\\evil`,
	"a\r\nHost: evil.example\r\n\r\nGET / HTTP/1.1", "a\nb", "a\x00b", "a b", "a%2Fb", "a;b", "a&b=c", "ü😀", "\xff\xfe", "{id}", "%", "[::1]", "<>",
}

// TestValuesKeepToTheirPlace holds that no value changes the structure of a URL: it comes out of its segment, or its place
// in the query, as it went in, or the record is buried.
func TestValuesKeepToTheirPlace(t *testing.T) {
	c := composing(t, `{"url":"https://example.com/before/{key}/after?x={key}&y=1"}`)
	for _, value := range hostile {
		r := order()
		r.Key = value
		m, outcome := c.compose([]core.Record{r}, []int{0})
		if outcome != nil {
			if value != ".." && value != "." && value != "" || outcome.Kind != core.Permanent || outcome.Code != "bad_url" {
				t.Errorf("key %q: %+v", value, *outcome)
			}
			continue
		}
		wantInPlace(t, m.url, value)
	}
}

func wantInPlace(t *testing.T, u *url.URL, value string) {
	t.Helper()
	line := u.RequestURI()
	if strings.ContainsFunc(line, func(r rune) bool { return r <= ' ' || r > '~' }) {
		t.Errorf("%q makes the request line %q", value, line)
	}
	path, query, _ := strings.Cut(line, "?")
	segments := strings.Split(path, "/")
	if len(segments) != 4 || segments[1] != "before" || segments[3] != "after" {
		t.Fatalf("%q makes the path %q", value, path)
	}
	if strings.ContainsAny(segments[2]+query, `@:;+$,!*'()[]<>"`) {
		t.Errorf("%q has characters with a meaning in %q", value, line)
	}
	if got, err := url.PathUnescape(segments[2]); err != nil || got != value || dots(segments[2]) {
		t.Errorf("%q came out of the path as %q, %v", value, got, err)
	}
	values, err := url.ParseQuery(query)
	if err != nil || len(values) != 2 || values.Get("x") != value || values.Get("y") != "1" || u.Host != "example.com" || u.User != nil {
		t.Errorf("%q makes the query %q: %v, %v", value, query, values, err)
	}
}

// TestHostsOfRows takes names, and nothing that would make another URL of it.
func TestHostsOfRows(t *testing.T) {
	const settings = `{"url":"https://{key}.example.com:8443/x","ssrf":{"allow_ports":[8443]}}`
	for _, key := range []string{"a", "a.b", "A-1", "a_b", "127.0.0.1"} {
		r := order()
		r.Key = key
		want := "https://" + strings.ToLower(key) + ".example.com:8443"
		if m := composed(t, settings, r); m.endpoint != want || m.url.Path != "/x" {
			t.Errorf("key %q: %+v", key, m)
		}
	}
	for _, key := range append(hostile, "a.", ".a", "a..b", "-a", "a-", strings.Repeat("a", 64), "exämple", "evil.example/", "evil.example:1") {
		r := order()
		r.Key = key
		wantUnsendable(t, settings, r, "bad_url", "no host name")
	}
	for _, host := range []string{"127.1", "2130706433", "0x7f000001", "a.0x7f", "017700000001", "1.2.3.4.5", "256.0.0.1", "0177.0.0.1"} {
		r := order()
		r.Key = host
		wantUnsendable(t, `{"url":"https://{key}/x"}`, r, "bad_url", "no host name")
	}
}

// TestURLsOfRows takes a whole URL from a row.
func TestURLsOfRows(t *testing.T) {
	const settings = `{"url":"{header:callback}"}`
	with := func(value string) core.Record {
		r := order()
		r.Headers = []core.Header{{Name: "callback", Value: value}}
		return r
	}
	for value, want := range map[string]string{
		"https://Example.com/a%2Fb?x=1": "https://example.com/a%2Fb?x=1 https://example.com:443",
		"http://example.com:8080":       "http://example.com:8080 http://example.com:8080",
		"HTTPS://example.com/../x":      "https://example.com/../x https://example.com:443",
		"http://[2001:db8::1]:8080/":    "http://[2001:db8::1]:8080/ http://[2001:db8::1]:8080",
		"http://93.184.216.34/":         "http://93.184.216.34/ http://93.184.216.34:80",
	} {
		m := composed(t, settings, with(value))
		if got := m.url.String() + " " + m.endpoint; got != want {
			t.Errorf("%s: %s, want %s", value, got, want)
		}
	}
	for value, words := range map[string]string{
		"":                             "begin with http",
		"/x":                           "begin with http",
		"//evil.example/x":             "begin with http",
		"file:///etc/passwd":           "begin with http",
		"http:opaque":                  "begin with http",
		"gopher://x/":                  "begin with http",
		"https://user:pw@example.com/": "user info",
		"https://example.com/#x":       "fragment",
		"https://example.com/a b":      "no URL",
		"https://example.com/\r\nX: y": "no URL",
		"https://exämple.com/":         "no URL",
		"https:///x":                   "host name",
		"https://-a/":                  "host name",
		"https://2130706433/":          "host name",
		"https://example.com:0/":       "port",
		"https://example.com:/":        "port",
		"https://example.com:99999/":   "port",
		"https://[fe80::1%25eth0]/":    "host name",
	} {
		wantUnsendable(t, settings, with(value), "bad_url", words)
	}
	wantUnsendable(t, settings, order(), "bad_url", `the record has no header "callback"`)
}

// FuzzURL holds that a value keeps to its place, whatever it is.
func FuzzURL(f *testing.F) {
	for _, value := range hostile {
		f.Add(value)
	}
	c := composing(f, `{"url":"https://example.com/before/{key}/after?x={key}&y=1"}`)
	f.Fuzz(func(t *testing.T, value string) {
		r := order()
		r.Key = value
		if len(value) > maxHead/16 {
			return
		}
		m, outcome := c.compose([]core.Record{r}, []int{0})
		if outcome != nil {
			if value != "" && value != "." && value != ".." {
				t.Fatalf("%q: %+v", value, *outcome)
			}
			return
		}
		wantInPlace(t, m.url, value)
	})
}
