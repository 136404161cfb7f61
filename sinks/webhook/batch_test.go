package webhook

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/jsonrecord"
)

// rows are n records with payloads of JSON.
func rows(n int) ([]core.Record, []int) {
	batch, which := make([]core.Record, n), make([]int, n)
	for i := range batch {
		batch[i] = order()
		batch[i].ID, batch[i].Payload = fmt.Sprint("c-", i), fmt.Appendf(nil, `{"n":%d}`, i)
		which[i] = i
	}
	return batch, which
}

// TestRowIsTheContract pins the bytes of a row in a list.
func TestRowIsTheContract(t *testing.T) {
	full := order()
	full.Deliveries, full.Payload = 2, []byte("{\"b\":1.0,\n\"a\":1e400}")
	bare := core.Record{ID: "\"\\\n\x01<\xff", Deliveries: 1, CreatedAt: time.Unix(0, 0)}
	m, outcome := composing(t, `{"url":"https://example.com","batch":{}}`).compose([]core.Record{full, bare}, []int{0, 1})
	if outcome != nil {
		t.Fatal(*outcome)
	}
	const want = `[{"id":"c-1","key":"order-7","route":"orders","type":"OrderPlaced","headers":{"traceparent":"00-1-2-01","tenant":"t1"},` +
		`"payload":` + "{\"b\":1.0,\n\"a\":1e400}" + `,"created_at":"2026-03-29T01:30:00.123456Z","deliveries":2,"possible_duplicate":true,"epoch":3},` +
		`{"id":"\"\\\n\u0001\u003c\ufffd","key":null,"route":"","type":"","headers":{},"payload_base64":"",` +
		`"created_at":"1970-01-01T00:00:00.000000Z","deliveries":1,"possible_duplicate":false,"epoch":0}]`
	if string(m.body) != want {
		t.Errorf("got  %s\nwant %s", m.body, want)
	}
	const wantHeaders = "Content-Type: application/json\nUser-Agent: connectd/1.2.3\nWebhook-Id: list_"
	if got := headers(t, m.header); !strings.HasPrefix(got, wantHeaders) {
		t.Errorf("got\n%s", got)
	}
}

func TestListFormats(t *testing.T) {
	batch, which := rows(3)
	batch[1].Payload = []byte("{\n\"n\": 1\r\n}")
	for settings, c := range map[string]struct{ contentType, pattern string }{
		`"batch":{}`:                         {"application/json", `[{…},{…},{…}]`},
		`"batch":{"format":"json"}`:          {"application/json", `[{…},{…},{…}]`},
		`"batch":{"format":"ndjson"}`:        {"application/x-ndjson", "{…}\n{…}\n{…}\n"},
		`"body":"ce_batch"`:                  {"application/cloudevents-batch+json", `[{…},{…},{…}]`},
		`"batch":{},"content_type":"a/b"`:    {"a/b", `[{…},{…},{…}]`},
		`"batch":{},"forward_headers":["*"]`: {"application/json", `[{…},{…},{…}]`},
	} {
		m, outcome := composing(t, `{"url":"https://example.com",`+settings+`}`).compose(batch, which)
		if outcome != nil {
			t.Fatal(*outcome)
		}
		if got := outline(t, m.body); got != c.pattern || m.header.Get("Content-Type") != c.contentType {
			t.Errorf("%s: %q, %s", settings, got, m.header.Get("Content-Type"))
		}
		if m.header.Get("Connectd-Key") != "" || m.header.Get("Traceparent") != "" {
			t.Errorf("%s: headers of a row: %v", settings, m.header)
		}
		if strings.Join(m.rowIDs, " ") != "c-0 c-1 c-2" || len(m.records) != 3 {
			t.Errorf("%s: %v %v", settings, m.rowIDs, m.records)
		}
	}
}

// outline shortens each object of a list.
func outline(t *testing.T, body []byte) string {
	t.Helper()
	var b strings.Builder
	depth := 0
	for _, c := range string(body) {
		switch {
		case c == '{':
			if depth++; depth == 1 {
				b.WriteString("{…")
			}
		case c == '}':
			depth--
		}
		if depth == 0 {
			b.WriteRune(c)
		}
	}
	for line := range strings.Lines(string(body)) {
		if !strings.HasPrefix(string(body), "[") && !json.Valid([]byte(line)) {
			t.Errorf("line %q is no JSON", line)
		}
	}
	return b.String()
}

