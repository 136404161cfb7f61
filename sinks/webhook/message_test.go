package webhook

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/webhook/signature"
)

// order is a record with a value in every field.
func order() core.Record {
	return core.Record{
		ID: "c-1", Key: "order-7", Keyed: true, Route: "orders", Type: "OrderPlaced", Payload: []byte(`{"total":12.50}`),
		Headers:   []core.Header{{Name: "traceparent", Value: "00-1-2-01"}, {Name: "tenant", Value: "t1"}},
		CreatedAt: time.Date(2026, 3, 29, 3, 30, 0, 123_456_789, time.FixedZone("CEST", 2*3600)), Seq: 1, Deliveries: 1, Epoch: 3,
	}
}

// composing returns a composer for settings, which may have warnings.
func composing(t testing.TB, settings string) *composer {
	t.Helper()
	o := Options{Connector: "shop", Dir: "/base", Version: "1.2.3"}
	c, diagnostics := parse([]byte(settings), o)
	for _, d := range diagnostics {
		if !d.Warning {
			t.Fatalf("%s: %+v", settings, d)
		}
	}
	made, err := newComposer(&c, o)
	if err != nil {
		t.Fatalf("%s: %v", settings, err)
	}
	return made
}

// composed makes the message of one record.
func composed(t testing.TB, settings string, r core.Record) *message {
	t.Helper()
	m, outcome := composing(t, settings).compose([]core.Record{r}, []int{0})
	if outcome != nil {
		t.Fatalf("%s: %+v", settings, *outcome)
	}
	return m
}

// wantUnsendable wants the record buried, with words that say why.
func wantUnsendable(t *testing.T, settings string, r core.Record, code, words string) {
	t.Helper()
	m, outcome := composing(t, settings).compose([]core.Record{r}, []int{0})
	if outcome == nil {
		t.Errorf("%s made %s of %q", settings, m.url, r.Key)
		return
	}
	if outcome.Kind != core.Permanent || outcome.Code != code || !strings.Contains(outcome.Message, words) {
		t.Errorf("%s: %+v, want permanent, %s, %q", settings, *outcome, code, words)
	}
}

// headers renders headers for comparison, one a line, sorted.
func headers(t testing.TB, h http.Header) string {
	t.Helper()
	var b strings.Builder
	if err := h.Write(&b); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(b.String(), "\r", "")
}

// TestMessageIsTheContract pins a whole request.
func TestMessageIsTheContract(t *testing.T) {
	m := composed(t, `{"url":"https://Example.com/hook"}`, order())
	if m.url.String() != "https://example.com/hook" || m.endpoint != "https://example.com:443" || m.method != "POST" || m.id != "c-1" {
		t.Errorf("%+v", m)
	}
	if string(m.body) != `{"total":12.50}` || len(m.records) != 1 || m.records[0] != 0 || m.rowIDs[0] != "c-1" {
		t.Errorf("%s %+v", m.body, m)
	}
	const want = `Connectd-Created-At: 2026-03-29T01:30:00.123456Z
Connectd-Delivery: 1
Connectd-Epoch: 3
Connectd-Key: order-7
Connectd-Route: orders
Connectd-Type: OrderPlaced
Content-Type: application/json
Traceparent: 00-1-2-01
User-Agent: connectd/1.2.3
Webhook-Id: c-1
`
	if got := headers(t, m.header); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestMessageOfABareRow has no header of what the row does not have; an empty key is one.
func TestMessageOfABareRow(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		m := composed(t, `{"url":"http://localhost:8080"}`, core.Record{ID: "a.b", Keyed: keyed, Deliveries: 2})
		want := `Connectd-Delivery: 2
Connectd-Epoch: 0
Connectd-Key: ` + `
Connectd-Possible-Duplicate: true
Content-Type: application/json
User-Agent: connectd/1.2.3
Webhook-Id: b64_YS5i
`
		if !keyed {
			want = strings.ReplaceAll(want, "Connectd-Key: \n", "")
		}
		if got := headers(t, m.header); got != want || len(m.body) != 0 || m.endpoint != "http://localhost:8080" {
			t.Errorf("keyed %v: %+v, headers\n%swant\n%s", keyed, m, got, want)
		}
	}
}

