package rabbitmq

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/rabbitmq/publisher"
)

// order is a row with everything.
func order() core.Record {
	return core.Record{
		ID: "c-1", Key: "order-7", Keyed: true, Route: "orders", Type: "OrderPlaced", Payload: []byte(`{"total":12.50}`),
		Headers:   []core.Header{{Name: "traceparent", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}},
		CreatedAt: time.Date(2026, 3, 29, 1, 30, 0, 123_456_000, time.UTC), Seq: 9, Deliveries: 1, Epoch: 3,
	}
}

func composed(t *testing.T, changes string, r core.Record) *publisher.Message {
	t.Helper()
	_, made := parsed(t, changes)
	m, outcome := made.compose(&r)
	if outcome != nil {
		t.Fatalf("%+v", *outcome)
	}
	return m
}

func wantHeaders(t *testing.T, got, want amqp.Table) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("headers are\n%#v\nwant\n%#v", got, want)
	}
}

func TestMessage(t *testing.T) {
	m := composed(t, `{"exchange":"shop","routing_key":"{type}.{header:tenant|none}"}`, order())
	if m.Exchange != "shop" || m.RoutingKey != "OrderPlaced.none" || !m.Mandatory || m.Key != "order-7" || !m.Keyed {
		t.Errorf("%+v", m)
	}
	p := m.Publishing
	wantHeaders(t, p.Headers, amqp.Table{
		"traceparent":  "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"connectd-key": "order-7", "connectd-route": "orders", "connectd-delivery": int64(1), "connectd-epoch": int64(3),
		"connectd-created-at": "2026-03-29T01:30:00.123456Z",
	})
	if p.DeliveryMode != amqp.Persistent || p.MessageId != "c-1" || p.Type != "OrderPlaced" || p.ContentType != "application/json" ||
		p.AppId != "connectd/orders" || !p.Timestamp.Equal(order().CreatedAt) || string(p.Body) != `{"total":12.50}` || p.UserId != "" {
		t.Errorf("%+v", p)
	}
	r := order()
	r.Deliveries, r.Key, r.Keyed, r.Type, r.CreatedAt = 2, "", false, "", time.Time{}
	p = composed(t, `{}`, r).Publishing
	if p.Headers["connectd-possible-duplicate"] != true || p.Headers["connectd-key"] != nil || p.Headers["connectd-created-at"] != nil ||
		p.Type != "" || !p.Timestamp.IsZero() {
		t.Errorf("%+v", p)
	}
}

func TestProperties(t *testing.T) {
	r := order()
	r.Headers = []core.Header{{Name: "Content-Type", Value: "text/plain"}, {Name: "correlation", Value: "42"}, {Name: "prio", Value: "7"}}
	p := composed(t, `{"properties":{"type":"x.{type}","correlation_id":"{header:correlation|}","reply_to":"answers","app_id":"shop",
		"content_encoding":"gzip","priority":"{header:prio}","expiration":"60000"}}`, r).Publishing
	if p.Type != "x.OrderPlaced" || p.CorrelationId != "42" || p.ReplyTo != "answers" || p.AppId != "shop" || p.ContentEncoding != "gzip" ||
		p.Priority != 7 || p.Expiration != "60000" || p.ContentType != "text/plain" {
		t.Errorf("%+v", p)
	}
	if _, there := p.Headers["Content-Type"]; there {
		t.Error("the content type is a header too")
	}
	if p := composed(t, `{"content_type":"application/x-order"}`, r).Publishing; p.ContentType != "application/x-order" {
		t.Errorf("content type %q", p.ContentType)
	}
}

func TestHeaders(t *testing.T) {
	r := order()
	r.Headers = []core.Header{
		{Name: "a", Value: "1"}, {Name: "a", Value: "2"}, {Name: "x-delay", Value: "5000"}, {Name: "half", Value: "0.5"}, {Name: "yes", Value: "true"},
		{Name: "CC", Value: "elsewhere"}, {Name: "BCC", Value: "elsewhere"}, {Name: "connectd-key", Value: "forged"}, {Name: "Connectd-Epoch", Value: "9"},
		{Name: "set", Value: "by the row"},
	}
	own := func(h amqp.Table) amqp.Table {
		describe(h, &r)
		return h
	}
	const types = `"header_types":{"x-delay":"int","half":"float","yes":"bool","n":"int"}`
	got := composed(t, `{`+types+`,"headers":{"set":"{type}/{key}","n":"12"}}`, r).Publishing.Headers
	wantHeaders(t, got, own(amqp.Table{"a": "1", "x-delay": int64(5000), "half": 0.5, "yes": true, "set": "OrderPlaced/order-7", "n": int64(12)}))
	wantHeaders(t, composed(t, `{"forward_headers":["half"]}`, r).Publishing.Headers, own(amqp.Table{"half": "0.5"}))
	wantHeaders(t, composed(t, `{"forward_headers":[]}`, r).Publishing.Headers, own(amqp.Table{}))
}

