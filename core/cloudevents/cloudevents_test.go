package cloudevents_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/cloudevents"
	"github.com/connectd/connectd/core/settings"
)

// order is a record with a value in every field.
func order() core.Record {
	return core.Record{
		ID: "c-1", Key: "order-7", Keyed: true, Route: "orders", Type: "OrderPlaced", Payload: []byte("{\"b\":1.0,\n \"a\":\"<\"}"),
		Headers:   []core.Header{{Name: "traceparent", Value: "00-1-2-01"}, {Name: "tracestate", Value: "a=1"}, {Name: "tenant", Value: "t1"}},
		CreatedAt: time.Date(2026, 3, 29, 3, 30, 0, 123_456_789, time.FixedZone("CEST", 2*3600)), Seq: 1, Deliveries: 2, Epoch: 1<<53 + 1,
	}
}

func mapper(t testing.TB, text string) *cloudevents.Mapper {
	t.Helper()
	var s cloudevents.Settings
	if diagnostics := settings.Decode([]byte(text), &s); len(diagnostics) > 0 {
		t.Fatalf("%s: %v", text, diagnostics)
	}
	m, diagnostics := s.Parse("/cloudevents", "shop")
	if len(diagnostics) > 0 {
		t.Fatalf("%s: %v", text, diagnostics)
	}
	return m
}

// TestAttributes pins their order, and which there are.
func TestAttributes(t *testing.T) {
	bare := core.Record{ID: "c-2", Keyed: true, Type: "x", CreatedAt: time.Unix(1, 0), Deliveries: 1}
	for _, c := range []struct {
		settings string
		record   core.Record
		want     string
	}{
		{`{}`, order(), `specversion="1.0" id="c-1" source="/connectd/shop" type="OrderPlaced" time="2026-03-29T01:30:00.123456Z" ` +
			`connectddelivery=2 connectdepoch="9007199254740993" subject="order-7" partitionkey="order-7" connectdroute="orders" ` +
			`traceparent="00-1-2-01" tracestate="a=1" connectdduplicate=true`},
		{`{}`, bare, `specversion="1.0" id="c-2" source="/connectd/shop" type="x" time="1970-01-01T00:00:01.000000Z" connectddelivery=1 connectdepoch="0"`},
		{`{"source":"https://{route}.example/{key}","type":"com.example.{type}"}`, core.Record{ID: "1", Key: "a/b ü", Keyed: true, Route: "r", Type: "t ü"},
			`specversion="1.0" id="1" source="https://r.example/a%2Fb%20%C3%BC" type="com.example.t ü" ` +
				`connectddelivery=0 connectdepoch="0" subject="a/b ü" partitionkey="a/b ü" connectdroute="r"`},
	} {
		all, err := mapper(t, c.settings).Attributes(&c.record)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range all {
			format := "%s=%q"
			if a.Literal {
				format = "%s=%s"
			}
			got = append(got, fmt.Sprintf(format, a.Name, a.Value))
			if len(a.Name) > 20 || strings.Trim(a.Name, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
				t.Errorf("%q is no name for an attribute", a.Name)
			}
			if a.Literal && !json.Valid([]byte(a.Value)) {
				t.Errorf("%s is %q", a.Name, a.Value)
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("got  %s\nwant %s", text, c.want)
		}
	}
}

// TestRecordsThatMakeNoEvent lack what an event must have.
func TestRecordsThatMakeNoEvent(t *testing.T) {
	for _, c := range []struct{ settings, id, kind, want string }{
		{`{}`, "1", "", "cloudevents.type: the record has no type"},
		{`{}`, "", "t", "without an id"},
		{`{"type":"{type|}"}`, "1", "", "a type"},
		{`{"source":"{header:origin}"}`, "1", "t", "cloudevents.source: the record has no header"},
		{`{"source":"{key|}"}`, "1", "t", "a source"},
	} {
		r := core.Record{ID: c.id, Type: c.kind}
		m := mapper(t, c.settings)
		if _, err := m.Attributes(&r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.settings, err, c.want)
		}
		if text, err := m.AppendJSON([]byte("["), &r, "text/plain"); err == nil || string(text) != "[" {
			t.Errorf("%s: %s, %v", c.settings, text, err)
		}
	}
}

func TestSettings(t *testing.T) {
	for text, want := range map[string]string{
		`{"source":"a b"}`:                      "/cloudevents/source must be a URI reference",
		`{"source":""}`:                         "/cloudevents/source must be a URI reference",
		`{"source":"/ü"}`:                       "/cloudevents/source must be a URI reference",
		`{"source":"%zz"}`:                      "/cloudevents/source must be a URI reference",
		`{"source":"{nope}"}`:                   "/cloudevents/source has at character 1 no known field",
		`{"type":"{nope}"}`:                     "/cloudevents/type has at character 1 no known field",
		`{"source":"urn:x:{header:a}#{key|a}"}`: "",
	} {
		var s cloudevents.Settings
		if diagnostics := settings.Decode([]byte(text), &s); len(diagnostics) > 0 {
			t.Fatal(diagnostics)
		}
		got := ""
		for _, d := range second(s.Parse("/cloudevents", "shop")) {
			got += d.Pointer + " " + d.Message
		}
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func second(_ *cloudevents.Mapper, d []core.Diagnostic) []core.Diagnostic { return d }

// TestJSON pins the bytes of the structured mode, data as it was included.
func TestJSON(t *testing.T) {
	const head = `{"specversion":"1.0","id":"1","source":"/connectd/shop","type":"t\"\n","time":"1970-01-01T00:00:00.000000Z",` +
		`"connectddelivery":1,"connectdepoch":"0","datacontenttype":`
	for _, c := range []struct{ payload, contentType, want string }{
		{"{\"b\":1.0,\n \"a\":\"<\"}", "application/json", `"application/json","data":` + "{\"b\":1.0,\n \"a\":\"<\"}}"},
		{`1`, "Text/JSON; charset=utf-8", `"Text/JSON; charset=utf-8","data":1}`},
		{`{"torn`, "application/json", `"application/json","data_base64":"eyJ0b3Ju"}`},
		{`{}`, "application/vnd.shop+json", `"application/vnd.shop+json","data_base64":"e30="}`},
		{"\xff", "text/plain", `"text/plain","data_base64":"/w=="}`},
		{"", "application/json", `"application/json"}`},
	} {
		r := core.Record{ID: "1", Type: "t\"\n", Payload: []byte(c.payload), CreatedAt: time.Unix(0, 0), Deliveries: 1}
		got, err := mapper(t, `{}`).AppendJSON(nil, &r, c.contentType)
		if err != nil || string(got) != head+c.want {
			t.Errorf("got  %s, %v\nwant %s", got, err, head+c.want)
		}
	}
}

// TestJSONIsWhatTheSDKReads has it read by the official SDK, as the tests of the webhook have the HTTP binding.
func TestJSONIsWhatTheSDKReads(t *testing.T) {
	r := order()
	text, err := mapper(t, `{}`).AppendJSON(nil, &r, "application/json")
	if err != nil {
		t.Fatal(err)
	}
	var e event.Event
	if err := e.UnmarshalJSON(text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if err := e.Validate(); err != nil || e.ID() != r.ID || e.Subject() != r.Key || e.Type() != r.Type || string(e.Data()) != string(r.Payload) ||
		!e.Time().Equal(r.CreatedAt.Truncate(time.Microsecond)) || len(e.Extensions()) != 7 {
		t.Errorf("%v\n%v", err, e)
	}
}
