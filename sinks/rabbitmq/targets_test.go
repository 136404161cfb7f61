package rabbitmq

import (
	"errors"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/scripts/services/proxy"
)

func sharedServer(t *testing.T) *server {
	return serverAt(t, services.RabbitMQ(t), services.RabbitMQManagement(t))
}

// TestUnroutable has records that no queue takes: the server confirms them, and they are not delivered.
func TestUnroutable(t *testing.T) {
	s := sharedServer(t)
	s.exchange("shop", "quorum", nil)
	s.do(func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare("nobody", "fanout", true, false, false, false, nil)
	})
	batch := rows(40, "a", "b", "", "c")
	for i := 0; i < len(batch); i += 4 { // all of key a
		batch[i] = with(batch[i], chosen, "nobody")
	}
	for policy, kind := range map[string]core.OutcomeKind{"retry": core.Retryable, "permanent": core.Permanent} {
		sink := opened(t, s.settings(s.address, `{"exchange":"{header:exchange|shop}","routing_key":"{type}","on_unroutable":"`+policy+`"}`))
		for i, o := range deliver(t, sink, batch) {
			switch {
			case i == 0:
				wantOutcome(t, o, kind, map[string]core.Scope{"retry": core.ScopeKey}[policy], "unroutable")
				if !strings.Contains(o.Message, "nobody") || !strings.Contains(o.Message, "OrderPlaced") {
					t.Errorf("it does not say where: %s", o.Message)
				}
			case i%4 == 0:
				wantOutcome(t, o, core.NotAttempted, core.ScopeDefault, "behind")
			case o.Kind != core.Delivered:
				t.Errorf("record %d: %+v", i, o)
			}
		}
		if n := len(s.take("shop")); n != 30 {
			t.Errorf("%d messages arrived", n)
		}
	}
	// When the settings name the target it is unroutable for all.
	sink := opened(t, s.settings(s.address, `{"exchange":"nobody","routing_key":"x"}`))
	for _, o := range deliver(t, sink, rows(3, "")) {
		wantOutcome(t, o, core.Retryable, core.ScopeDefault, "unroutable")
	}
}

// TestMissingExchange takes the exchange away from all records, and from those of one key.
func TestMissingExchange(t *testing.T) {
	s := sharedServer(t)
	s.exchange("shop", "quorum", nil)
	chosenByRows := opened(t, s.settings(s.address, `{"exchange":"{header:exchange|shop}","routing_key":"{type}"}`))
	batch := rows(20, "a", "b", "", "c")
	batch[4] = with(batch[4], chosen, "nowhere")
	for i, o := range deliver(t, chosenByRows, batch) {
		switch {
		case i == 4:
			wantOutcome(t, o, core.Retryable, core.ScopeKey, "missing_exchange")
		case i > 4 && i%4 == 0:
			wantOutcome(t, o, core.NotAttempted, core.ScopeDefault, "behind")
		case o.Kind != core.Delivered:
			t.Errorf("record %d: %+v", i, o)
		}
	}
	named := opened(t, s.settings(s.address, `{"exchange":"shop","routing_key":"{type}"}`))
	s.do(func(ch *amqp.Channel) error { return ch.ExchangeDelete("shop", false, false) })
	batch = rows(2, "a", "b")
	for _, o := range deliver(t, named, batch) {
		wantOutcome(t, o, core.Retryable, core.ScopeSink, "missing_exchange")
	}
	s.exchange("shop", "quorum", nil)
	eventually(t, named, batch)
}

// TestPassive looks for what the settings name, and says what is not there.
func TestPassive(t *testing.T) {
	s := sharedServer(t)
	s.exchange("shop", "quorum", nil)
	for changes, says := range map[string]string{
		`{"exchange":"nowhere"}`:                                                        "no exchange 'nowhere'",
		`{"exchange":"","routing_key":"no-queue"}`:                                      "no queue 'no-queue'",
		`{"topology":{"queues":[{"name":"no-queue"}]}}`:                                 "no queue 'no-queue'",
		`{"topology":{"exchanges":[{"name":"nowhere"}]}}`:                               "no exchange 'nowhere'",
		`{"exchange":"nowhere","declare":"none"}`:                                       "",
		`{"exchange":"{route}","routing_key":"no-queue"}`:                               "",
		`{"exchange":"shop"}`:                                                           "",
		`{"exchange":"","routing_key":"shop"}`:                                          "",
		`{"topology":{"queues":[{"name":"shop"}]}}`:                                     "",
		`{"topology":{"exchanges":[{"name":"amq.topic"}]}}`:                             "",
		`{"vhost":"no-vhost"}`:                                                          "no-vhost",
		`{"declare":"active","topology":{"queues":[{"name":"shop","type":"classic"}]}}`: "inequivalent arg",
	} {
		sink := configured(t, s.settings(s.address, changes))
		err := sink.Open(t.Context())
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", changes, err, says)
		}
	}
}

