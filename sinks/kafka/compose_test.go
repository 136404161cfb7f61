package kafka

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/kafka/producer"
)

// order is the row of the documentation.
func order() core.Record {
	return core.Record{
		ID: "c-1", Key: "order-7", Keyed: true, Route: "orders", Type: "OrderPlaced", Payload: []byte(`{"total":12.50}`),
		Headers:   []core.Header{{Name: "traceparent", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}},
		CreatedAt: time.Date(2026, 3, 29, 1, 30, 0, 123_456_000, time.UTC), Seq: 1, Deliveries: 1, Epoch: 3,
	}
}

// settingsWith are good settings and others.
func settingsWith(others string) string {
	return `{"brokers":["kafka:9092"]` + others + `}`
}

func composed(t *testing.T, settings string, r core.Record) *producer.Message {
	t.Helper()
	_, c := parsed(t, settings)
	c.now = func() time.Time { return time.Unix(1774747802, 0) }
	m, outcome := c.compose(&r, new(pad))
	if outcome != nil {
		t.Fatalf("%s: %+v", settings, *outcome)
	}
	return m
}

// text is a message as the tests write it: topic, partition, key, headers, value.
func text(m *producer.Message) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%d ", m.Topic, m.Partition)
	if m.Key == nil {
		b.WriteString("no key")
	} else {
		fmt.Fprintf(&b, "%q", m.Key)
	}
	for _, h := range m.Headers {
		fmt.Fprintf(&b, "\n%s: %s", h.Name, h.Value)
	}
	if m.Value == nil {
		b.WriteString("\nno value")
	} else {
		fmt.Fprintf(&b, "\n%s", m.Value)
	}
	return b.String()
}

