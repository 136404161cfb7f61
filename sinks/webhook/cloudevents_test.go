package webhook

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/cloudevents"
	"github.com/connectd/connectd/sinks/webhook/signature"
)

// received is a message as a server has it.
func received(t testing.TB, m *message) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), m.method, m.url.String(), bytes.NewReader(m.body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = m.header
	return r
}

// TestCloudEventsAreWhatTheSDKReads has each mode read by the official SDK.
func TestCloudEventsAreWhatTheSDKReads(t *testing.T) {
	full := order()
	full.Headers = append(full.Headers, core.Header{Name: "tracestate", Value: "a=1, b=2"}, core.Header{Name: "content-type", Value: "application/vnd.shop+json"})
	full.Deliveries, full.Epoch = 2, 1<<53+1
	odd := core.Record{
		ID: `"id" ü %41`, Key: "Straße 7/ü €😀", Keyed: true, Type: "Bestellung geändert", Payload: []byte("\xff\x00 no text"),
		Headers: []core.Header{{Name: "content-type", Value: "application/octet-stream"}}, CreatedAt: time.Unix(1, 0), Deliveries: 1,
	}
	bare := core.Record{ID: "c-2", Type: "x", CreatedAt: time.Unix(1, 0), Deliveries: 1}
	torn, charset := order(), order()
	torn.Payload = []byte(`{"torn":`)
	charset.Headers = []core.Header{{Name: "content-type", Value: "application/json; charset=utf-8"}}
	timeless := order()
	timeless.CreatedAt = time.Time{}
	for _, r := range []core.Record{full, odd, bare, torn, charset, timeless} {
		for _, mode := range []string{bodyCEBinary, bodyCEStructured, bodyCEBatch} {
			m := composed(t, `{"url":"https://example.com","body":"`+mode+`"}`, r)
			wantEvent(t, mode, read(t, mode, m)[0], r)
			if said := fmt.Sprint(m.header, string(m.body)); strings.Contains(said, "0001-01-01") {
				t.Errorf("%s: no time is %s", mode, said)
			}
		}
	}
}

func read(t *testing.T, mode string, m *message) []event.Event {
	t.Helper()
	if mode == bodyCEBatch {
		events, err := cehttp.NewEventsFromHTTPRequest(received(t, m))
		if err != nil {
			t.Fatalf("%s: %v", m.body, err)
		}
		return events
	}
	e, err := cehttp.NewEventFromHTTPRequest(received(t, m))
	if err != nil {
		t.Fatalf("%s: %v\n%s\n%s", mode, err, headers(t, m.header), m.body)
	}
	if mode == bodyCEBinary {
		decode(t, e)
	}
	return []event.Event{*e}
}

// decode undoes the percent-encoding of attributes in headers, which the SDK leaves to its user.
func decode(t testing.TB, e *event.Event) {
	t.Helper()
	plain := func(s string) string {
		text, err := signature.PercentDecode(s)
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		return text
	}
	e.SetID(plain(e.ID()))
	e.SetType(plain(e.Type()))
	e.SetSubject(plain(e.Subject()))
	for name, value := range e.Extensions() {
		e.SetExtension(name, plain(fmt.Sprint(value)))
	}
}

func wantEvent(t *testing.T, mode string, e event.Event, r core.Record) {
	t.Helper()
	if err := e.Validate(); err != nil {
		t.Errorf("%s: %v", mode, err)
	}
	contentType := "application/json"
	for _, h := range r.Headers {
		if h.Name == "content-type" {
			contentType = h.Value
		}
	}
	if e.ID() != r.ID || e.Source() != "/connectd/shop" || e.Type() != r.Type || e.Subject() != r.Key ||
		!e.Time().Equal(r.CreatedAt.Truncate(time.Microsecond)) || e.DataContentType() != contentType || !bytes.Equal(e.Data(), r.Payload) {
		t.Errorf("%s of %q came as\n%v", mode, r.ID, e)
	}
	want := map[string]string{cloudevents.Delivery: fmt.Sprint(r.Deliveries), cloudevents.Epoch: fmt.Sprint(r.Epoch)}
	for name, value := range map[string]string{cloudevents.PartitionKey: r.Key, cloudevents.Route: r.Route} {
		if value != "" {
			want[name] = value
		}
	}
	if r.PossibleDuplicate() {
		want[cloudevents.Duplicate] = "true"
	}
	for _, name := range []string{cloudevents.TraceParent, cloudevents.TraceState} {
		if value, ok := r.Header(name); ok {
			want[name] = value
		}
	}
	got := map[string]string{}
	for name, value := range e.Extensions() {
		got[name] = fmt.Sprint(value)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s of %q has the extensions %v, want %v", mode, r.ID, got, want)
	}
}

