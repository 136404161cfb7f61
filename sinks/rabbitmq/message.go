package rabbitmq

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/cloudevents"
	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/core/template"
	"github.com/connectd/connectd/sinks/rabbitmq/publisher"
)

// composer makes messages of records. It may be used concurrently.
type composer struct {
	config     *config
	exchange   *template.Template
	routingKey *template.Template
	properties []property
	headers    []headerTemplate
	forward    map[string]bool // names; nil: all
	events     *cloudevents.Mapper
	fixed      fixed
}

// fixed says which parts of a message's target are the same for all records.
type fixed struct{ exchange, routingKey bool }

// property is a text of a message that has a setting.
type property struct {
	pointer string
	text    *template.Template
	set     func(p *amqp.Publishing, text string) error
}

// compile reads the templates among the settings.
func compile(p *settings.Problems, c *config, connector string) *composer {
	read := func(pointer, text string) *template.Template {
		t, err := template.Parse(text, connector)
		if err != nil {
			p.Wrong(pointer, "%v", err)
		}
		return t
	}
	made := &composer{config: c, exchange: read("/exchange", c.Exchange), routingKey: read("/routing_key", c.RoutingKey)}
	for _, each := range []struct {
		name, text string
		set        func(p *amqp.Publishing, text string) error
	}{
		{"type", c.Properties.Type, func(p *amqp.Publishing, text string) error { p.Type = text; return nil }},
		{"correlation_id", c.Properties.CorrelationID, func(p *amqp.Publishing, text string) error { p.CorrelationId = text; return nil }},
		{"reply_to", c.Properties.ReplyTo, setReplyTo},
		{"app_id", c.Properties.AppID, func(p *amqp.Publishing, text string) error { p.AppId = text; return nil }},
		{"content_encoding", c.Properties.ContentEncoding, func(p *amqp.Publishing, text string) error { p.ContentEncoding = text; return nil }},
		{"priority", c.Properties.Priority, setPriority},
		{"expiration", c.Properties.Expiration, setExpiration},
	} {
		if each.text != "" {
			at := "/properties/" + each.name
			made.properties = append(made.properties, property{at, read(at, each.text), each.set})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		made.headers = append(made.headers, headerTemplate{name, read(pointer("headers", name), c.Headers[name])})
	}
	if !slices.Equal(c.ForwardHeaders, []string{everyHeader}) {
		made.forward = map[string]bool{}
		for _, name := range c.ForwardHeaders {
			made.forward[name] = true
		}
	}
	p.WrongIf(c.Format == formatRaw && c.CloudEvents.Set(), "/cloudevents", "has no effect with format raw; set format too, or leave it out")
	events, problems := c.CloudEvents.Parse("/cloudevents", connector)
	made.events = events
	p.Add(problems)
	if made.exchange != nil && made.routingKey != nil {
		made.fixed = fixed{made.exchange.Fixed(), made.routingKey.Fixed()}
	}
	p.WrongIf(c.OnMissingExchange == permanently && made.fixed.exchange, "/on_missing_exchange",
		"permanent is for an exchange with {fields}: when the one exchange is missing, all records wait for it")
	return made
}

// setReplyTo refuses the name by which a client is answered on its own channel, where nobody listens here. The server would
// close the channel for it.
func setReplyTo(p *amqp.Publishing, text string) error {
	if strings.HasPrefix(text, "amq.rabbitmq.reply-to") {
		return errors.New("is no queue of a consumer's own")
	}
	p.ReplyTo = text
	return nil
}

func setPriority(p *amqp.Publishing, text string) error {
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		return errors.New("is no whole number of 0 to 255")
	}
	p.Priority = uint8(n)
	return nil
}

// setExpiration checks what the server would close the channel for.
func setExpiration(p *amqp.Publishing, text string) error {
	if n, err := strconv.ParseUint(text, 10, 32); err != nil || n != 0 && text[0] == '0' {
		return errors.New("is no number of milliseconds")
	}
	p.Expiration = text
	return nil
}

