package webhook

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/jsonrecord"
	"github.com/connectd/connectd/core/template"
	"github.com/connectd/connectd/sinks/webhook/signature"
)

// The headers that tell of a record's send, and say what a body in JSON lines says in its fields.
const (
	headerKey       = "Connectd-Key"
	headerType      = "Connectd-Type"
	headerRoute     = "Connectd-Route"
	headerDelivery  = "Connectd-Delivery"
	headerDuplicate = "Connectd-Possible-Duplicate"
	headerEpoch     = "Connectd-Epoch"
	headerCreatedAt = "Connectd-Created-At"
)

// connection are headers that belong to the connection or are made of the body, and so are not for settings or rows.
var connection = []string{
	"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Expect", "Host", "Keep-Alive",
	"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// reservedHeader says why a header's value is not for the setting headers, or for a row, to give; "" if it is. The
// name is in canonical form.
func (c *config) reservedHeader(name string) string {
	switch {
	case slices.Contains(connection, name):
		return "is made by the connection"
	case name == "Content-Type":
		return "has a setting of its own, content_type"
	case name == "User-Agent":
		return "has a setting of its own, user_agent"
	case strings.HasPrefix(name, "Connectd-"):
		return "is one of those that connectd sends"
	case c.Body == bodyCEBinary && strings.HasPrefix(name, "Ce-"):
		return "is an attribute of the CloudEvent"
	case slices.Contains(c.signedHeaders(), name):
		return "is made by the signature"
	case c.Idempotency != nil && name == http.CanonicalHeaderKey(c.Idempotency.Name):
		return "is the idempotency header"
	case c.Auth != nil && slices.Contains(c.Auth.headers(), name):
		return "is made by auth"
	}
	return ""
}

// headers are the names that the authorization sets, in canonical form.
func (a *authConfig) headers() []string {
	switch a.Type {
	case "header":
		return []string{http.CanonicalHeaderKey(a.Name)}
	case "sigv4":
		return []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token", "X-Amz-Content-Sha256"}
	default:
		return []string{"Authorization"}
	}
}

// headerTemplate is one of the setting headers.
type headerTemplate struct {
	setting string // the name as in the settings
	name    string // canonical
	value   *template.Template
}

// expand makes the value for a record. A row's text that a header cannot hold as it is goes percent-encoded; text that
// could begin another header is refused.
func (h *headerTemplate) expand(r *core.Record) (string, error) {
	broken := false
	value, err := h.value.Expand(r, func(s string) string {
		broken = broken || strings.ContainsAny(s, "\r\n\x00")
		return headerText(s)
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("header %s: %w", h.name, err)
	case broken:
		return "", fmt.Errorf("header %s: the record's value has a line end or a NUL character", h.name)
	}
	return value, nil
}

// headerText is s as a header's value: as it is if that is printable ASCII, perhaps with blanks inside, else
// percent-encoded as a whole.
func headerText(s string) string {
	if fieldText(s) {
		return s
	}
	return signature.PercentEncode(s)
}

// fieldText reports whether a header can hold s as it is.
func fieldText(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c > '~' {
			return false
		}
	}
	return strings.Trim(s, " \t") == s
}

// token reports whether s can be a header's name (RFC 9110 section 5.6.2).
func token(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && strings.IndexByte("!#$%&'*+-.^_`|~", s[i]) < 0 {
			return false
		}
	}
	return s != ""
}

// dashed is a name in canonical form as CGI and its kin (WSGI, PHP, Rack) read it, which take "_" and "-" for the same:
// for them a row's webhook_id would be the webhook-id.
func dashed(name string) string { return http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-")) }

// forwarding says which of a row's headers go along.
type forwarding struct {
	all   bool
	names map[string]bool // canonical; with all, those that stay behind, dashed
}

// newForwarding reads the setting forward_headers, whose names were checked.
func newForwarding(c *config) forwarding {
	f := forwarding{names: map[string]bool{}}
	if slices.Equal(c.ForwardHeaders, []string{"*"}) {
		f.all = true
		for name := range c.Headers {
			f.names[dashed(name)] = true
		}
		return f
	}
	for _, name := range c.ForwardHeaders {
		f.names[http.CanonicalHeaderKey(name)] = true
	}
	return f
}

// forward adds the row's headers that go along. With "*" those that cannot stay behind: names that HTTP does not have,
// and names that are not the row's to set.
func (c *composer) forward(h http.Header, r *core.Record) {
	for _, header := range r.Headers {
		if !token(header.Name) {
			continue
		}
		name := http.CanonicalHeaderKey(header.Name)
		if alias := dashed(name); c.forwarding.all && (c.forwarding.names[alias] || c.config.reservedHeader(alias) != "") {
			continue
		}
		if !c.forwarding.all && !c.forwarding.names[name] {
			continue
		}
		h[name] = append(h[name], headerText(header.Value))
	}
}

// contentType is what a record says of its payload, or JSON.
func (c *composer) contentType(r *core.Record) (string, error) {
	if c.config.ContentType != "" {
		return c.config.ContentType, nil
	}
	for _, header := range r.Headers {
		if strings.EqualFold(header.Name, "content-type") && header.Value != "" {
			if !fieldText(header.Value) {
				return "", errors.New("the record's content-type header is no media type")
			}
			return header.Value, nil
		}
	}
	return "application/json", nil
}

// describe adds the headers that tell of the record and of this send.
func describe(h http.Header, r *core.Record) {
	if r.Keyed {
		h[headerKey] = []string{signature.PercentEncode(r.Key)}
	}
	if r.Type != "" {
		h[headerType] = []string{signature.PercentEncode(r.Type)}
	}
	if r.Route != "" {
		h[headerRoute] = []string{signature.PercentEncode(r.Route)}
	}
	h[headerDelivery] = []string{strconv.Itoa(r.Deliveries)}
	if r.PossibleDuplicate() {
		h[headerDuplicate] = []string{"true"}
	}
	h[headerEpoch] = []string{strconv.FormatInt(r.Epoch, 10)}
	if created := jsonrecord.Time(r.CreatedAt); created != "" {
		h[headerCreatedAt] = []string{created}
	}
}

// eventHeaders adds an event's attributes in binary mode
// (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md). Its datacontenttype
// is the Content-Type.
func (c *composer) eventHeaders(h http.Header, r *core.Record) error {
	all, err := c.events.Attributes(r)
	for _, a := range all {
		h[http.CanonicalHeaderKey("ce-"+a.Name)] = []string{signature.PercentEncode(a.Value)}
	}
	return err
}
