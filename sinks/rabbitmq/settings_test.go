package rabbitmq

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/connectd/connectd/core"
)

// parsed are settings that must be right, warnings aside.
func parsed(t *testing.T, changes string) (*config, *composer) {
	t.Helper()
	c, made, diagnostics := parse(merged(t, `{"urls":["amqp://localhost"]}`, changes), Options{Connector: "orders", Dir: "/etc/connectd", Version: "1.0.0"})
	for _, d := range diagnostics {
		if !d.Warning {
			t.Fatalf("%s %s", d.Pointer, d.Message)
		}
	}
	return c, made
}

// merged is the settings with others in their place.
func merged(t testing.TB, base, changes string) []byte {
	t.Helper()
	var all map[string]json.RawMessage
	for _, text := range []string{base, changes} {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(err)
		}
	}
	return must(json.Marshal(all))
}

func TestDefaults(t *testing.T) {
	c, made := parsed(t, `{"urls":["amqp://localhost","amqp://127.0.0.1:5673","amqp://[::1]"],"password_file":"","tls":{"ca_file":"ca.pem"}}`)
	if got := c.endpoints(); !slices.Equal(got, []string{"localhost:5672", "127.0.0.1:5673", "[::1]:5672"}) {
		t.Errorf("endpoints %q", got)
	}
	if c.Username != "guest" || c.Value.Reveal() != "guest" || c.ConnectionName != "connectd-orders" || c.TLS.CAFile != "/etc/connectd/ca.pem" {
		t.Errorf("%q as %q, %q", c.Username, c.ConnectionName, c.TLS.CAFile)
	}
	if made.fixed != (fixed{exchange: true}) {
		t.Errorf("fixed: %+v", made.fixed)
	}
	c, _ = parsed(t, `{"urls":["amqps://rabbit.example.com"],"sasl":"external","tls":{"cert_file":"/c.pem","key_file":"/k.pem"}}`)
	if got := c.endpoints(); !c.secure() || got[0] != "rabbit.example.com:5671" || c.Username != "" {
		t.Errorf("%q, %v, %q", got, c.secure(), c.Username)
	}
}

