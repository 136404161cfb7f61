package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/connectd/connectd/core/settings"
)

// Schema returns the JSON Schema (draft 2020-12) of a whole file, for editors. sinks are the schemas of sinks' settings
// by plugin name; a sink whose schema is no JSON object, or that is not among them, may have any settings.
func Schema(sinks map[string][]byte) []byte {
	connector := object(settings.Schema(Connector{}))
	delete(connector, "$schema")
	properties := connector["properties"].(map[string]any)
	properties["sink"] = sinkSchema(properties["sink"].(map[string]any), sinks)
	columnNames := slices.Sorted(maps.Keys(columns))
	source := properties["source"].(map[string]any)["properties"].(map[string]any)
	source["columns"].(map[string]any)["propertyNames"] = map[string]any{"enum": columnNames}

	daemon := object(settings.Schema(Daemon{}))
	delete(daemon, "$schema")
	daemon["description"] = "the process's own part"
	data, err := json.MarshalIndent(map[string]any{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"title":                "connectd",
		"type":                 "object",
		"additionalProperties": false,
		"properties": map[string]any{
			"daemon": daemon,
			"connectors": map[string]any{
				"type":                 "object",
				"description":          "source/sink pairs by name",
				"propertyNames":        map[string]any{"pattern": connectorName.String()},
				"additionalProperties": connector,
			},
		},
	}, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("config: schema: %v", err)) // everything in it came from JSON
	}
	return data
}

// sinkSchema is plain, the schema of plugin alone, with the settings that each known plugin adds.
func sinkSchema(plain map[string]any, sinks map[string][]byte) map[string]any {
	delete(plain, "additionalProperties")
	var known []string
	var choices []any
	for _, name := range slices.Sorted(maps.Keys(sinks)) {
		own := object(sinks[name])
		if own == nil {
			continue
		}
		delete(own, "$schema")
		if own["$id"] == nil {
			own["$id"] = "urn:connectd:sink:" + name // so that its references to "#/..." stay its own
		}
		is := map[string]any{"const": name}
		inner, _ := own["properties"].(map[string]any)
		if inner == nil {
			inner = map[string]any{}
			own["properties"] = inner
		}
		inner["plugin"] = is
		known = append(known, name)
		choices = append(choices, map[string]any{
			"if":   map[string]any{"properties": map[string]any{"plugin": is}, "required": []string{"plugin"}},
			"then": own,
		})
	}
	if choices != nil {
		plain["allOf"] = choices
		plugin := plain["properties"].(map[string]any)["plugin"].(map[string]any)
		// Two ways, so that editors complete the known names.
		plugin["anyOf"] = []any{map[string]any{"enum": known}, map[string]any{"pattern": pluginName.String()}}
	}
	return plain
}

// object reads a JSON object; nil when it is none.
func object(data []byte) map[string]any {
	var m map[string]any
	if json.Unmarshal(data, &m) != nil {
		return nil
	}
	return m
}