// TestIDStays has the same id on every attempt, whatever else changes between them:
// https://github.com/intuitem/ciso-assistant-community/pull/4216
func TestIDStays(t *testing.T) {
	for _, id := range []string{"c-1", "0192f0c4-7c1e-7a53-9d0b-2f6f5e0a1b2c", "a.b", "b64_x", "ü €", "", "a\r\nWebhook-Id: b"} {
		first, again := order(), order()
		first.ID, again.ID = id, id
		again.Deliveries, again.Epoch = 9, 12
		c := composing(t, `{"url":"https://example.com","signing":{"secrets":[{"value":"`+signingKey+`"}],"header_prefix":"svix-"}}`)
		var ids []string
		for _, r := range []core.Record{first, again} {
			m, outcome := c.compose([]core.Record{r}, []int{0})
			if outcome != nil {
				t.Fatal(*outcome)
			}
			ids = append(ids, m.header.Get("webhook-id"), m.header.Get("svix-id"), m.id)
		}
		for _, got := range ids {
			decoded, err := signature.DecodeID(got)
			if err != nil || decoded != id || strings.ContainsAny(got, ". \r\n") {
				t.Errorf("id %q was sent as %q, which is %q, %v", id, got, decoded, err)
			}
		}
	}
}

func TestForwardedHeaders(t *testing.T) {
	r := order()
	r.Headers = []core.Header{
		{Name: "traceparent", Value: "00-1"}, {Name: "tracestate", Value: "a=1, b=2"}, {Name: "X-Many", Value: "1"},
		{Name: "x-many", Value: "2"}, {Name: "x-empty", Value: ""}, {Name: "x-text", Value: "grüße 😀"},
		{Name: "x-blank", Value: " a"}, {Name: "x-break", Value: "a\r\nX-Evil: 1"}, {Name: "bad name", Value: "1"},
		{Name: "", Value: "1"}, {Name: "Host", Value: "evil"}, {Name: "content-length", Value: "1"},
		{Name: "Webhook-Id", Value: "evil"}, {Name: "connectd-key", Value: "evil"}, {Name: "authorization", Value: "evil"},
		{Name: "x-own", Value: "row"}, {Name: "transfer-encoding", Value: "chunked"}, {Name: "content-type", Value: "text/plain"},
		{Name: "webhook_id", Value: "evil"}, {Name: "Connectd_Key", Value: "evil"}, {Name: "x_own", Value: "evil"},
		{Name: "content_length", Value: "1"}, {Name: "x_other", Value: "1"},
	}
	const traces = "Traceparent: 00-1\nTracestate: a=1, b=2\n"
	for settings, want := range map[string]string{
		``:                      traces,
		`,"forward_headers":[]`: ``,
		`,"forward_headers":["X-TEXT","x-absent"]`: "X-Text: gr%C3%BC%C3%9Fe%20%F0%9F%98%80\n",
		`,"forward_headers":["*"]`: traces + "X-Blank: %20a\nX-Break: a%0D%0AX-Evil:%201\nX-Empty: \nX-Many: 1\nX-Many: 2\nX-Own: set\n" +
			"X-Text: gr%C3%BC%C3%9Fe%20%F0%9F%98%80\nX_other: 1\n",
	} {
		m := composed(t, `{"url":"https://example.com","headers":{"X-Own":"set"},
			"auth":{"type":"basic","username":"u","password":"p"}`+settings+`}`, r)
		got := ""
		for line := range strings.Lines(headers(t, m.header)) {
			if !strings.HasPrefix(line, "Connectd-") && !strings.HasPrefix(line, "User-Agent") && !strings.HasPrefix(line, "Webhook-Id: c-1") &&
				line != "Content-Type: text/plain\n" && (line != "X-Own: set\n" || strings.Contains(settings, "*")) {
				got += line
			}
		}
		if got != want {
			t.Errorf("%s: got\n%swant\n%s", settings, got, want)
		}
	}
}