// TestCloudEventsInBytes pins the forms, data as it was included.
func TestCloudEventsInBytes(t *testing.T) {
	r := order()
	r.Payload = []byte("{\"b\":1.0,\n \"a\":\"<\"}")
	const settings = `{"url":"https://example.com","cloudevents":{"source":"https://shop.example/{route}","type":"com.example.{type}"},"body":"`
	structured := composed(t, settings+`ce_structured"}`, r)
	const want = `{"specversion":"1.0","id":"c-1","source":"https://shop.example/orders","type":"com.example.OrderPlaced",` +
		`"time":"2026-03-29T01:30:00.123456Z","connectddelivery":1,"connectdepoch":"3","subject":"order-7","partitionkey":"order-7",` +
		`"connectdroute":"orders","traceparent":"00-1-2-01","datacontenttype":"application/json","data":` + "{\"b\":1.0,\n \"a\":\"<\"}}"
	if string(structured.body) != want || structured.header.Get("Content-Type") != "application/cloudevents+json" {
		t.Errorf("got  %s\nwant %s", structured.body, want)
	}
	binary := composed(t, settings+`ce_binary"}`, r)
	const wantHeaders = `Ce-Connectddelivery: 1
Ce-Connectdepoch: 3
Ce-Connectdroute: orders
Ce-Id: c-1
Ce-Partitionkey: order-7
Ce-Source: https://shop.example/orders
Ce-Specversion: 1.0
Ce-Subject: order-7
Ce-Time: 2026-03-29T01:30:00.123456Z
Ce-Traceparent: 00-1-2-01
Ce-Type: com.example.OrderPlaced
Content-Type: application/json
Traceparent: 00-1-2-01
User-Agent: connectd/1.2.3
Webhook-Id: c-1
`
	if got := headers(t, binary.header); got != wantHeaders || !bytes.Equal(binary.body, r.Payload) {
		t.Errorf("got\n%s\nwant\n%s%s", got, wantHeaders, binary.body)
	}
}

// TestCloudEventHeaderEncoding is the specification's own example.
func TestCloudEventHeaderEncoding(t *testing.T) {
	r := order()
	r.Key = "Euro € 😀"
	m := composed(t, `{"url":"https://example.com","body":"ce_binary"}`, r)
	if got := m.header.Get("Ce-Subject"); got != "Euro%20%E2%82%AC%20%F0%9F%98%80" {
		t.Error(got)
	}
}

// TestCloudEventsNeedWhatTheyNeed buries a record that makes no event.
func TestCloudEventsNeedWhatTheyNeed(t *testing.T) {
	for _, mode := range []string{bodyCEBinary, bodyCEStructured, bodyCEBatch} {
		settings := `{"url":"https://example.com","body":"` + mode + `"}`
		r := order()
		r.Type = ""
		wantUnsendable(t, settings, r, "bad_body", "cloudevents.type: the record has no type")
		r = order()
		r.ID = ""
		wantUnsendable(t, settings, r, "bad_body", "without an id")
	}
	if m := composed(t, `{"url":"https://example.com","body":"ce_structured","cloudevents":{"type":"{type|row}"}}`, core.Record{ID: "c-3"}); !strings.Contains(string(m.body), `"type":"row"`) {
		t.Errorf("%s", m.body)
	}
}

// FuzzCloudEvent holds that the SDK reads what any record makes.
func FuzzCloudEvent(f *testing.F) {
	f.Add("id", "key", "type", "route", []byte(`{"a":1}`), "application/json")
	f.Add("\x01", "\xff", "\u2028", "%", []byte("\xff"), "text/plain")
	var composers []*composer
	for _, mode := range []string{bodyCEBinary, bodyCEStructured} {
		composers = append(composers, composing(f, `{"url":"https://example.com","body":"`+mode+`"}`))
	}
	f.Fuzz(func(t *testing.T, id, key, kind, route string, payload []byte, contentType string) {
		r := core.Record{ID: id, Key: key, Keyed: true, Type: kind, Route: route, Payload: payload, CreatedAt: time.Unix(1, 0), Deliveries: 1,
			Headers: []core.Header{{Name: "content-type", Value: contentType}}}
		if strings.TrimSpace(id) == "" || strings.TrimSpace(kind) == "" {
			return // the SDK has none such, and trims the others
		}
		for _, c := range composers {
			payload := payload
			m, outcome := c.compose([]core.Record{r}, []int{0})
			if outcome != nil {
				continue
			}
			e, err := cehttp.NewEventFromHTTPRequest(received(t, m))
			if err != nil {
				t.Fatalf("%+v: %v", r, err)
			}
			want := id
			if c.config.Body == bodyCEBinary {
				decode(t, e)
			} else {
				// JSON has no other bytes than UTF-8, and the blanks around a value are no part of it.
				want, payload = string([]rune(id)), bytes.TrimSpace(payload)
			}
			if strings.TrimSpace(e.ID()) != strings.TrimSpace(want) || !bytes.Equal(e.Data(), payload) && !bytes.Equal(bytes.TrimSpace(e.Data()), payload) {
				t.Fatalf("%+v came as\n%v", r, e)
			}
		}
	})
}
