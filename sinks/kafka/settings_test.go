package kafka

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core/settings"
)

// TestSettings gives, for each mistake, where the diagnostic points and a word of it; "warn" before it is for a warning.
func TestSettings(t *testing.T) {
	const to = `"brokers":["kafka:9092"],"topic":"orders"`
	const password = `"username":"u","password":"hunter2"`
	for text, want := range map[string]string{
		`{` + to + `}`: "",
		`{}`:           "/brokers required; /topic required",

		// brokers
		`{"brokers":[],"topic":"t"}`:                                      "/brokers empty",
		`{"brokers":["kafka"],"topic":"t"}`:                               "/brokers/0 host:port",
		`{"brokers":["kafka:0"],"topic":"t"}`:                             "/brokers/0 host:port",
		`{"brokers":["kafka:70000"],"topic":"t"}`:                         "/brokers/0 host:port",
		`{"brokers":[":9092"],"topic":"t"}`:                               "/brokers/0 host:port",
		`{"brokers":["a:1","u:hunter2@b:2"],"topic":"t"}`:                 "/brokers/1 host:port",
		`{"brokers":["SSL://kafka:9092"],"topic":"t"}`:                    "/brokers/0 scheme",
		`{"brokers":["a:1,b:2"],"topic":"t"}`:                             "/brokers/0 list",
		`{"brokers":["a:1","a:1"],"topic":"t"}`:                           "/brokers/1 twice",
		`{"brokers":["[2001:db8::1]:9092","10.0.0.1:9092"],"topic":"t"}`:  "",
		`{"brokers":["kafka:9092"],"topic":"t","client_id":"billing-eu"}`: "",

		// topic, key, partition
		`{"brokers":["k:1"],"topic":"orders.{type}"}`:           "",
		`{"brokers":["k:1"],"topic":"{connector}-{header:x|}"}`: "",
		`{"brokers":["k:1"],"topic":"a b"}`:                     "/topic letters",
		`{"brokers":["k:1"],"topic":".."}`:                      "/topic letters",
		`{"brokers":["k:1"],"topic":"orders/{type}"}`:           "/topic letters",
		`{"brokers":["k:1"],"topic":"{nope}"}`:                  "/topic no known field",
		`{"brokers":["k:1"],"topic":"{type"}`:                   "/topic without its }",
		`{` + to + `,"key":"{header:tenant}-{key}"}`:            "",
		`{` + to + `,"key":"{nope}"}`:                           "/key no known field",
		`{` + to + `,"partition":"{header:p|0}"}`:               "",
		`{` + to + `,"partition":"-1"}`:                         "/partition no number",
		`{` + to + `,"partition":"p{header:p}"}`:                "/partition no number",
		`{` + to + `,"partition":"{nope}"}`:                     "/partition no known field",

		// format
		`{` + to + `,"format":"ce_binary"}`:                                                    "",
		`{` + to + `,"format":"ce_structured","cloudevents":{"source":"/shop","type":"a.b"}}`:  "",
		`{` + to + `,"format":"avro"}`:                                                         "/format one of",
		`{` + to + `,"content_type":"application/avro"}`:                                       "",
		`{` + to + `,"content_type":"a;;"}`:                                                    "/content_type media type",
		`{` + to + `,"format":"ce_binary","cloudevents":{"source":"a b"}}`:                     "/cloudevents/source URI",
		`{` + to + `,"cloudevents":{"source":"/shop"}}`:                                        "/cloudevents no effect",
		`{` + to + `,"cloudevents":{"source":"/connectd/{connector}"}}`:                        "",
		`{` + to + `,"format":"ce_binary","cloudevents":{"type":""}}`:                          " without an id, a source or a type",
		`{` + to + `,"timestamp":"now"}`:                                                       "",
		`{` + to + `,"timestamp":"later"}`:                                                     "/timestamp one of",
		`{` + to + `,"headers":{"tenant":"{header:tenant}","É":"ü"}}`:                          "",
		`{` + to + `,"headers":{"":"x"}}`:                                                      "/headers/ no name",
		`{` + to + `,"headers":{"Connectd-Id":"x"}}`:                                           "/headers/Connectd-Id connectd sends",
		`{` + to + `,"headers":{"Content-Type":"x"}}`:                                          "/headers/Content-Type content_type",
		`{` + to + `,"headers":{"ce_id":"x"}}`:                                                 "",
		`{` + to + `,"format":"ce_binary","headers":{"ce_id":"x"}}`:                            "/headers/ce_id attribute",
		`{` + to + `,"headers":{"a":"{nope}"}}`:                                                "/headers/a no known field",
		`{` + to + `,"forward_headers":[]}`:                                                    "",
		`{` + to + `,"forward_headers":["*"]}`:                                                 "",
		`{` + to + `,"forward_headers":["*","a"]}`:                                             "/forward_headers/0 alone",
		`{` + to + `,"forward_headers":["connectd-id"]}`:                                       "/forward_headers/0 connectd sends",
		`{` + to + `,"forward_headers":["content-type"]}`:                                      "/forward_headers/0 need not",
		`{` + to + `,"forward_headers":["a"],"headers":{"a":"b"}}`:                             "/forward_headers/0 headers too",
		`{` + to + `,"forward_headers":["traceparent","baggage"],"headers":{"tenant":"acme"}}`: "",

		// delivery
		`{` + to + `,"acks":"one"}`:                                       "/acks allow_unsafe_acks",
		`{` + to + `,"acks":"none","allow_unsafe_acks":true}`:             "/acks one of",
		`{` + to + `,"acks":"one","allow_unsafe_acks":true}`:              "warn /acks lost",
		`{` + to + `,"allow_unsafe_acks":true}`:                           "warn /allow_unsafe_acks no effect",
		`{` + to + `,"idempotent":false}`:                                 "",
		`{` + to + `,"compression":"brotli"}`:                             "/compression one of",
		`{` + to + `,"compression":"zstd"}`:                               "",
		`{` + to + `,"max_batch_bytes":"1GiB"}`:                           "/max_batch_bytes 1KiB to",
		`{` + to + `,"create_topics":{}}`:                                 "",
		`{` + to + `,"create_topics":{"partitions":0}}`:                   "/create_topics/partitions 1 to",
		`{` + to + `,"unknown_topic_grace":60}`:                           "/unknown_topic_grace unit",
		`{` + to + `,"unknown_topic_grace":"5m"}`:                         "/unknown_topic_grace {fields}",
		`{"brokers":["k:1"],"topic":"{type}","unknown_topic_grace":"5m"}`: "",
		`{` + to + `,"timeouts":{"request":"0s"}}`:                        "/timeouts/request 1ms to",

		// security
		`{` + to + `,"tls":{}}`:                                                                                         "",
		`{` + to + `,"tls":{"cert_file":"a"}}`:                                                                          "/tls/key_file required",
		`{` + to + `,"tls":{"insecure_skip_verify":true}}`:                                                              "warn /tls/insecure_skip_verify ca_file",
		`{` + to + `,"tls":{},"sasl":{"mechanism":"PLAIN",` + password + `}}`:                                           "",
		`{` + to + `,"tls":{},"sasl":{"mechanism":"SCRAM-SHA-512","username":"u","password_file":"p"}}`:                 "",
		`{` + to + `,"tls":{},"sasl":{"mechanism":"hunter2",` + password + `}}`:                                         "/sasl/mechanism one of",
		`{` + to + `,"tls":{},"sasl":{"mechanism":"PLAIN","username":"u"}}`:                                             "/sasl/password required",
		`{` + to + `,"tls":{},"sasl":{"mechanism":"PLAIN","password":"hunter2"}}`:                                       "/sasl/username required",
		`{` + to + `,"tls":{},"sasl":{"mechanism":"PLAIN",` + password + `,"password_file":"p"}}`:                       "/sasl/password_file too many",
		`{` + to + `,"tls":{},"sasl":{"mechanism":"PLAIN","username":"u\u0000hunter2","password":"hunter2"}}`:           "/sasl/username NUL",
		`{` + to + `,"sasl":{"mechanism":"PLAIN",` + password + `}}`:                                                    "warn /sasl/mechanism network",
		`{` + to + `,"sasl":{"mechanism":"SCRAM-SHA-256",` + password + `}}`:                                            "warn /sasl network",
		`{"brokers":["127.0.0.1:1","localhost:2","[::1]:3"],"topic":"t","sasl":{"mechanism":"PLAIN",` + password + `}}`: "",
	} {
		checkDiagnostics(t, text, want)
	}
}

