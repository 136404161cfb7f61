package settings_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/settings"
)

type tlsConfig struct {
	CA     string          `json:"ca" required:"true"`
	Verify bool            `json:"verify" default:"true"`
	Wait   settings.Bytes  `json:"wait" default:"2KiB"`
	Pass   settings.Secret `json:"pass"`
}

type config struct {
	Brokers []string          `json:"brokers" required:"true" doc:"host:port of at least one broker"`
	Acks    string            `json:"acks" default:"all" enum:"all,leader"`
	Timeout settings.Duration `json:"timeout" default:"10s" min:"100ms" max:"5m"`
	Buffer  settings.Bytes    `json:"buffer" default:"1MiB" max:"16MiB"`
	Pass    settings.Secret   `json:"password"`
	Retries int8              `json:"retries" default:"3" min:"0"`
	Size    uint16            `json:"size"`
	Ratio   float64           `json:"ratio" default:"0.5" max:"1"`
	TLS     *tlsConfig        `json:"tls"`
	Proxy   tlsConfig         `json:"proxy"`
	Headers map[string]string `json:"headers"`
	Rules   []tlsConfig       `json:"rules" max:"2"`
	Big     *int64            `json:"big"`
	Private string            `json:"-"`
}

func TestDecodeFillsTheStruct(t *testing.T) {
	c := config{Private: "kept", Size: 7}
	diags := settings.Decode([]byte(`{
		"brokers": ["a:1", "b:2"], "timeout": "1m30s", "buffer": 4096, "password": "s3cret", "retries": "5",
		"tls": {"ca": "/ca.pem", "verify": "false"}, "headers": {"x~/y": "1"}, "rules": [{"ca": "r"}],
		"big": 9007199254740993}`), &c)
	if len(diags) > 0 {
		t.Fatalf("diagnostics: %v", diags)
	}
	if !slices.Equal(c.Brokers, []string{"a:1", "b:2"}) || c.Acks != "all" || c.Buffer != 4096 || c.Retries != 5 {
		t.Errorf("got %+v", c)
	}
	if time.Duration(c.Timeout) != 90*time.Second || c.Pass.Reveal() != "s3cret" || c.Ratio != 0.5 {
		t.Errorf("got %+v", c)
	}
	if c.TLS == nil || c.TLS.CA != "/ca.pem" || c.TLS.Verify || c.TLS.Wait != 2048 {
		t.Errorf("tls is %+v", c.TLS)
	}
	if c.Proxy.CA != "" || !c.Proxy.Verify || c.Proxy.Wait != 2048 {
		t.Errorf("an absent map of settings has no defaults: %+v", c.Proxy)
	}
	if c.Headers["x~/y"] != "1" || len(c.Rules) != 1 || c.Rules[0].CA != "r" || !c.Rules[0].Verify {
		t.Errorf("got %+v", c)
	}
	if c.Big == nil || *c.Big != 9007199254740993 {
		t.Errorf("a large number is not exact: %v", c.Big)
	}
	if c.Private != "kept" || c.Size != 7 {
		t.Errorf("fields that are not set lost their values: %+v", c)
	}
}