// TestListsTakeWhatFits leaves the rest to the next request.
func TestListsTakeWhatFits(t *testing.T) {
	batch, which := rows(10)
	one := len(composed(t, `{"url":"https://example.com","batch":{"max_rows":1}}`, batch[0]).body)
	for settings, want := range map[string]int{
		`"batch":{"max_rows":4}`:                             4,
		`"batch":{"max_rows":1}`:                             1,
		`"batch":{}`:                                         10,
		fmt.Sprintf(`"batch":{"max_bytes":%d}`, one):         1,
		fmt.Sprintf(`"batch":{"max_bytes":%d}`, 2*one-1):     2, // one less comma and two brackets
		fmt.Sprintf(`"batch":{"max_bytes":%d}`, 2*one-2):     1,
		`"batch":{"max_bytes":1}`:                            1, // a row goes alone rather than never
		fmt.Sprintf(`"batch":{},"max_body_bytes":%d`, 3*one): 3,
	} {
		m, outcome := composing(t, `{"url":"https://example.com",`+settings+`}`).compose(batch, which[2:])
		if outcome != nil {
			t.Errorf("%s: %+v", settings, *outcome)
			continue
		}
		if want = min(want, 8); len(m.records) != want || m.records[0] != 2 || !json.Valid(m.body) || strings.Count(string(m.body), `"id":`) != want {
			t.Errorf("%s: took %v, %s", settings, m.records, m.body)
		}
	}
}

// TestListsAndUnsendableRows costs no other row its place: https://github.com/confluentinc/librdkafka/issues/488
func TestListsAndUnsendableRows(t *testing.T) {
	for settings, spoil := range map[string]func(r *core.Record){
		`"batch":{},"max_body_bytes":2000`:        func(r *core.Record) { r.Payload = make([]byte, 3000) },
		`"body":"ce_batch"`:                       func(r *core.Record) { r.Type = "" },
		`"body":"ce_batch","max_body_bytes":2000`: func(r *core.Record) { r.Payload = make([]byte, 3000) },
	} {
		batch, which := rows(4)
		spoil(&batch[2])
		c := composing(t, `{"url":"https://example.com",`+settings+`}`)
		m, outcome := c.compose(batch, which)
		if outcome != nil || len(m.records) != 2 {
			t.Fatalf("%s: %v, %v", settings, m, outcome)
		}
		if _, outcome := c.compose(batch, which[2:]); outcome == nil || outcome.Kind != core.Permanent {
			t.Errorf("%s: the row in the way: %v", settings, outcome)
		}
		if m, outcome := c.compose(batch, which[3:]); outcome != nil || len(m.records) != 1 {
			t.Errorf("%s: the row behind: %v, %v", settings, m, outcome)
		}
	}
}

// TestListIDs follow the rows, and nothing else.
func TestListIDs(t *testing.T) {
	id := func(ids ...string) string { return listID(ids) }
	seen := map[string]string{}
	for _, ids := range [][]string{{"a"}, {"a", "b"}, {"b", "a"}, {"ab"}, {"a", "b", ""}, {"", "a", "b"}, {"a\x00b"}, {}} {
		got := id(ids...)
		if other, twice := seen[got]; twice {
			t.Errorf("%q and %s share %s", ids, other, got)
		}
		seen[got] = fmt.Sprint(ids)
		if strings.Trim(got, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			t.Errorf("%q", got)
		}
	}
	batch, which := rows(2)
	c := composing(t, `{"url":"https://example.com","batch":{},"idempotency_header":{}}`)
	first, _ := c.compose(batch, which)
	batch[0].Deliveries = 5
	again, _ := c.compose(batch, which)
	if first.id != again.id || first.header.Get("Idempotency-Key") != `"`+first.id+`"` {
		t.Errorf("%s and %s, %v", first.id, again.id, first.header)
	}
}

// FuzzRow holds that a row is JSON, on one line where it has to be.
func FuzzRow(f *testing.F) {
	f.Add("id", "key", []byte(`{"a":1}`), "name", "value")
	f.Add("\x00\"\\\n", "\u2028<\xff", []byte("[1,\n2]"), "", "")
	f.Fuzz(func(t *testing.T, id, key string, payload []byte, name, value string) {
		r := core.Record{ID: id, Key: key, Keyed: true, Payload: payload, Headers: []core.Header{{Name: name, Value: value}}, Deliveries: 1}
		for _, oneLine := range []bool{false, true} {
			row := jsonrecord.Append(nil, &r, oneLine, jsonrecord.AppendString)
			var got struct {
				ID, Key       string
				Headers       map[string]string
				Payload       json.RawMessage
				PayloadBase64 []byte `json:"payload_base64"`
			}
			if err := json.Unmarshal(row, &got); err != nil || oneLine && strings.ContainsAny(string(row), "\r\n") {
				t.Fatalf("%q: %v", row, err)
			}
			utf := func(s string) string { return string([]rune(s)) }
			if got.ID != utf(id) || got.Key != utf(key) || got.Headers[utf(name)] != utf(value) {
				t.Fatalf("%q gave back %+v", row, got)
			}
			if got.Payload == nil && string(got.PayloadBase64) != string(payload) {
				t.Fatalf("%q gave back %q", row, got.PayloadBase64)
			}
		}
	})
}
