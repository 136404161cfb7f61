package webhook

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/connectd/connectd/core"
)

// TestPayloadGoesAsItIs touches no byte.
func TestPayloadGoesAsItIs(t *testing.T) {
	for _, payload := range []string{"", "\x00", "\xff\xfe", ` { "a" : 1.50, "a":"\u003c<" } `, "a\r\nb", strings.Repeat("x", 1<<20)} {
		r := order()
		r.Payload = []byte(payload)
		if m := composed(t, `{"url":"https://example.com"}`, r); string(m.body) != payload {
			t.Errorf("%.20q became %.20q", payload, m.body)
		}
	}
}

func TestGzip(t *testing.T) {
	c := composing(t, `{"url":"https://example.com","compress":"gzip"}`)
	for _, payload := range []string{strings.Repeat("abc", 1000), "", "x"} { // one writer after the other
		r := order()
		r.Payload = []byte(payload)
		m, outcome := c.compose([]core.Record{r}, []int{0})
		if outcome != nil {
			t.Fatal(*outcome)
		}
		unpacked, err := gzip.NewReader(bytes.NewReader(m.body))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(unpacked)
		if err != nil || string(got) != payload || m.header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%.20q became %.20q, %v, %v", payload, got, err, m.header)
		}
	}
}

func TestBodyTemplate(t *testing.T) {
	r := order()
	r.Payload = []byte(`{"customer":{"email":"a@b.example"},"items":[{"sku":"x","n":1.50},{"sku":"y","n":12345678901234567890}],"note":null,"html":"<&>","no":"","yes":true}`)
	for text, want := range map[string]string{
		`plain`: `plain`,
		`{{.ID}} {{.Key}} {{.Keyed}} {{.Route}} {{.Type}} {{.Connector}}`:         `c-1 order-7 true orders OrderPlaced shop`,
		`{{.CreatedAt}} {{.Delivery}} {{.PossibleDuplicate}} {{.Epoch}}`:          `2026-03-29T01:30:00.123456Z 1 false 3`,
		`{{.Headers.tenant}} {{index .Headers "none" | default "-"}}`:             `t1 -`,
		`{{.JSON.customer.email}}`:                                                `a@b.example`,
		`{"data":{{.Payload}}}`:                                                   `{"data":` + string(r.Payload) + `}`,
		`{{json .JSON.items}}`:                                                    `[{"n":1.50,"sku":"x"},{"n":12345678901234567890,"sku":"y"}]`,
		`{{json .JSON.html}} {{.JSON.html}}`:                                      `"<&>" <&>`,
		`{{range .JSON.items}}{{.sku}}={{.n}};{{end}}`:                            `x=1.50;y=12345678901234567890;`,
		`{{json .JSON.note}} {{.JSON.note | default "none"}}`:                     `null none`,
		`{{.JSON.no | default "none"}}{{if .JSON.yes}}!{{end}}`:                   `none!`,
		`{{index .JSON "absent" | default 7}}`:                                    `7`,
		`{{base64 .Payload | len}} {{base64 "ü"}}`:                                `200 w7w=`,
		`{{.Type | lower}} {{upper .Type}} {{trim "  a "}}`:                       `orderplaced ORDERPLACED a`,
		`{{replace "Order" "Sale" .Type}}`:                                        `SalePlaced`,
		`{{join ", " (split "-" .Key)}} {{(index .JSON.items 0).n}}`:              `order, 7 1.50`,
		`{{string .Payload | json}}`:                                              string(must(json.Marshal(string(r.Payload)))),
		`{{json .Type}} {{json .Delivery}}`:                                       `"OrderPlaced" 1`,
		`{{$t := .Type}}{{with .JSON.customer}}{{$t}} {{.email}} {{$.ID}}{{end}}`: `OrderPlaced a@b.example c-1`,
		`{{define "x"}}[{{.}}]{{end}}{{template "x" .ID}}`:                        `[c-1]`,
		`{{printf "%05d" .Delivery}}`:                                             `00001`,
	} {
		settings := string(must(json.Marshal(map[string]string{"url": "https://example.com", "body": "template", "body_template": text})))
		want = strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(want)
		if m := composed(t, settings, r); string(m.body) != want {
			t.Errorf("%s:\n got %s\nwant %s", text, m.body, want)
		}
	}
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

// TestBodyTemplateOfOtherRows buries a row that the template does not fit, with its reason:
// https://github.com/hookdeck/outpost/pull/957, https://github.com/hookdeck/outpost/pull/1025
func TestBodyTemplateOfOtherRows(t *testing.T) {
	for text, c := range map[string]struct{ payload, code, words string }{
		`{{.JSON.a.b}}`:                      {`{"a":{}}`, "bad_body", `no entry for key "b"`},
		`{{.JSON.a.b.c}}`:                    {`{"a":1}`, "bad_body", "a.b"},
		`{{.JSON.a}}`:                        {`{"a":null}`, "bad_body", "a value is not there"},
		`{{index .JSON "a"}}`:                {`{}`, "bad_body", "a value is not there"},
		`{{index .JSON.a 5}}`:                {`{"a":[]}`, "bad_body", "out of range"},
		`{{.JSON}}`:                          {`{"torn":`, "bad_body", "the payload is not JSON"},
		`{{.JSON.a}}` + " ":                  {`{} {}`, "bad_body", "not one JSON value"},
		`{{.Headers.none}}`:                  {`{}`, "bad_body", `no entry for key "none"`},
		`{{upper .JSON.a}}`:                  {`{"a":1}`, "bad_body", "wrong type"},
		`{{join "," .JSON.a}}`:               {`{"a":"x"}`, "bad_body", "is no list"},
		`{{string .JSON.a}}`:                 {`{"a":{}}`, "bad_body", "is no text"},
		`{{range .JSON.a}}0123456789{{end}}`: {`{"a":[1,2,3,4,5,6,7,8,9,10,11]}`, "too_large", "larger than max_body_bytes"},
		`{{range .JSON.a}}{{template "x" $}}{{end}}{{define "x"}}{{template "x" .}}{{end}}`: {`{"a":[1]}`, "bad_body", "depth"},
	} {
		settings := string(must(json.Marshal(map[string]any{
			"url": "https://example.com", "body": "template", "body_template": text, "max_body_bytes": 100,
		})))
		r := order()
		r.Payload = []byte(c.payload)
		wantUnsendable(t, settings, r, c.code, c.words)
	}
}

// FuzzBodyTemplate holds that no template, and no payload in one, does more than fail.
func FuzzBodyTemplate(f *testing.F) {
	f.Add(`{{.ID}}{{range .JSON.a}}{{json .}}{{end}}`, []byte(`{"a":[1,"x",null]}`))
	f.Add(`{{join "," .JSON}}{{base64 .Payload | len}}`, []byte(`["a"]`))
	f.Fuzz(func(t *testing.T, text string, payload []byte) {
		b, err := parseBody(text, "shop", 1000)
		if err != nil || strings.Contains(text, "range") && strings.ContainsAny(text, "0123456789") { // a range over a number takes its time
			return
		}
		_ = b.unknownField()
		r := order()
		r.Payload = payload
		if body, err := b.render(&r); err == nil && len(body) > 1000 {
			t.Fatalf("%d bytes", len(body))
		}
	})
}