// rehearse makes a message of a sample record, so that what would fail for every record fails here.
func (c *composer) rehearse(found *settings.Problems) {
	p := &c.config.Properties
	texts := []string{
		c.config.Exchange, c.config.RoutingKey, c.config.CloudEvents.Source, c.config.CloudEvents.Type,
		p.Type, p.CorrelationID, p.ReplyTo, p.AppID, p.ContentEncoding, p.Priority, p.Expiration,
	}
	texts = slices.AppendSeq(texts, maps.Values(c.config.Headers))
	r := template.Sample("1", texts...) // a number and a name
	for _, each := range c.properties {
		if err := each.apply(&amqp.Publishing{}, &r); err != nil {
			found.Wrong(each.pointer, "%v", err)
		}
	}
	for _, h := range c.headers {
		if _, err := c.value(h, &r); err != nil && h.value.Fixed() {
			found.Wrong(pointer("headers", h.name), "%v", err)
		}
	}
	for at, t := range map[string]*template.Template{"/exchange": c.exchange, "/routing_key": c.routingKey} {
		text, err := t.Expand(&r, nil)
		found.WrongIf(err == nil && len(text) > maxShort, at, "must have %d bytes at most", maxShort)
	}
}

// maxShort is the longest name that AMQP has, in bytes (AMQP 0-9-1 section 4.2.5.3: a short string).
const maxShort = 255

// compose makes the message of a record, or says in an outcome why it can never be sent as it is. The message shares the
// record's memory.
func (c *composer) compose(r *core.Record) (*publisher.Message, *core.Outcome) {
	exchange, err := c.exchange.Expand(r, nil)
	if err == nil && exchange == "" && !c.fixed.exchange {
		err = errors.New("the record names no exchange") // or it would go to whichever queue the routing key names
	}
	if err != nil {
		return nil, unsendable("bad_exchange", fmt.Errorf("exchange: %w", err))
	}
	routingKey, err := c.routingKey.Expand(r, nil)
	if err != nil {
		return nil, unsendable("bad_routing_key", fmt.Errorf("routing_key: %w", err))
	}
	m := &publisher.Message{Lane: lane(r), Key: r.Key, Keyed: r.Keyed, Exchange: exchange, RoutingKey: routingKey, Mandatory: true}
	if outcome := c.fill(&m.Publishing, r); outcome != nil {
		return nil, outcome
	}
	if size := len(m.Publishing.Body); size > int(c.config.MaxMessageBytes) {
		return nil, unsendable("too_large", fmt.Errorf("the body has %d bytes, max_message_bytes allows %d", size, int(c.config.MaxMessageBytes)))
	}
	return m, nil
}

// fill makes properties, headers and body.
func (c *composer) fill(p *amqp.Publishing, r *core.Record) *core.Outcome {
	p.DeliveryMode, p.MessageId = amqp.Persistent, r.ID
	if r.CreatedAt.Unix() > 0 { // the property has no sign
		p.Timestamp = r.CreatedAt
	}
	for i := range c.properties {
		if err := c.properties[i].apply(p, r); err != nil {
			return unsendable("bad_property", fmt.Errorf("%s: %w", strings.TrimPrefix(c.properties[i].pointer, "/properties/"), err))
		}
	}
	var err error
	if p.Headers, err = c.table(r); err != nil {
		return unsendable("bad_header", err)
	}
	p.ContentType, p.Body = c.contentType(r), r.Payload
	switch c.config.Format {
	case formatBinary:
		err = c.eventHeaders(p.Headers, r)
	case formatStructured:
		p.Body, err = c.events.AppendJSON(nil, r, p.ContentType)
		p.ContentType = cloudevents.JSON
	default:
		describe(p.Headers, r)
	}
	if err != nil {
		return unsendable("bad_event", err)
	}
	return nil
}

// apply sets the property; an empty one is not there.
func (p *property) apply(m *amqp.Publishing, r *core.Record) error {
	text, err := p.text.Expand(r, nil)
	if err != nil || text == "" {
		return err
	}
	return p.set(m, text)
}

// lane keeps a key to one channel (FNV-1a), and spreads records without one by their id.
func lane(r *core.Record) uint64 {
	text := r.Key
	if !r.Keyed {
		text = r.ID
	}
	hash := uint64(14695981039346656037)
	for i := range len(text) {
		hash = (hash ^ uint64(text[i])) * 1099511628211
	}
	return hash
}

// unsendable is the outcome of a record that no message can be made of.
func unsendable(code string, why error) *core.Outcome {
	return &core.Outcome{Kind: core.Permanent, Code: code, Message: core.CleanText(why.Error())}
}