// TestWrongSettings names each mistake by its place, and shows nothing of what is there.
func TestWrongSettings(t *testing.T) {
	for _, w := range []struct{ changes, pointer, says string }{
		{`{"urls":[]}`, "/urls", "must not be empty"},
		{`{"urls":["localhost:5672"]}`, "/urls/0", "must be a URL"},
		{`{"urls":["http://hunter2"]}`, "/urls/0", "must be a URL"},
		{`{"urls":["amqp://hunter2:%zz@host"]}`, "/urls/0", "must be a URL"},
		{`{"urls":["amqp://u:hunter2@host"]}`, "/urls/0", "settings of their own"},
		{`{"urls":["amqp://localhost/hunter2"]}`, "/urls/0", "vhost"},
		{`{"urls":["amqp://localhost:99999"]}`, "/urls/0", "port"},
		{`{"urls":["amqp://localhost:0"]}`, "/urls/0", "port"},
		{`{"urls":["amqp://localhost","amqps://localhost"]}`, "/urls/1", "as the first"},
		{`{"urls":["amqp://rabbit.example.com"]}`, "/username", "is required"},
		{`{"username":"hunter2"}`, "/password", "is required"},
		{`{"username":"u","password":"hunter2","password_file":"/f"}`, "/password_file", "one too many"},
		{`{"username":"u\u0000","password":"hunter2"}`, "/username", "NUL"},
		{`{"sasl":"external"}`, "/sasl", "amqps"},
		{`{"urls":["amqps://localhost"],"sasl":"external"}`, "/tls/cert_file", "required"},
		{`{"urls":["amqps://localhost"],"sasl":"external","username":"u","tls":{"cert_file":"/c","key_file":"/k"}}`, "/username", "sasl plain"},
		{`{"urls":["amqps://localhost"],"tls":{"cert_file":"/c"}}`, "/tls/key_file", "is required"},
		{`{"exchange":"{nothing}"}`, "/exchange", "no known field"},
		{`{"routing_key":"{"}`, "/routing_key", "without its }"},
		{`{"exchange":"` + strings.Repeat("x", 256) + `"}`, "/exchange", "255"},
		{`{"on_unroutable":"hunter2"}`, "/on_unroutable", "one of"},
		{`{"exchange":"shop","on_missing_exchange":"permanent"}`, "/on_missing_exchange", "with {fields}"},
		{`{"properties":{"priority":"high"}}`, "/properties/priority", "0 to 255"},
		{`{"properties":{"priority":"256"}}`, "/properties/priority", "0 to 255"},
		{`{"properties":{"expiration":"abc"}}`, "/properties/expiration", "milliseconds"},
		{`{"properties":{"expiration":"-1"}}`, "/properties/expiration", "milliseconds"},
		{`{"properties":{"reply_to":"amq.rabbitmq.reply-to"}}`, "/properties/reply_to", "own"},
		{`{"properties":{"reply_to":"{"}}`, "/properties/reply_to", "without its }"},
		{`{"headers":{"CC":"q"}}`, "/headers/CC", "cannot be set"},
		{`{"headers":{"Content-Type":"x"}}`, "/headers/Content-Type", "content_type"},
		{`{"headers":{"connectd-key":"x"}}`, "/headers/connectd-key", "connectd sends"},
		{`{"headers":{"":"x"}}`, "/headers/", "1 to 255"},
		{`{"headers":{"n":"many"},"header_types":{"n":"int"}}`, "/headers/n", "is no int"},
		{`{"format":"ce_binary","headers":{"cloudEvents_id":"x"}}`, "/headers/cloudEvents_id", "CloudEvent"},
		{`{"header_types":{"n":"hunter2"}}`, "/header_types/n", "int, float, bool"},
		{`{"forward_headers":["a","*"]}`, "/forward_headers/1", "alone"},
		{`{"forward_headers":["BCC"]}`, "/forward_headers/0", "cannot be forwarded"},
		{`{"forward_headers":["a"],"headers":{"a":"b"}}`, "/forward_headers/0", "set in headers"},
		{`{"declare":"active"}`, "/topology", "is required"},
		{`{"declare":"none","topology":{"queues":[{"name":"q"}]}}`, "/topology", "no effect"},
		{`{"topology":{"bindings":[{"exchange":"x","queue":"q"}]}}`, "/topology/bindings", "declare active"},
		{`{"declare":"active","topology":{"queues":[{"name":"amq.q"}]}}`, "/topology/queues/0/name", "server's own"},
		{`{"topology":{"queues":[{"name":"q","arguments":{"x-queue-type":"stream"}}]}}`, "/topology/queues/0/arguments/x-queue-type", "type"},
		{`{"topology":{"queues":[{"name":"q","type":"hunter2"}]}}`, "/topology/queues/0/type", "one of"},
		{`{"reconnect_backoff":{"min":"1m"}}`, "/reconnect_backoff/min", "not be above"},
		{`{"format":"ce_binary","cloudevents":{"source":"a b"}}`, "/cloudevents/source", "URI reference"},
		{`{"cloudevents":{"type":"hunter2"}}`, "/cloudevents", "no effect"},
		{`{"header_types":{"n":"int"},"forward_headers":["m"]}`, "/header_types/n", "no effect"},
		{`{"topology":{"queues":[{"name":"q","arguments":{"x-max-length":5}}]}}`, "/topology/queues/0/arguments", "declare active"},
		{`{"topology":{"exchanges":[{"name":"x","arguments":{"alternate-exchange":"y"}}]}}`, "/topology/exchanges/0/arguments", "declare active"},
		{`{"heartbeat":"1ms"}`, "/heartbeat", "must be"},
		{`{"heartbeat":"1500ms"}`, "/heartbeat", "whole seconds"},
	} {
		_, _, diagnostics := parse(merged(t, `{"urls":["amqp://localhost"]}`, w.changes), Options{})
		found := slices.ContainsFunc(diagnostics, func(d core.Diagnostic) bool {
			return !d.Warning && d.Pointer == w.pointer && strings.Contains(d.Message, w.says)
		})
		if !found {
			t.Errorf("%s: no %q at %s: %+v", w.changes, w.says, w.pointer, diagnostics)
		}
		for _, d := range diagnostics {
			if strings.Contains(d.Message, "hunter2") {
				t.Errorf("%s: %s shows a value", w.changes, d.Message)
			}
		}
	}
}

func TestWarnings(t *testing.T) {
	for changes, pointer := range map[string]string{
		`{"urls":["amqp://rabbit.example.com"],"username":"u","password":"p"}`: "/urls/0",
		`{"tls":{"ca_file":"/ca.pem"}}`:                                        "/tls",
		`{"urls":["amqps://localhost"],"tls":{"insecure_skip_verify":true}}`:   "/tls/insecure_skip_verify",
	} {
		_, _, diagnostics := parse(merged(t, `{"urls":["amqp://localhost"]}`, changes), Options{})
		if len(diagnostics) != 1 || !diagnostics[0].Warning || diagnostics[0].Pointer != pointer {
			t.Errorf("%s: %+v", changes, diagnostics)
		}
	}
}

func TestArguments(t *testing.T) {
	c, _ := parsed(t, `{"declare":"active","topology":{"queues":[{"name":"q","arguments":
		{"x-max-length":5,"x-max-length-bytes":"7","x-overflow":"reject-publish","x-single-active-consumer":"true","x-max-age":"7D"}}]}}`)
	got := table(c.Topology.Queues[0].Arguments)
	for name, want := range map[string]any{"x-max-length": int64(5), "x-max-length-bytes": int64(7), "x-overflow": "reject-publish",
		"x-single-active-consumer": true, "x-max-age": "7D"} {
		if got[name] != want {
			t.Errorf("%s is %#v", name, got[name])
		}
	}
}
