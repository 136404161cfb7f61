package rabbitmq

import (
	"fmt"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/cloudevents"
	"github.com/connectd/connectd/core/jsonrecord"
	"github.com/connectd/connectd/core/template"
)

// The headers that tell of a record's send: those of the webhook sink, in the spelling that message brokers have.
const (
	ownHeaders      = "connectd-"
	headerKey       = ownHeaders + "key"
	headerRoute     = ownHeaders + "route"
	headerDelivery  = ownHeaders + "delivery"
	headerDuplicate = ownHeaders + "possible-duplicate"
	headerEpoch     = ownHeaders + "epoch"
	headerCreatedAt = ownHeaders + "created-at" // the property timestamp has whole seconds only
)

const (
	headerContentType = "content-type"
	// The prefix of attributes in CloudEvents' AMQP binding, of its two the one that JMS can name too
	// (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/amqp-protocol-binding.md).
	eventPrefix = "cloudEvents_"
)

// headerTemplate is one of the setting headers.
type headerTemplate struct {
	name  string
	value *template.Template
}

// value makes a header for a record.
func (c *composer) value(h headerTemplate, r *core.Record) (any, error) {
	text, err := h.value.Expand(r, nil)
	if err != nil {
		return nil, err
	}
	return c.config.HeaderTypes[h.name].value(text)
}

// table makes the headers that the row has and those that the settings have. A table has one value for a name: of a row's
// headers of the same name the first counts, as it does in templates.
func (c *composer) table(r *core.Record) (amqp.Table, error) {
	all := make(amqp.Table, len(r.Headers)+len(c.headers)+6)
	for _, h := range r.Headers {
		if _, twice := all[h.Name]; twice || c.forward != nil && !c.forward[h.Name] || c.config.reservedHeader(h.Name) != "" {
			continue
		}
		value, err := c.config.HeaderTypes[h.Name].value(h.Value)
		if err != nil {
			return nil, fmt.Errorf("header %.100q %w", h.Name, err)
		}
		all[h.Name] = value
	}
	for _, h := range c.headers {
		value, err := c.value(h, r)
		if err != nil {
			return nil, fmt.Errorf("header %.100q: %w", h.name, err)
		}
		all[h.name] = value
	}
	return all, nil
}

// describe adds the headers that tell of the record and of this send. What properties have is not repeated.
func describe(all amqp.Table, r *core.Record) {
	if r.Keyed {
		all[headerKey] = r.Key
	}
	if r.Route != "" {
		all[headerRoute] = r.Route
	}
	all[headerDelivery] = int64(r.Deliveries)
	if r.PossibleDuplicate() {
		all[headerDuplicate] = true
	}
	all[headerEpoch] = r.Epoch
	if !r.CreatedAt.IsZero() {
		all[headerCreatedAt] = jsonrecord.Time(r.CreatedAt)
	}
}

// markRepeat marks a message that may be in its queue already and is sent again within one call. In structured mode the
// event itself cannot say it any more.
func (c *composer) markRepeat(p *amqp.Publishing) {
	if c.config.Format == formatBinary {
		p.Headers[eventPrefix+cloudevents.Duplicate] = true
		return
	}
	p.Headers[headerDuplicate] = true
}

// eventHeaders adds an event's attributes in binary mode. Its datacontenttype is the property content-type.
func (c *composer) eventHeaders(all amqp.Table, r *core.Record) error {
	attributes, err := c.events.Attributes(r)
	for _, a := range attributes {
		var value any = a.Value
		if a.Literal { // true, or an Integer, which has 32 bits
			value = a.Value == "true"
			if n, err := strconv.ParseInt(a.Value, 10, 64); err == nil {
				value = n
			}
		}
		all[eventPrefix+a.Name] = value
	}
	return err
}

// contentType is what a record says of its payload, or JSON.
func (c *composer) contentType(r *core.Record) string {
	if c.config.ContentType != "" {
		return c.config.ContentType
	}
	for _, h := range r.Headers {
		if strings.EqualFold(h.Name, headerContentType) && h.Value != "" {
			return h.Value
		}
	}
	return "application/json"
}