const trace = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestMessages(t *testing.T) {
	plain := func(r *core.Record) { r.Headers, r.Type, r.Route = nil, "", "" }
	const plainHeaders = "connectd-id: c-1\nconnectd-delivery: 1\nconnectd-epoch: 3\nconnectd-created-at: 2026-03-29T01:30:00.123456Z\n"
	const structured = `{"specversion":"1.0","id":"c-1","source":"/connectd/orders","type":"OrderPlaced","time":"2026-03-29T01:30:00.123456Z",` +
		`"connectddelivery":1,"connectdepoch":"3","subject":"order-7","partitionkey":"order-7","connectdroute":"orders",` +
		`"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","datacontenttype":"application/json","data":{"total":12.50}}`
	for _, test := range []struct {
		settings string
		change   func(*core.Record)
		want     string
	}{
		{`,"topic":"orders"`, nil, "orders/-1 \"order-7\"\nconnectd-id: c-1\nconnectd-type: OrderPlaced\nconnectd-route: orders\nconnectd-delivery: 1\n" +
			"connectd-epoch: 3\nconnectd-created-at: 2026-03-29T01:30:00.123456Z\n" + trace + "\n{\"total\":12.50}"},
		{`,"topic":"orders.{type}"`, func(r *core.Record) { plain(r); r.Type = "a_B-1" },
			"orders.a_B-1/-1 \"order-7\"\nconnectd-id: c-1\nconnectd-type: a_B-1\n" + strings.TrimPrefix(plainHeaders, "connectd-id: c-1\n") + `{"total":12.50}`},

		// keys and values: what is NULL is not what is empty
		{`,"topic":"t"`, func(r *core.Record) { plain(r); r.Key, r.Keyed = "", false }, "t/-1 no key\n" + plainHeaders + `{"total":12.50}`},
		{`,"topic":"t"`, func(r *core.Record) { plain(r); r.Key = "" }, "t/-1 \"\"\n" + plainHeaders + `{"total":12.50}`},
		{`,"topic":"t"`, func(r *core.Record) { plain(r); r.Payload = nil }, "t/-1 \"order-7\"\n" + plainHeaders + "no value"},
		{`,"topic":"t"`, func(r *core.Record) { plain(r); r.Payload = []byte{} }, "t/-1 \"order-7\"\n" + plainHeaders},
		{`,"topic":"t","key":"{header:tenant|acme}:{key|none}"`, plain, "t/-1 \"acme:order-7\"\n" +
			strings.Replace(plainHeaders, "\n", "\nconnectd-key: order-7\n", 1) + `{"total":12.50}`},
		{`,"topic":"t","key":"{key|none}"`, func(r *core.Record) { plain(r); r.Key, r.Keyed = "", false }, "t/-1 \"none\"\n" + plainHeaders + `{"total":12.50}`},
		{`,"topic":"t","key":"{type|}"`, plain, "t/-1 no key\n" + strings.Replace(plainHeaders, "\n", "\nconnectd-key: order-7\n", 1) + `{"total":12.50}`},
		{`,"topic":"t","partition":"{header:p|3}"`, plain, "t/3 \"order-7\"\n" + plainHeaders + `{"total":12.50}`},

		// headers
		{`,"topic":"t"`, func(r *core.Record) { plain(r); r.CreatedAt = time.Time{} }, "t/-1 \"order-7\"\nconnectd-id: c-1\nconnectd-delivery: 1\nconnectd-epoch: 3\n" + `{"total":12.50}`},
		{`,"topic":"t"`, func(r *core.Record) { plain(r); r.Deliveries = 2 }, "t/-1 \"order-7\"\nconnectd-id: c-1\nconnectd-delivery: 2\n" +
			"connectd-possible-duplicate: true\nconnectd-epoch: 3\nconnectd-created-at: 2026-03-29T01:30:00.123456Z\n" + `{"total":12.50}`},
		{`,"topic":"t","headers":{"b":"{id}","a":"ü"}`, func(r *core.Record) {
			plain(r)
			r.Headers = []core.Header{{Name: "x", Value: "1"}, {Name: "b", Value: "row"}, {Name: "x", Value: "2"}, {Name: "Connectd-Id", Value: "forged"},
				{Name: "Content-Type", Value: "text/plain"}, {Name: "ce_id", Value: "kept"}}
		}, "t/-1 \"order-7\"\n" + plainHeaders + "content-type: text/plain\na: ü\nb: c-1\nx: 1\nx: 2\nce_id: kept\n" + `{"total":12.50}`},
		{`,"topic":"t","forward_headers":["x"],"content_type":"application/avro"`, func(r *core.Record) {
			plain(r)
			r.Headers = []core.Header{{Name: "y", Value: "1"}, {Name: "x", Value: "2"}, {Name: "content-type", Value: "text/plain"}}
		}, "t/-1 \"order-7\"\n" + plainHeaders + "content-type: application/avro\nx: 2\n" + `{"total":12.50}`},
		{`,"topic":"t","forward_headers":[]`, func(r *core.Record) { plain(r); r.Headers = order().Headers },
			"t/-1 \"order-7\"\n" + plainHeaders + `{"total":12.50}`},

		// CloudEvents
		{`,"topic":"t","format":"ce_binary"`, func(r *core.Record) {
			r.Headers = append(r.Headers, core.Header{Name: "ce_source", Value: "forged"})
		}, "t/-1 \"order-7\"\nce_specversion: 1.0\nce_id: c-1\nce_source: /connectd/orders\nce_type: OrderPlaced\nce_time: 2026-03-29T01:30:00.123456Z\n" +
			"ce_connectddelivery: 1\nce_connectdepoch: 3\nce_subject: order-7\nce_partitionkey: order-7\nce_connectdroute: orders\n" +
			"ce_" + trace + "\ncontent-type: application/json\n" + trace + "\n{\"total\":12.50}"},
		{`,"topic":"t","format":"ce_structured","forward_headers":[]`, nil,
			"t/-1 \"order-7\"\ncontent-type: application/cloudevents+json; charset=UTF-8\n" + structured},
	} {
		r := order()
		if test.change != nil {
			test.change(&r)
		}
		if got := text(composed(t, settingsWith(test.settings), r)); got != test.want {
			t.Errorf("%s: the message is\n%s\nwant\n%s", test.settings, got, test.want)
		}
	}
}

