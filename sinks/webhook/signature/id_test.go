package signature

import (
	"strings"
	"testing"
)

func TestEncodeID(t *testing.T) {
	for id, want := range map[string]string{
		"order-1":                              "order-1",
		"0192f0c4-7c1e-7a53-9d0b-2f6f5e0a1b2c": "0192f0c4-7c1e-7a53-9d0b-2f6f5e0a1b2c",
		"msg_2KWP":                             "msg_2KWP",
		"42":                                   "42",
		"order.1":                              "b64_b3JkZXIuMQ",
		"order 1":                              "b64_b3JkZXIgMQ",
		"a/b":                                  "b64_YS9i",
		"Zürich":                               "b64_WsO8cmljaA",
		"\xff\xfe":                             "b64___4",
		"a\r\nb":                               "b64_YQ0KYg",
		"":                                     "b64_",
		"b64_":                                 "b64_YjY0Xw",
		"b64_b3JkZXIuMQ":                       "b64_YjY0X2IzSmtaWEl1TVE",
		"b64":                                  "b64",
		"B64_x":                                "B64_x",
	} {
		got := EncodeID(id)
		if got != want {
			t.Errorf("EncodeID(%q) = %q, want %q", id, got, want)
		}
		if back, err := DecodeID(got); err != nil || back != id {
			t.Errorf("DecodeID(%q) = %q, %v", got, back, err)
		}
	}
}

func TestDecodeIDRefuses(t *testing.T) {
	for header, want := range map[string]string{
		"":                     "must be letters",
		"order.1":              "must be letters",
		"order 1":              "must be letters",
		"Zürich":               "must be letters",
		"b64_b3JkZXIuMQ==":     "without padding",
		"b64_b3JkZXIuMR":       "must be base64", // bits that mean nothing
		"b64_YS+i":             "URL-safe",
		"b64_b3Jk\nZXIuMQ":     "must be base64",
		"b64_x":                "must be base64",
		"b64_b3JkZXItMQ":       "must not be encoded", // order-1
		"b64_b3JkZXItMQ extra": "must be base64",
	} {
		if id, err := DecodeID(header); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("DecodeID(%q) = %q, %v; want an error with %q", header, id, err, want)
		}
	}
}

// FuzzDecodeID: every id has one form in the header, which is safe there, and every form one id.
func FuzzDecodeID(f *testing.F) {
	for _, s := range []string{"order-1", "order.1", "b64_", "b64_b3JkZXIuMQ", "", "b64_YS+i", "ü", "a\nb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		header := EncodeID(s)
		if header == "" || strings.Trim(header, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Errorf("EncodeID(%q) = %q", s, header)
		}
		if back, err := DecodeID(header); err != nil || back != s {
			t.Errorf("%q became %q and then %q, %v", s, header, back, err)
		}
		if id, err := DecodeID(s); err == nil && EncodeID(id) != s {
			t.Errorf("%q was read as %q, which is %q", s, id, EncodeID(id))
		}
	})
}