func checkDiagnostics(t *testing.T, text, want string) {
	t.Helper()
	_, _, diagnostics := parse([]byte(text), Options{Connector: "orders", Dir: "/base", Version: "1.2.3"})
	var wants []string
	if want != "" {
		wants = strings.Split(want, "; ")
	}
	if len(diagnostics) != len(wants) {
		t.Errorf("%s: %+v, want %q", text, diagnostics, want)
		return
	}
	for i, d := range diagnostics {
		rest, warning := strings.CutPrefix(wants[i], "warn ")
		if !strings.HasPrefix(rest, d.Pointer+" ") || d.Warning != warning || !strings.Contains(d.Message, rest[len(d.Pointer)+1:]) {
			t.Errorf("%s: %+v, want %q", text, d, wants[i])
		}
		if strings.Contains(fmt.Sprint(d), "hunter2") {
			t.Errorf("%s: the diagnostic shows a secret: %+v", text, d)
		}
	}
}

// Defaults are those of the documentation; some depend on what else is set.
func TestDefaults(t *testing.T) {
	c, _ := parsed(t, `{"brokers":["k:1"],"topic":"t","tls":{"ca_file":"ca.pem"},"sasl":{"mechanism":"PLAIN","username":"u","password_file":"p"}}`)
	if c.ClientID != "connectd-orders" || !c.Idempotent || c.Acks != "all" || c.MaxBatchBytes != settings.Bytes(1020<<10) || c.UnknownTopicGrace != settings.Duration(time.Minute) {
		t.Errorf("%+v", c)
	}
	if c.TLS.CAFile != "/base/ca.pem" || c.SASL.File != "/base/p" {
		t.Errorf("relative paths became %q and %q", c.TLS.CAFile, c.SASL.File)
	}
	if c, _ = parsed(t, `{"brokers":["k:1"],"topic":"t","acks":"one","allow_unsafe_acks":true}`); c.Idempotent {
		t.Error("idempotent with acks: one")
	}
}

// parsed are settings without a mistake.
func parsed(t testing.TB, text string) (*config, *composer) {
	t.Helper()
	c, made, diagnostics := parse([]byte(text), Options{Connector: "orders", Dir: "/base", Version: "1.2.3"})
	for _, d := range diagnostics {
		if !d.Warning {
			t.Fatalf("%s: %+v", text, d)
		}
	}
	return c, made
}
