package settings_test

import (
	"encoding/json"
	"testing"

	"github.com/connectd/connectd/core/settings"
)

func TestSchema(t *testing.T) {
	type inner struct {
		On bool `json:"on" default:"true"`
	}
	type example struct {
		Brokers []string           `json:"brokers" required:"true" min:"1" doc:"where to connect"`
		Mode    string             `json:"mode" enum:"a,b" default:"a"`
		Pass    *settings.Secret   `json:"pass"`
		Wait    settings.Duration  `json:"wait" default:"1s" min:"10ms"`
		Size    settings.Bytes     `json:"size" max:"1MiB"`
		N       int                `json:"n" min:"1" max:"9"`
		Inner   *inner             `json:"inner"`
		Map     map[string]*string `json:"map"`
		Big     *int64             `json:"big"`
	}
	var got, want any
	if err := json.Unmarshal(settings.Schema(&example{}), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(`{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"type": "object", "additionalProperties": false, "required": ["brokers"],
		"properties": {
			"brokers": {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "where to connect"},
			"mode": {"type": "string", "anyOf": [{"enum": ["a", "b"]}, {"pattern": "\\$\\{.+\\}"}], "default": "a"},
			"pass": {"type": ["string", "null"], "x-secret": true},
			"wait": {"type": "string", "default": "1s",
				"pattern": "^([0-9]+d)?([0-9]+(\\.[0-9]*)?(ns|us|µs|ms|s|m|h))*$|\\$\\{.+\\}"},
			"size": {"type": ["integer", "string"], "maximum": 1048576,
				"pattern": "^[0-9]+(B|kB|MB|GB|KiB|MiB|GiB)?$|\\$\\{.+\\}"},
			"n": {"type": ["integer", "string"], "minimum": 1, "maximum": 9, "pattern": "^-?[0-9]+$|\\$\\{.+\\}"},
			"inner": {"type": ["object", "null"], "additionalProperties": false, "properties": {
				"on": {"type": ["boolean", "string"], "default": true, "pattern": "^(true|false)$|\\$\\{.+\\}"}}},
			"map": {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
			"big": {"type": ["integer", "string", "null"], "pattern": "^-?[0-9]+$|\\$\\{.+\\}"}
		}}`), &want); err != nil {
		t.Fatal(err)
	}
	g, _ := json.MarshalIndent(got, "", " ")
	w, _ := json.MarshalIndent(want, "", " ")
	if string(g) != string(w) {
		t.Errorf("got %s\nwant %s", g, w)
	}
}