// TestUnsendable makes no message of what cannot be sent as it is, and says why.
func TestUnsendable(t *testing.T) {
	with := func(name, value string) core.Record {
		r := order()
		r.Headers = append(r.Headers, core.Header{Name: name, Value: value})
		return r
	}
	large := order()
	large.Payload = make([]byte, 11)
	nowhere, untyped := order(), order()
	nowhere.Route, untyped.Type = "", ""
	for _, u := range []struct {
		changes    string
		r          core.Record
		code, says string
	}{
		{`{}`, nowhere, "bad_routing_key", "routing_key: the record has no route"},
		{`{"exchange":"{header:tenant}"}`, order(), "bad_exchange", `no header "tenant"`},
		{`{"exchange":"{header:tenant|}"}`, order(), "bad_exchange", "names no exchange"},
		{`{"exchange":"{header:tenant}"}`, with("tenant", ""), "bad_exchange", "names no exchange"},
		{`{"properties":{"priority":"{header:p|}"}}`, with("p", "300"), "bad_property", "priority: is no whole number"},
		{`{"properties":{"expiration":"{header:e|}"}}`, with("e", "soon"), "bad_property", "expiration: is no number of milliseconds"},
		{`{"header_types":{"n":"int"}}`, with("n", "many"), "bad_header", `header "n" is no int`},
		{`{"header_types":{"n":"float"}}`, with("n", "NaN"), "bad_header", `header "n" is no float`},
		{`{"header_types":{"n":"float"}}`, with("n", "-Inf"), "bad_header", `header "n" is no float`},
		{`{"header_types":{"n":"float"}}`, with("n", "1e999"), "bad_header", `header "n" is no float`},
		{`{"header_types":{"n":"bool"}}`, with("n", "yes"), "bad_header", `header "n" is no bool`},
		{`{"headers":{"n":"{header:absent}"}}`, order(), "bad_header", `header "n": the record has no`},
		{`{"max_message_bytes":"10B"}`, large, "too_large", "11 bytes"},
		{`{"format":"ce_binary"}`, untyped, "bad_event", "no type"},
		{`{"format":"ce_structured"}`, untyped, "bad_event", "no type"},
	} {
		_, made := parsed(t, u.changes)
		_, outcome := made.compose(&u.r)
		if outcome == nil || outcome.Kind != core.Permanent || outcome.Code != u.code || !strings.Contains(outcome.Message, u.says) {
			t.Errorf("%s: %+v, want %s, %s", u.changes, outcome, u.code, u.says)
		}
	}
}

func TestEvents(t *testing.T) {
	r := order()
	r.Deliveries = 2
	p := composed(t, `{"format":"ce_binary","forward_headers":[]}`, r).Publishing
	wantHeaders(t, p.Headers, amqp.Table{
		"cloudEvents_specversion": "1.0", "cloudEvents_id": "c-1", "cloudEvents_source": "/connectd/orders", "cloudEvents_type": "OrderPlaced",
		"cloudEvents_time": "2026-03-29T01:30:00.123456Z", "cloudEvents_subject": "order-7", "cloudEvents_partitionkey": "order-7",
		"cloudEvents_connectdroute": "orders", "cloudEvents_connectddelivery": int64(2), "cloudEvents_connectdepoch": "3",
		"cloudEvents_connectdduplicate": true, "cloudEvents_traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	})
	if p.ContentType != "application/json" || string(p.Body) != `{"total":12.50}` {
		t.Errorf("%q %s", p.ContentType, p.Body)
	}
	p = composed(t, `{"format":"ce_structured","forward_headers":[]}`, r).Publishing
	var event map[string]any
	if err := json.Unmarshal(p.Body, &event); err != nil || event["id"] != "c-1" || event["datacontenttype"] != "application/json" {
		t.Errorf("%v, %s", err, p.Body)
	}
	if p.ContentType != "application/cloudevents+json" || len(p.Headers) != 0 || p.MessageId != "c-1" {
		t.Errorf("%q, %v", p.ContentType, p.Headers)
	}
}

// TestRepeatIsMarked is about a message that is published again within one call.
func TestRepeatIsMarked(t *testing.T) {
	for format, header := range map[string]string{
		formatRaw: "connectd-possible-duplicate", formatStructured: "connectd-possible-duplicate", formatBinary: "cloudEvents_connectdduplicate",
	} {
		_, made := parsed(t, `{"format":"`+format+`"}`)
		r := order()
		m, _ := made.compose(&r)
		if m.Publishing.Headers[header] != nil {
			t.Errorf("%s: the first send is marked", format)
		}
		if made.markRepeat(&m.Publishing); m.Publishing.Headers[header] != true {
			t.Errorf("%s: %v", format, m.Publishing.Headers)
		}
	}
}

func TestLanes(t *testing.T) {
	a, b := order(), order()
	b.ID = "c-2"
	if lane(&a) != lane(&b) {
		t.Error("a key has two lanes")
	}
	a.Keyed, b.Keyed = false, false
	if lane(&a) == lane(&b) {
		t.Error("records without a key have one lane")
	}
}