func TestDecodeReportsEverythingAtOnce(t *testing.T) {
	var c config
	got := settings.Decode([]byte(`{"brokrs": [], "acks": "some", "timeout": 600, "retries": 300, "size": -1,
		"ratio": 1.5, "tls": {"verify": 1, "c/a": ""}, "headers": {"x~/y": 3}, "rules": [{"ca": null}], "buffer": "32MiB"}`), &c)
	want := []core.Diagnostic{
		{Pointer: "/brokrs", Message: `is not a known setting; did you mean "brokers"?`},
		{Pointer: "/acks", Message: "must be one of all, leader"},
		{Pointer: "/timeout", Message: `must be a duration with a unit, such as "500ms", "30s", "5m", "24h" or "7d"`},
		{Pointer: "/retries", Message: "must be a whole number from -128 to 127"},
		{Pointer: "/size", Message: "must be a whole number from 0 to 65535"},
		{Pointer: "/ratio", Message: "must be at most 1"},
		{Pointer: "/tls/verify", Message: "must be true or false"},
		{Pointer: "/tls/c~1a", Message: `is not a known setting; did you mean "ca"?`},
		{Pointer: "/tls/ca", Message: "is required"},
		{Pointer: "/headers/x~0~1y", Message: "must be a string; put it in quotes"},
		{Pointer: "/rules/0/ca", Message: "has no value; it must be a string, or not be there at all"},
		{Pointer: "/buffer", Message: "must be at most 16MiB"},
		{Pointer: "/brokers", Message: "is required"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", lines(got), lines(want))
	}
}

func TestDecodeOneProblem(t *testing.T) {
	for _, c := range []struct{ json, pointer, says string }{
		{`{"brokers": []}`, "/brokers", "must not be empty"},
		{`{"brokers": "a"}`, "/brokers", "must be a list"},
		{`{"brokers": ["a"], "brokers": ["b"]}`, "/brokers", "is set twice"},
		{`{"brokers": ["a"], "timeout": "5seconds"}`, "/timeout", "must be a duration"},
		{`{"brokers": ["a"], "timeout": "50ms"}`, "/timeout", "must be 100ms to 5m"},
		{`{"brokers": ["a"], "buffer": "1.5MiB"}`, "/buffer", "must be a size"},
		{`{"brokers": ["a"], "buffer": true}`, "/buffer", "must be a size"},
		{`{"brokers": ["a"], "password": 12345}`, "/password", "put it in quotes"},
		{`{"brokers": ["a"], "tls": []}`, "/tls", "must be a map of settings"},
		{`{"brokers": ["a"], "headers": "x"}`, "/headers", "must be a map"},
		{`{"brokers": ["a"], "rules": [{"ca":"1"},{"ca":"2"},{"ca":"3"}]}`, "/rules", "length of at most 2"},
		{`{"brokers": ["a"], "retries": 1.5}`, "/retries", "must be a whole number"},
		{`{"brokers": ["a"], "ratio": "NaN"}`, "/ratio", "must be a number"},
		{`{"brokers": ["a"], "completely": 1}`, "/completely", "valid are acks, big, brokers"},
		{`["a"]`, "", "must be a map of settings"},
		{`{"brokers": ["a"]} {}`, "", "something follows"},
		{`{"brokers": ["a"]`, "", "not valid JSON"},
		{"{\"brokers\": [\"\xff\"]}", "", "not valid UTF-8"},
		{strings.Repeat(`[`, 100), "", "nested deeper"},
		{``, "", "not valid JSON"},
	} {
		var into config
		got := settings.Decode([]byte(c.json), &into)
		if len(got) != 1 || got[0].Pointer != c.pointer || !strings.Contains(got[0].Message, c.says) {
			t.Errorf("%s: got %s", c.json, lines(got))
		}
	}
}

func TestNoMessageContainsAValue(t *testing.T) {
	const secret = "hunter2"
	for _, field := range []string{"brokers", "acks", "timeout", "buffer", "retries", "size", "ratio", "tls", "headers", "rules", "big"} {
		var c config
		diags := settings.Decode([]byte(`{"`+field+`": "`+secret+`"}`), &c)
		if len(diags) == 0 || strings.Contains(lines(diags), secret) {
			t.Errorf("%s: %s", field, lines(diags))
		}
	}
	var c config
	if diags := settings.Decode([]byte(`{"password": "`+secret+`"; }`), &c); strings.Contains(lines(diags), secret) {
		t.Errorf("broken JSON: %s", lines(diags))
	}
}

// code is a text type that takes bare numbers too.
type code string

func (c *code) UnmarshalText(text []byte) error { *c = code(text); return nil }
func (c *code) Numeric()                        {}

func TestDecodeTakesBareNumbersWhereATypeSaysSo(t *testing.T) {
	var c struct {
		Codes []code `json:"codes"`
	}
	if diags := settings.Decode([]byte(`{"codes": [404, "5xx"]}`), &c); len(diags) > 0 || !slices.Equal(c.Codes, []code{"404", "5xx"}) {
		t.Errorf("%v, %s", c.Codes, lines(diags))
	}
	if diags := settings.Decode([]byte(`{"codes": [true]}`), &c); len(diags) != 1 || diags[0].Message != "must be a string or a number" {
		t.Errorf("a truth value: %s", lines(diags))
	}
	if schema := string(settings.Schema(c)); !strings.Contains(schema, `"integer",`) {
		t.Error(schema)
	}
}

func lines(diags []core.Diagnostic) string {
	var b strings.Builder
	for _, d := range diags {
		fmt.Fprintf(&b, "%s: %s\n", d.Pointer, d.Message)
	}
	return b.String()
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"brokers": ["a:1"], "tls": {"ca": "x"}, "timeout": "5s", "buffer": "1MiB"}`))
	f.Add([]byte(`{"a": [[[{"b": 1e400}]]], "a": null}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		var c config
		settings.Decode(data, &c)
	})
}