// TestTemplatedHeaders refuses what could begin another header, and encodes what a header cannot hold.
func TestTemplatedHeaders(t *testing.T) {
	const settings = `{"url":"https://example.com","headers":{"x-key":"k={key|none}; t={type}"}}`
	for key, want := range map[string]string{"a b": "k=a b; t=OrderPlaced", "ü": "k=%C3%BC; t=OrderPlaced", " ": "k=%20; t=OrderPlaced"} {
		r := order()
		r.Key = key
		if got := composed(t, settings, r).header.Get("X-Key"); got != want {
			t.Errorf("key %q: %q, want %q", key, got, want)
		}
	}
	r := order()
	r.Key, r.Keyed = "", false
	if got := composed(t, settings, r).header.Get("X-Key"); got != "k=none; t=OrderPlaced" {
		t.Error(got)
	}
	for _, key := range []string{"a\r\nX-Evil: 1", "a\nb", "a\rb", "a\x00b"} {
		r := order()
		r.Key = key
		wantUnsendable(t, settings, r, "bad_header", "header X-Key: the record's value has a line end or a NUL")
	}
	r = order()
	r.Type = ""
	wantUnsendable(t, settings, r, "bad_header", "header X-Key: the record has no type")
}

func TestContentType(t *testing.T) {
	for name, c := range map[string]struct{ settings, row, want string }{
		"none":    {``, "", "application/json"},
		"row":     {``, "text/plain; charset=utf-8", "text/plain; charset=utf-8"},
		"setting": {`,"content_type":"application/xml"`, "text/plain", "application/xml"},
		"events":  {`,"body":"ce_structured"`, "text/plain", "application/cloudevents+json"},
	} {
		r := order()
		if c.row != "" {
			r.Headers = []core.Header{{Name: "CONTENT-type", Value: c.row}}
		}
		if got := composed(t, `{"url":"https://example.com"`+c.settings+`}`, r).header.Get("Content-Type"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	r := order()
	r.Headers = []core.Header{{Name: "content-type", Value: "a\r\nb"}}
	wantUnsendable(t, `{"url":"https://example.com"}`, r, "bad_body", "no media type")
}

func TestIdempotencyKey(t *testing.T) {
	for settings, want := range map[string]string{
		`{}`:                      "Idempotency-Key: \"c-1\"\n",
		`{"quoted":false}`:        "Idempotency-Key: c-1\n",
		`{"name":"x-request-id"}`: "X-Request-Id: \"c-1\"\n",
	} {
		m := composed(t, `{"url":"https://example.com","idempotency_header":`+settings+`}`, order())
		if got := headers(t, m.header); !strings.Contains(got, want) {
			t.Errorf("%s: no %q in\n%s", settings, want, got)
		}
	}
}

// TestGiantHeaders buries a row whose headers no receiver takes, so that it is not taken for a fault of the connection.
func TestGiantHeaders(t *testing.T) {
	r := order()
	r.Key = strings.Repeat("k", maxHead)
	wantUnsendable(t, `{"url":"https://example.com"}`, r, "too_large", "URL and headers need")
	r.Key = strings.Repeat("k", maxHead-1000)
	composed(t, `{"url":"https://example.com"}`, r)
}

func TestMaxBodyBytes(t *testing.T) {
	r := order()
	r.Payload = []byte("12345")
	composed(t, `{"url":"https://example.com","max_body_bytes":5}`, r)
	r.Payload = []byte("123456")
	wantUnsendable(t, `{"url":"https://example.com","max_body_bytes":5}`, r, "too_large", "6 bytes, max_body_bytes is 5")
	r.Payload = []byte(strings.Repeat("x", 1000))
	wantUnsendable(t, `{"url":"https://example.com","max_body_bytes":5,"compress":"gzip"}`, r, "too_large", "1000 bytes")
}
