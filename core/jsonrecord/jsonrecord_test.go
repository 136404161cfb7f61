package jsonrecord_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/connectd/connectd/core/jsonrecord"
)

func TestPayload(t *testing.T) {
	for payload, want := range map[string]string{
		` { "a" : 1.50, "a":"\u003c<" } `:     `,"payload": { "a" : 1.50, "a":"\u003c<" } `, // verbatim, duplicates too
		"{\n\t\"b\": 1,\r\n\"a\": [1,\n2]}\n": `,"payload":{"b":1,"a":[1,2]}`,
		"\"\u2028<\u00e9\"":                   ",\"payload\":\"\u2028<\u00e9\"",
		"[\"\u2028<\u00e9\",\n1E+2]":          ",\"payload\":[\"\u2028<\u00e9\",1E+2]",
		`null`:                                `,"payload":null`,
		`12345678901234567890.10`:             `,"payload":12345678901234567890.10`,
		"\"\xff\"":                            `,"payload_base64":"Iv8i"`, // JSON but for its UTF-8
		"\xef\xbb\xbf{}":                      `,"payload_base64":"77u/e30="`,
		"plain":                               `,"payload_base64":"cGxhaW4="`,
		`{} {}`:                               `,"payload_base64":"e30ge30="`,
		"":                                    `,"payload_base64":""`,
		strings.Repeat("[", 1_000_000):        `,"payload_base64":"` + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("["), 1_000_000)) + `"`,
		strings.Repeat("[", 9000) + strings.Repeat("]", 9000): `,"payload":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
	} {
		if got := string(jsonrecord.AppendPayload(nil, "payload", "payload_base64", []byte(payload), true)); got != want {
			t.Errorf("payload %.60q:\n got %.200s\nwant %.200s", payload, got, want)
		}
	}
}

func TestString(t *testing.T) {
	for s, want := range map[string]string{
		"":                      `""`,
		"plain ü €😀 <&> \u2028": "\"plain ü €😀 <&> \u2028\"",
		"a\"b\\c":               `"a\"b\\c"`,
		"a\nb\x00":              `"a\nb\u0000"`,
		"a\xffb":                "\"a\\ufffdb\"",
	} {
		if got := string(jsonrecord.AppendString([]byte("x"), s)); got != "x"+want {
			t.Errorf("%q is %s, want x%s", s, got, want)
		}
	}
}
