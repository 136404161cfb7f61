package kafka

import (
	"fmt"
	"mime"
	"slices"
	"strconv"
	"strings"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/cloudevents"
	"github.com/connectd/connectd/core/jsonrecord"
	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/core/template"
	"github.com/connectd/connectd/sinks/kafka/producer"
)

// The headers that tell of the record and of this send, those of the webhook in lower case: names of Kafka's headers are
// not the same in capitals.
const (
	headerID        = "connectd-id"
	headerKey       = "connectd-key"
	headerType      = "connectd-type"
	headerRoute     = "connectd-route"
	headerDelivery  = "connectd-delivery"
	headerDuplicate = "connectd-possible-duplicate"
	headerEpoch     = "connectd-epoch"
	headerCreatedAt = "connectd-created-at"

	// The name and the prefix that CloudEvents has in Kafka
	// (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md).
	headerContentType = "content-type"
	prefixEvent       = "ce_"
)

const everyHeader = "*" // in the setting forward_headers

func headerPointer(name string) string { return "/headers/" + settings.Escape(name) }

// reservedHeader says why a header is not for the setting headers, or for a row, to give; "" if it is.
func (c *config) reservedHeader(name string) string {
	switch lower := strings.ToLower(name); {
	case name == "":
		return "has no name"
	case lower == headerContentType:
		return "has a setting of its own, content_type"
	case strings.HasPrefix(lower, "connectd-"):
		return "is one of those that connectd sends"
	case c.Format != formatRaw && strings.HasPrefix(lower, prefixEvent):
		return "is an attribute of the CloudEvent"
	}
	return ""
}

// headerTemplate is one of the setting headers.
type headerTemplate struct {
	name  string
	value *template.Template
}

// forwarding says which of a row's headers go along.
type forwarding struct {
	all   bool
	names []string // with all: those that the settings give instead
}

// compileForwarding reads the setting forward_headers.
func compileForwarding(p *settings.Problems, c *config) forwarding {
	f := forwarding{all: slices.Equal(c.ForwardHeaders, []string{everyHeader})}
	if f.all {
		for name := range c.Headers {
			f.names = append(f.names, name)
		}
		return f
	}
	for i, name := range c.ForwardHeaders {
		at := fmt.Sprintf("/forward_headers/%d", i)
		_, set := c.Headers[name]
		switch reserved := c.reservedHeader(name); {
		case name == everyHeader:
			p.Wrong(at, "must be alone: it stands for all headers")
		case strings.EqualFold(name, headerContentType):
			p.Wrong(at, "need not be listed: the row's content-type is the message's")
		case reserved != "":
			p.Wrong(at, "cannot be forwarded: it %s", reserved)
		case set:
			p.Wrong(at, "is set in headers too")
		}
	}
	f.names = c.ForwardHeaders
	return f
}

// takes says whether a row's header of that name, which is not reserved, goes along.
func (f *forwarding) takes(name string) bool { return slices.Contains(f.names, name) != f.all }

// headersOf are the message's headers: those that connectd gives, those of the settings in the order of their names, and
// the row's in its own order.
func (c *composer) headersOf(r *core.Record, attributes []cloudevents.Attribute, p *pad) ([]producer.Header, error) {
	first := p.mark(mostOwn + len(attributes) + len(c.headers) + len(r.Headers))
	media := c.contentType(r)
	switch c.config.Format {
	case formatRaw:
		c.describe(r, p)
	case formatStructured:
		media = cloudevents.JSON + "; charset=UTF-8"
	}
	for i := range attributes {
		p.header(prefixEvent+attributes[i].Name, attributes[i].Value)
	}
	if media != "" {
		p.header(headerContentType, media)
	}
	for i := range c.headers {
		h := &c.headers[i]
		value, err := h.value.Expand(r, nil)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", h.name, err)
		}
		p.header(h.name, value)
	}
	for i := range r.Headers {
		h := &r.Headers[i]
		if c.forwarding.takes(h.Name) && c.config.reservedHeader(h.Name) == "" {
			p.header(h.Name, h.Value)
		}
	}
	return p.since(first), nil
}

// mostOwn is how many headers describe adds at most, and one.
const mostOwn = 9

// describe adds the headers that tell of the record and of this send.
func (c *composer) describe(r *core.Record, p *pad) {
	p.header(headerID, r.ID)
	if c.key != nil && r.Keyed {
		p.header(headerKey, r.Key)
	}
	if r.Type != "" {
		p.header(headerType, r.Type)
	}
	if r.Route != "" {
		p.header(headerRoute, r.Route)
	}
	p.header(headerDelivery, strconv.Itoa(r.Deliveries))
	if r.PossibleDuplicate() {
		p.header(headerDuplicate, "true")
	}
	p.header(headerEpoch, strconv.FormatInt(r.Epoch, 10))
	if created := jsonrecord.Time(r.CreatedAt); created != "" {
		p.header(headerCreatedAt, created)
	}
}

// contentType is what the settings or else the row say of the payload. For a CloudEvent there is always something.
func (c *composer) contentType(r *core.Record) string {
	if c.config.ContentType != "" {
		return c.config.ContentType
	}
	for i := range r.Headers {
		if h := &r.Headers[i]; h.Value != "" && strings.EqualFold(h.Name, headerContentType) {
			return h.Value
		}
	}
	if c.config.Format == formatRaw {
		return ""
	}
	return "application/json"
}

// isMedia reports whether s can be a content type; "" is none.
func isMedia(s string) bool {
	_, _, err := mime.ParseMediaType(s)
	return s == "" || err == nil
}
