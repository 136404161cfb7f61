package webhook

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/jsonrecord"
	"github.com/connectd/connectd/sinks/webhook/signature"
)

// The extension attributes. Names may have lower-case letters and digits only
// (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md).
const (
	extPartitionKey = "partitionkey" // the key; a documented extension
	extTraceParent  = "traceparent"  // the row's own trace; documented too
	extTraceState   = "tracestate"
	extRoute        = "connectdroute"
	extDelivery     = "connectddelivery"  // the number of this send, an Integer
	extDuplicate    = "connectdduplicate" // true, or not there
	extEpoch        = "connectdepoch"     // a String, because an Integer has 32 bits only
)

// attribute is one context attribute of an event. Its value is JSON text where raw is set, else a string.
type attribute struct {
	name, value string
	raw         bool
}

// attributes are the event's in the order in which they are written, datacontenttype aside. Empty ones are left out, as
// the specification has none.
func (c *composer) attributes(r *core.Record) ([]attribute, error) {
	source, err := c.source.Expand(r, escapeURL)
	if err != nil {
		return nil, fmt.Errorf("cloudevents.source: %w", err)
	}
	kind, err := c.kind.Expand(r, nil)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cloudevents.type: %w", err)
	case kind == "" || source == "" || r.ID == "":
		return nil, errors.New("a CloudEvent cannot be without an id, a source or a type")
	}
	traceParent, _ := r.Header(extTraceParent)
	traceState, _ := r.Header(extTraceState)
	all := []attribute{
		{name: "specversion", value: "1.0"},
		{name: "id", value: r.ID},
		{name: "source", value: source},
		{name: "type", value: kind},
		{name: "time", value: jsonrecord.Time(r.CreatedAt)},
		{name: extDelivery, value: strconv.Itoa(r.Deliveries), raw: true},
		{name: extEpoch, value: strconv.FormatInt(r.Epoch, 10)},
		{name: "subject", value: r.Key},
		{name: extPartitionKey, value: r.Key},
		{name: extRoute, value: r.Route},
		{name: extTraceParent, value: traceParent},
		{name: extTraceState, value: traceState},
	}
	all = slices.DeleteFunc(all, func(a attribute) bool { return a.value == "" })
	if r.PossibleDuplicate() {
		all = append(all, attribute{name: extDuplicate, value: "true", raw: true})
	}
	return all, nil
}

// eventHeaders adds an event's attributes in binary mode
// (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md). Its datacontenttype
// is the Content-Type.
func (c *composer) eventHeaders(h http.Header, r *core.Record) error {
	all, err := c.attributes(r)
	for _, a := range all {
		h[http.CanonicalHeaderKey("ce-"+a.name)] = []string{signature.PercentEncode(a.value)}
	}
	return err
}

// appendEvent adds an event in structured mode
// (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md). Data that is JSON, and said to be,
// is embedded as it is; all other data is data_base64.
func (c *composer) appendEvent(dst []byte, r *core.Record, contentType string) ([]byte, error) {
	all, err := c.attributes(r)
	if err != nil {
		return dst, err
	}
	for i, a := range all {
		switch {
		case i == 0:
			dst = append(dst, `{"`+a.name+`":`...)
			dst = appendString(dst, a.value)
		case a.raw:
			dst = append(dst, `,"`+a.name+`":`+a.value...)
		default:
			dst = appendMember(dst, a.name, a.value)
		}
	}
	dst = appendMember(dst, "datacontenttype", contentType)
	switch {
	case len(r.Payload) == 0:
	case isJSON(contentType):
		dst = jsonrecord.AppendPayload(dst, "data", "data_base64", r.Payload, false)
	default:
		dst = jsonrecord.AppendBase64(dst, "data_base64", r.Payload)
	}
	return append(dst, '}'), nil
}

// isJSON reports whether data of a media type is embedded as JSON. The specification would have it of every type that
// ends with +json; but the SDK for Go reads those as strings only, and everybody reads data_base64.
func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || media == "text/json")
}
