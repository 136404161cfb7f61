package sinktest

import (
	"encoding/json"
	"reflect"
)

// checkDescribe wants the same description each time, before and after Open, with a usable schema. Limits and preferences
// may depend on the settings.
func checkDescribe(c *trial) {
	first := c.describe()
	if first.Name == "" || first.Version == "" {
		c.Errorf("the sink describes itself without a name or a version: %q, %q", first.Name, first.Version)
	}
	l := first.Limits
	if l.MaxRecords < 0 || l.MaxBytes < 0 || l.MaxRecordBytes < 0 || l.MaxInFlight < 0 {
		c.Errorf("a limit is negative: %+v", l)
	}
	var schema struct {
		Type       string
		Properties map[string]json.RawMessage
	}
	if err := json.Unmarshal(first.Schema, &schema); err != nil {
		c.Fatalf("the schema of the settings is not JSON: %v", err)
	}
	if schema.Type != "object" {
		c.Errorf("the schema of the settings describes %q, not an object", schema.Type)
	}
	var settings map[string]json.RawMessage
	if err := json.Unmarshal(c.Settings, &settings); err != nil {
		c.Fatalf("the harness's Settings are not a JSON object: %v", err)
	}
	for name := range settings {
		if schema.Properties[name] == nil {
			c.Errorf("the schema does not know the setting %q", name)
		}
	}
	if first.Prefers.MaxRecords < 0 || first.Prefers.InFlight < 0 {
		c.Errorf("a preference is negative: %+v", first.Prefers)
	}
	c.open()
	again := c.describe()
	if third := c.describe(); !reflect.DeepEqual(again, third) {
		c.Errorf("asked twice, the sink describes itself differently:\n%+v\n%+v", again, third)
	}
	first.Limits, first.Prefers = again.Limits, again.Prefers
	if !reflect.DeepEqual(first, again) {
		c.Errorf("after Open the sink describes itself differently:\n%+v\n%+v", first, again)
	}
}