// TestActive makes everything, finds it the next time, and makes it again when it is lost with the connection.
func TestActive(t *testing.T) {
	s := sharedServer(t)
	p := proxy.New(t, s.address, proxy.Bytes)
	settings := s.settings(p.Addr, `{"exchange":"shop","routing_key":"{type}","declare":"active","topology":{
		"exchanges":[{"name":"shop"},{"name":"spare","type":"fanout","arguments":{"alternate-exchange":"shop"}}],
		"queues":[{"name":"classic","type":"classic","arguments":{"x-max-length":1000}},{"name":"quorum"},{"name":"stream","type":"stream"}],
		"bindings":[{"exchange":"shop","queue":"classic","routing_key":"Order*"},{"exchange":"shop","queue":"quorum","routing_key":"#"},
			{"exchange":"shop","queue":"stream","routing_key":"OrderPlaced"}]}}`)
	opened(t, settings)
	sink := opened(t, settings)
	wantDelivered(t, deliver(t, sink, rows(3, "a")))
	if n := len(s.take("quorum")); n != 3 {
		t.Errorf("%d messages", n)
	}
	s.do(func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete("quorum", false, false, false)
		return errors.Join(err, ch.ExchangeDelete("shop", false, false))
	})
	p.Away()()
	eventually(t, sink, rows(2, "a"))
	if n := len(s.take("quorum")); n != 2 {
		t.Errorf("%d messages", n)
	}
}

// TestFullQueue has a queue that refuses what it has no room for: the records wait, nothing is lost, and order holds.
func TestFullQueue(t *testing.T) {
	s := sharedServer(t)
	s.exchange("shop", "classic", amqp.Table{"x-max-length": int64(5), "x-overflow": "reject-publish"})
	sink := opened(t, s.settings(s.address, `{"exchange":"shop","routing_key":"orders"}`))
	batch := rows(20, "")
	refused, delivered := 0, 0
	for _, o := range deliver(t, sink, batch) {
		switch o.Kind {
		case core.Delivered:
			delivered++
		case core.Throttled:
			refused++
			wantOutcome(t, o, core.Throttled, core.ScopeSink, "nack")
		default:
			t.Errorf("%+v", o)
		}
	}
	if n := len(s.take("shop")); n != delivered || refused != 20-delivered || refused == 0 {
		t.Errorf("%d delivered, %d refused, %d arrived", delivered, refused, n)
	}
	wantDelivered(t, deliver(t, sink, rows(5, "")))
	o := deliver(t, sink, rows(1, ""))[0] // alone it may be its own fault
	wantOutcome(t, o, core.Retryable, core.ScopeDefault, "nack")
}

// TestOneBadRecord is about what the server closes a channel for: the culprit is buried, and its neighbours are delivered.
func TestOneBadRecord(t *testing.T) {
	s := sharedServer(t)
	s.exchange("shop", "quorum", nil)
	sink := opened(t, s.settings(s.address, `{"exchange":"shop","routing_key":"{type}","header_types":{"x-delay":"int"}}`))
	batch := rows(60, "a", "b", "")
	batch[7].ID += strings.Repeat("x", 255)                            // no message-id
	batch[20] = with(batch[20], "large", strings.Repeat("x", 200_000)) // no frame
	batch[31] = with(batch[31], strings.Repeat("n", 256), "v")
	batch[45] = with(batch[45], "x-delay", "soon")
	bad := map[int]string{7: "invalid", 20: "invalid", 31: "invalid", 45: "bad_header"}
	stopped := map[string]bool{}
	for i, o := range deliver(t, sink, batch) {
		code, isBad := bad[i]
		switch {
		case batch[i].Keyed && stopped[batch[i].Key]:
			wantOutcome(t, o, core.NotAttempted, core.ScopeDefault, "behind")
		case isBad:
			wantOutcome(t, o, core.Permanent, core.ScopeDefault, code)
			stopped[batch[i].Key] = true
		case o.Kind != core.Delivered:
			t.Errorf("record %d: %+v", i, o)
		}
	}
}
