package kafka

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/cloudevents"
	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/core/template"
	"github.com/connectd/connectd/sinks/kafka/producer"
)

// The codes of records that no message can be made of.
const (
	codeBadEvent     = "bad_event"
	codeBadHeader    = "bad_header"
	codeBadKey       = "bad_key"
	codeBadPartition = "bad_partition"
	codeBadTopic     = "bad_topic"
)

// composer makes messages of records. It may be used concurrently.
type composer struct {
	config     *config
	topic      *template.Template
	fixed      string             // the topic of every record; "": it depends on the row
	key        *template.Template // nil: the row's key as it is
	partition  *template.Template // nil: by the key
	headers    []headerTemplate
	forwarding forwarding
	events     *cloudevents.Mapper
	now        func() time.Time
}

// compile reads the templates among the settings. When a problem is no warning, the composer is worth nothing.
func compile(p *settings.Problems, c *config, connector string) *composer {
	parsed := func(at, text string) *template.Template {
		t, err := template.Parse(text, connector)
		if err != nil {
			p.Wrong(at, "%v", err)
		}
		return t
	}
	made := &composer{config: c, topic: parsed("/topic", c.Topic), forwarding: compileForwarding(p, c), now: time.Now}
	if made.topic != nil && made.topic.Fixed() {
		made.fixed, _ = made.topic.Expand(new(core.Record), nil)
		p.WrongIf(!isTopicName(made.fixed), "/topic", topicNameRule)
		p.WrongIf(time.Duration(c.UnknownTopicGrace) != defaultGrace, "/unknown_topic_grace",
			"is for a topic with {fields}: while a fixed one is missing, the connector waits for it")
	}
	if c.Key != "" {
		made.key = parsed("/key", c.Key)
	}
	if c.Partition != "" {
		made.partition = parsed("/partition", c.Partition)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		at := headerPointer(name)
		if reserved := c.reservedHeader(name); reserved != "" {
			p.Wrong(at, "cannot be set: it %s", reserved)
		}
		made.headers = append(made.headers, headerTemplate{name, parsed(at, c.Headers[name])})
	}
	p.WrongIf(!isMedia(c.ContentType), "/content_type", "must be a media type, such as application/json")
	p.WrongIf(c.Format == formatRaw && c.CloudEvents.Set(), "/cloudevents", "has no effect with format raw; set format too, or leave it out")
	events, problems := c.CloudEvents.Parse("/cloudevents", connector)
	p.Add(problems)
	made.events = events
	return made
}

// rehearse makes a message of a sample record, so that what would fail for every record fails here. Each field of the
// sample is a number, which any setting can hold.
func (c *composer) rehearse(p *settings.Problems) {
	texts := append(slices.Collect(maps.Values(c.config.Headers)),
		c.config.Topic, c.config.Key, c.config.Partition, c.config.CloudEvents.Source, c.config.CloudEvents.Type)
	r := template.Sample("1", texts...)
	if _, err := c.topicOf(&r); err != nil {
		p.Wrong("/topic", "cannot be made of a sample record: %v", err)
	}
	if _, err := c.partitionOf(&r); err != nil {
		p.Wrong("/partition", "cannot be made of a sample record: %v", err)
	}
	if _, outcome := c.compose(&r, new(pad)); outcome != nil && !p.Refused() {
		p.Wrong("", "make no message of a sample record: %s", outcome.Message)
	}
}

// oneTarget says that records of one key always go to one partition, in the order in which they are sent.
func (c *composer) oneTarget() bool { return c.fixed != "" && c.key == nil && c.partition == nil }

// compose makes the message of a record, whose payload it shares; the rest of its memory is the pad's. With an outcome
// instead, the record can never be sent as it is.
func (c *composer) compose(r *core.Record, p *pad) (*producer.Message, *core.Outcome) {
	m := p.message()
	m.Time = r.CreatedAt
	if c.config.Timestamp == "now" {
		m.Time = c.now()
	}
	var err error
	if m.Topic, err = c.topicOf(r); err != nil {
		return nil, unsendable(codeBadTopic, err)
	}
	if m.Key, err = c.keyOf(r, p); err != nil {
		return nil, unsendable(codeBadKey, err)
	}
	if m.Partition, err = c.partitionOf(r); err != nil {
		return nil, unsendable(codeBadPartition, err)
	}
	var attributes []cloudevents.Attribute
	if m.Value, attributes, err = c.valueOf(r); err != nil {
		return nil, unsendable(codeBadEvent, err)
	}
	if m.Headers, err = c.headersOf(r, attributes, p); err != nil {
		return nil, unsendable(codeBadHeader, err)
	}
	return m, nil
}

func (c *composer) topicOf(r *core.Record) (string, error) {
	if c.fixed != "" {
		return c.fixed, nil
	}
	name, err := c.topic.Expand(r, nil)
	switch {
	case err != nil:
		return "", fmt.Errorf("topic: %w", err)
	case !isTopicName(name):
		return "", fmt.Errorf("topic: %.300q is no name of a topic; it %s", name, topicNameRule)
	}
	return name, nil
}

// keyOf is the message's key; nil is none, which is not the same as an empty one. Text that comes out empty is none.
func (c *composer) keyOf(r *core.Record, p *pad) ([]byte, error) {
	if c.key == nil {
		if !r.Keyed {
			return nil, nil
		}
		return p.text(r.Key), nil
	}
	text, err := c.key.Expand(r, nil)
	switch {
	case err != nil:
		return nil, fmt.Errorf("key: %w", err)
	case text == "":
		return nil, nil
	}
	return p.text(text), nil
}

func (c *composer) partitionOf(r *core.Record) (int32, error) {
	if c.partition == nil {
		return producer.ByKey, nil
	}
	text, err := c.partition.Expand(r, nil)
	if err != nil {
		return 0, fmt.Errorf("partition: %w", err)
	}
	number, err := strconv.ParseUint(text, 10, 32)
	if err != nil || number > math.MaxInt32 {
		return 0, fmt.Errorf("partition: %.100q is no number of a partition", text)
	}
	return int32(number), nil
}

// valueOf is the message's value, and the attributes that are for its headers. The value is nil, which a compacted topic
// takes for the removal of the key, when the row's payload is NULL.
func (c *composer) valueOf(r *core.Record) ([]byte, []cloudevents.Attribute, error) {
	switch c.config.Format {
	case formatBinary:
		attributes, err := c.events.Attributes(r)
		return r.Payload, attributes, err
	case formatStructured:
		event, err := c.events.AppendJSON(nil, r, c.contentType(r))
		return event, nil, err
	default:
		return r.Payload, nil, nil
	}
}

// unsendable is the outcome of a record that no message can be made of.
func unsendable(code string, why error) *core.Outcome {
	return &core.Outcome{Kind: core.Permanent, Code: code, Message: core.CleanText(why.Error())}
}
