package publisher

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Check returns an error for a message that the broker would refuse, since one that it refuses costs the channel or the
// connection, and with them what all others are known of. Publish calls it. Before the first connection it assumes the
// configured frame size.
//
// A text field has 255 bytes of UTF-8 at most; all properties and headers together fit one frame; a header's value is of a
// type that the protocol has, an int within 32 bits, a float finite; CC and BCC are arrays of strings; an expiration is a number of
// milliseconds; the user id is the name of the user who is logged in.
func (p *Publisher) Check(m *Message) error {
	content := &m.Publishing
	for _, field := range [...]struct{ name, value string }{
		{"exchange", m.Exchange}, {"routing key", m.RoutingKey},
		{"content type", content.ContentType}, {"content encoding", content.ContentEncoding},
		{"correlation id", content.CorrelationId}, {"reply to", content.ReplyTo}, {"expiration", content.Expiration},
		{"message id", content.MessageId}, {"type", content.Type}, {"user id", content.UserId}, {"app id", content.AppId},
	} {
		if err := checkShort(field.value); err != nil {
			return fmt.Errorf("the %s %w", field.name, err)
		}
	}
	if m.Exchange == "" && strings.HasPrefix(m.RoutingKey, directReply) {
		return errors.New("the routing key is one by which a client is answered on its own channel (direct reply-to), and no queue")
	}
	if err := p.checkProperties(content); err != nil {
		return err
	}
	size, err := headerSize(content)
	if err != nil {
		return err
	}
	if limit := int(p.frameMax.Load()); limit > 0 && size > limit {
		return fmt.Errorf("the headers and properties take %d bytes, and RabbitMQ wants at most %d (frame_max)", size, limit)
	}
	return nil
}

// directReply begins the routing keys of the default exchange with which RabbitMQ passes a message to another client's channel
// without storing it, and closes the connection if the rest is malformed. https://www.rabbitmq.com/docs/direct-reply-to
const directReply = "amq.rabbitmq.reply-to."

func (p *Publisher) checkProperties(content *amqp.Publishing) error {
	const longest = math.MaxUint32 // of RabbitMQ, in milliseconds
	if text := content.Expiration; text != "" {
		if n, err := strconv.ParseUint(text, 10, 64); err != nil || n > longest {
			return fmt.Errorf("the expiration is no number of milliseconds from 0 to %d", uint32(longest))
		}
	}
	if user := p.user.Load(); content.UserId != "" && user != nil && content.UserId != *user {
		return errors.New("the user id is not the name of the user who is logged in")
	}
	if content.DeliveryMode > amqp.Persistent {
		return fmt.Errorf("the delivery mode is %d", content.DeliveryMode)
	}
	if !content.Timestamp.IsZero() && content.Timestamp.Unix() < 0 {
		return errors.New("the timestamp is before 1970")
	}
	for _, name := range [...]string{"CC", "BCC"} {
		value, ok := content.Headers[name]
		if !ok {
			continue
		}
		array, ok := value.([]any)
		for _, element := range array {
			if text, isText := element.(string); !isText || checkShort(text) != nil {
				ok = false
			}
		}
		if !ok {
			return fmt.Errorf("the header %s is no array of routing keys", name)
		}
	}
	return nil
}

func checkShort(text string) error {
	switch {
	case len(text) > math.MaxUint8:
		return fmt.Errorf("has %d bytes, at most %d are possible", len(text), math.MaxUint8)
	case !utf8.ValidString(text):
		return errors.New("is not UTF-8")
	}
	return nil
}

// checkFinite refuses what Erlang has no numbers for: RabbitMQ closes the connection when it gets one.
func checkFinite(f float64) error {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return errors.New("is no finite number")
	}
	return nil
}

// headerSize is the size of a message's content header frame. AMQP 0-9-1, sections 4.2.3, 4.2.5 and 4.2.6.1.
func headerSize(content *amqp.Publishing) (int, error) {
	const (
		frame = 1 + 2 + 4 + 1 // type, channel, size, end
		fixed = 2 + 2 + 8 + 2 // class, weight, body size, flags
		mark  = 64            // what MarkRepeat may add
	)
	size := frame + fixed + mark
	for _, text := range [...]string{
		content.ContentType, content.ContentEncoding, content.CorrelationId, content.ReplyTo, content.Expiration,
		content.MessageId, content.Type, content.UserId, content.AppId,
	} {
		size += 1 + len(text)
	}
	size += 1 + 1 + 8 // delivery mode, priority, timestamp
	table, err := tableSize(content.Headers, 0)
	return size + table, err
}

// deepest bounds tables and arrays within each other.
const deepest = 32

func tableSize(table amqp.Table, depth int) (int, error) {
	size := 4
	for name, value := range table {
		if err := checkShort(name); err != nil {
			return 0, fmt.Errorf("the name of a header %w", err)
		}
		n, err := valueSize(value, depth)
		if err != nil {
			return 0, fmt.Errorf("the header %q %w", name, err)
		}
		size += 1 + len(name) + n
	}
	return size, nil
}

func valueSize(value any, depth int) (int, error) {
	const kind = 1
	if depth > deepest {
		return 0, fmt.Errorf("is nested more than %d deep", deepest)
	}
	switch v := value.(type) {
	case nil:
		return kind, nil
	case bool, byte, int8:
		return kind + 1, nil
	case int16, uint16:
		return kind + 2, nil
	case int:
		if v < math.MinInt32 || v > math.MaxInt32 {
			return 0, errors.New("is an int that needs more than 32 bits")
		}
		return kind + 4, nil
	case float32:
		return kind + 4, checkFinite(float64(v))
	case float64:
		return kind + 8, checkFinite(v)
	case int32, uint32:
		return kind + 4, nil
	case int64:
		return kind + 8, nil
	case time.Time:
		return kind + 8, nil
	case amqp.Decimal:
		return kind + 5, nil
	case string:
		return kind + 4 + len(v), nil
	case []byte:
		return kind + 4 + len(v), nil
	case []any:
		size := kind + 4
		for _, element := range v {
			n, err := valueSize(element, depth+1)
			if err != nil {
				return 0, err
			}
			size += n
		}
		return size, nil
	case amqp.Table:
		n, err := tableSize(v, depth+1)
		return kind + n, err
	}
	return 0, fmt.Errorf("has a value of type %T, which the protocol does not know", value)
}