func TestTimes(t *testing.T) {
	if m := composed(t, settingsWith(`,"topic":"t"`), order()); !m.Time.Equal(order().CreatedAt) {
		t.Errorf("created: %v", m.Time)
	}
	if m := composed(t, settingsWith(`,"topic":"t","timestamp":"now"`), order()); m.Time.Unix() != 1774747802 {
		t.Errorf("now: %v", m.Time)
	}
}

// What no message can be made of is buried with its reason, which names the field and no more.
func TestUnsendable(t *testing.T) {
	for settings, want := range map[string]string{
		`,"topic":"{header:topic}"`:                                                 "bad_topic topic: the record has no header",
		`,"topic":"orders.{type}"`:                                                  "bad_topic topic: \"orders.no name\" is no name",
		`,"topic":"{type|x}","key":"{header:k}"`:                                    "bad_topic topic: \"no name\" is no name",
		`,"topic":"t","key":"{header:k}"`:                                           "bad_key key: the record has no header",
		`,"topic":"t","partition":"{header:p}"`:                                     "bad_partition partition: the record has no header",
		`,"topic":"t","partition":"{id}"`:                                           "bad_partition partition: \"c-1\" is no number",
		`,"topic":"t","partition":"{header:p|4294967295}"`:                          "bad_partition partition: \"4294967295\" is no number",
		`,"topic":"t","headers":{"a":"{header:a}"}`:                                 "bad_header header a: the record has no header",
		`,"topic":"t","format":"ce_binary","cloudevents":{"type":"{header:a}"}`:     "bad_event cloudevents.type: the record has no header",
		`,"topic":"t","format":"ce_structured","cloudevents":{"type":"{header:a}"}`: "bad_event cloudevents.type: the record has no header",
	} {
		_, c := parsed(t, settingsWith(settings))
		r := order()
		r.Type = "no name"
		_, outcome := c.compose(&r, new(pad))
		if outcome == nil || outcome.Kind != core.Permanent || !strings.HasPrefix(outcome.Code+" "+outcome.Message, want) {
			t.Errorf("%s: %+v, want %s", settings, outcome, want)
		}
	}
}

func TestTopicNames(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "A.b_c-9": true, strings.Repeat("a", 249): true, "...": true,
		"": false, ".": false, "..": false, "a b": false, "a/b": false, "é": false, "a\x00": false, strings.Repeat("a", 250): false,
	} {
		if isTopicName(name) != want {
			t.Errorf("%.20q is a topic's name: %v", name, !want)
		}
	}
}

// What was taken from a pad stays when more is taken, and does not grow into what comes after it.
func TestPad(t *testing.T) {
	p := new(pad)
	var texts [][]byte
	for i := range 5000 {
		texts = append(texts, p.text(fmt.Sprint("text ", i)))
	}
	_ = append(texts[7], "more"...)
	for i, got := range texts {
		if want := fmt.Sprint("text ", i); string(got) != want {
			t.Fatalf("text %d became %q", i, got)
		}
	}
	if large := bytes.Repeat([]byte("x"), 3*bytesPiece); !bytes.Equal(p.text(string(large)), large) {
		t.Error("a large text did not come back")
	}
	if empty := new(pad).text(""); empty == nil {
		t.Error("an empty text is nil")
	}
	first := p.mark(2)
	p.header("a", "1")
	one := p.since(first)
	for range headersPiece {
		p.mark(1)
		p.header("b", "2")
	}
	if len(one) != 1 || one[0].Name != "a" || string(one[0].Value) != "1" {
		t.Errorf("headers became %v", one)
	}
}
