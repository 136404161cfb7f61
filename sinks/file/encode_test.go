package file

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/connectd/connectd/core"
)

// TestLineIsTheContract pins the exact bytes that scripts rely on.
func TestLineIsTheContract(t *testing.T) {
	created := time.Date(2026, 3, 29, 3, 30, 0, 120_999, time.FixedZone("CEST", 2*3600))
	cases := map[string]struct {
		record core.Record
		want   string
	}{
		"full": {
			core.Record{ID: "c-1", Key: "order 1", Keyed: true, Route: "orders", Type: "Place", Payload: []byte(`{"b":1.0,"a":1e400}`),
				Headers: []core.Header{{Name: "trace", Value: "😀 \"x\""}, {Name: "a", Value: "<&>"}}, CreatedAt: created, Deliveries: 2, Epoch: 7},
			`{"id":"c-1","key":"order 1","route":"orders","type":"Place","headers":{"trace":"😀 \"x\"","a":"<&>"},` +
				`"payload":{"b":1.0,"a":1e400},"created_at":"2026-03-29T01:30:00.000120Z","deliveries":2,"possible_duplicate":true,"epoch":7}`,
		},
		"bare": {
			core.Record{ID: "c-2", Deliveries: 1, CreatedAt: time.Unix(0, 0)},
			`{"id":"c-2","key":null,"route":"","type":"","headers":{},"payload_base64":"",` +
				`"created_at":"1970-01-01T00:00:00.000000Z","deliveries":1,"possible_duplicate":false,"epoch":0}`,
		},
		"no time of insertion": {
			core.Record{ID: "c-4", Deliveries: 1},
			`{"id":"c-4","key":null,"route":"","type":"","headers":{},"payload_base64":"","created_at":null,"deliveries":1,"possible_duplicate":false,"epoch":0}`,
		},
		"empty key is a key": {
			core.Record{ID: "c-3", Keyed: true, Deliveries: 1, Payload: []byte("\xff\x00"), CreatedAt: time.Unix(0, 0)},
			`{"id":"c-3","key":"","route":"","type":"","headers":{},"payload_base64":"/wA=",` +
				`"created_at":"1970-01-01T00:00:00.000000Z","deliveries":1,"possible_duplicate":false,"epoch":0}`,
		},
	}
	for name, c := range cases {
		if got := string(appendLine(nil, &c.record)); got != c.want+"\n" {
			t.Errorf("%s:\n got %s want %s", name, got, c.want)
		}
	}
}

// FuzzLine checks that a line is one line of JSON which gives every field back.
func FuzzLine(f *testing.F) {
	f.Add("id", "key", true, "route", "type", []byte(`{"a":1}`), "name", "value")
	f.Add("\x00\x1f\"\\\n\r\t\x7f", "\u2028", false, "\xff", "é😀", []byte("a\nb"), "", "\xed\xa0\x80")
	f.Add("", "", true, "", "", []byte("[1,\n2]"), "n", "v")
	f.Fuzz(func(t *testing.T, id, key string, keyed bool, route, kind string, payload []byte, name, value string) {
		r := core.Record{ID: id, Key: key, Keyed: keyed, Route: route, Type: kind, Payload: payload,
			Headers: []core.Header{{Name: name, Value: value}}, CreatedAt: time.Unix(1, 0), Deliveries: 1}
		line := appendLine(nil, &r)
		if bytes.IndexByte(line, '\n') != len(line)-1 || !utf8.Valid(line) {
			t.Fatalf("not one line of UTF-8: %q", line)
		}
		var got struct {
			ID, Route, Type string
			Key             *string
			Headers         map[string]string
			Payload         json.RawMessage
			PayloadBase64   []byte `json:"payload_base64"`
		}
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		utf := func(s string) string { return string([]rune(s)) }
		if got.ID != utf(id) || got.Route != utf(route) || got.Type != utf(kind) || got.Headers[utf(name)] != utf(value) {
			t.Errorf("%q gave back %+v", line, got)
		}
		if (got.Key != nil) != keyed || keyed && *got.Key != utf(key) {
			t.Errorf("%q gave back key %v", line, got.Key)
		}
		var back []byte
		if got.Payload != nil {
			back = got.Payload
			if bytes.ContainsAny(payload, "\r\n") {
				compact := bytes.Buffer{}
				_ = json.Compact(&compact, payload)
				payload = compact.Bytes()
			}
			payload = bytes.TrimSpace(payload)
		} else {
			back = got.PayloadBase64
		}
		if !bytes.Equal(back, payload) {
			t.Errorf("payload %q came back as %q", payload, back)
		}
	})
}

func BenchmarkLine(b *testing.B) {
	r := core.Record{ID: "0198f0c2-5b1e-7000-8000-000000000001", Key: "order-1", Keyed: true, Route: "orders", Type: "Placed",
		Payload: []byte(`{"text":"` + strings.Repeat("x", 180) + `"}`), CreatedAt: time.Unix(1, 0), Deliveries: 1,
		Headers: []core.Header{{Name: "trace", Value: "00-0123456789abcdef"}}}
	var line []byte
	for b.Loop() {
		line = appendLine(line[:0], &r)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
