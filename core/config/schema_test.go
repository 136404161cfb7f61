package config_test

import (
	"encoding/json"
	"testing"

	"github.com/connectd/connectd/core/config"
)

func TestSchemaHoldsTheSinksSettings(t *testing.T) {
	data := config.Schema(map[string][]byte{
		"kafka": []byte(`{"type": "object", "properties": {"topic": {"$ref": "#/$defs/t"}}, "additionalProperties": false, "$defs": {"t": {"type": "string"}}}`),
		"odd":   []byte(`true`),
	})
	var schema struct {
		Properties struct {
			Daemon     struct{ Properties map[string]any }
			Connectors struct {
				AdditionalProperties struct {
					AdditionalProperties *bool
					Required             []string
					Properties           map[string]json.RawMessage
				}
			}
		}
	}
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	connector := schema.Properties.Connectors.AdditionalProperties
	for _, name := range []string{"source", "sink", "process", "delivery", "retention", "audit"} {
		if connector.Properties[name] == nil {
			t.Errorf("no %s in the schema", name)
		}
	}
	if schema.Properties.Daemon.Properties["http"] == nil || connector.AdditionalProperties == nil || *connector.AdditionalProperties {
		t.Errorf("the schema is loose: %s", data)
	}
	var got, want any
	if err := json.Unmarshal(connector.Properties["sink"], &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(`{
		"type": "object", "required": ["plugin"],
		"description": "the destination; its keys are the plugin's settings",
		"properties": {"plugin": {"type": "string",
			"anyOf": [{"enum": ["kafka"]}, {"pattern": "^[a-z0-9][a-z0-9_-]{0,63}$"}],
			"description": "kafka, rabbitmq, webhook, file, or NAME of a connectd-sink-NAME in plugin_dir"}},
		"allOf": [{
			"if": {"properties": {"plugin": {"const": "kafka"}}, "required": ["plugin"]},
			"then": {
				"$id": "urn:connectd:sink:kafka", "type": "object", "additionalProperties": false,
				"properties": {"plugin": {"const": "kafka"}, "topic": {"$ref": "#/$defs/t"}},
				"$defs": {"t": {"type": "string"}}
			}}]}`), &want); err != nil {
		t.Fatal(err)
	}
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	if string(g) != string(w) {
		t.Errorf("got  %s\nwant %s", g, w)
	}
}
