package settings

import (
	"encoding/json"
	"fmt"
	"reflect"
)

// Patterns of the schema. They apply to strings only, and let ${NAME} pass, which is not substituted yet in the file
// that an editor looks at.
const (
	variable        = `\$\{.+\}`
	durationPattern = `^([0-9]+d)?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))*$|` + variable
	bytesPattern    = `^[0-9]+(B|kB|MB|GB|KiB|MiB|GiB)?$|` + variable
	integerPattern  = `^-?[0-9]+$|` + variable
	numberPattern   = `^-?[0-9]|` + variable
	boolPattern     = `^(true|false)$|` + variable
)

// Schema returns the JSON Schema (draft 2020-12) of the settings that Decode reads into a struct like example, which
// may be a struct or a pointer to one. Secrets are marked "x-secret": true.
func Schema(example any) []byte {
	t := reflect.TypeOf(example)
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		panic(fmt.Sprintf("settings: no schema for a %T, only for a struct", example))
	}
	s := structSchema(t)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("settings: schema of %T: %v", example, err)) // it is made of strings, numbers and maps
	}
	return data
}

func structSchema(t reflect.Type) map[string]any {
	properties := map[string]any{}
	required := []string{}
	for _, f := range fields(t) {
		properties[f.name] = fieldSchema(f)
		if f.required {
			required = append(required, f.name)
		}
	}
	s := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func fieldSchema(f field) map[string]any {
	s := typeSchema(f.typ)
	t := f.typ
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if f.enum != nil {
		// Two ways, so that editors still complete the words.
		s = map[string]any{"type": s["type"], "anyOf": []any{
			map[string]any{"enum": f.enum},
			map[string]any{"pattern": variable},
		}}
	}
	if f.doc != "" {
		s["description"] = f.doc
	}
	if f.hasFall {
		s["default"] = defaultValue(t, f.fallback)
	}
	for which, bound := range map[string]*float64{"min": f.min, "max": f.max} {
		if key := boundKey(t, which); key != "" && bound != nil {
			s[key] = *bound
		}
	}
	return s
}

// defaultValue writes a default as YAML would have it.
func defaultValue(t reflect.Type, text string) any {
	switch {
	case isText(t) || t.Kind() == reflect.String:
		return text
	default:
		return json.RawMessage(text)
	}
}

func boundKey(t reflect.Type, which string) string {
	imum := map[string]string{"min": "minimum", "max": "maximum"}[which]
	switch {
	case t == bytesType:
		return imum // of bare numbers
	case isText(t):
		return ""
	case t.Kind() == reflect.String:
		return which + "Length"
	case t.Kind() == reflect.Slice:
		return which + "Items"
	case t.Kind() == reflect.Map:
		return which + "Properties"
	}
	return imum
}

func typeSchema(t reflect.Type) map[string]any {
	switch {
	case t.Kind() == reflect.Pointer:
		return nullable(typeSchema(t.Elem()))
	case t == durationType:
		return map[string]any{"type": "string", "pattern": durationPattern}
	case t == bytesType:
		return map[string]any{"type": []string{"integer", "string"}, "pattern": bytesPattern}
	case t == secretType:
		return map[string]any{"type": "string", "x-secret": true}
	case isNumeric(t):
		return map[string]any{"type": []string{"integer", "string"}}
	case isText(t):
		return map[string]any{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Struct:
		return structSchema(t)
	case reflect.Slice:
		return map[string]any{"type": "array", "items": typeSchema(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": typeSchema(t.Elem())}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": []string{"boolean", "string"}, "pattern": boolPattern}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": []string{"number", "string"}, "pattern": numberPattern}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": []string{"integer", "string"}, "pattern": integerPattern}
	}
	panic(fmt.Sprintf("settings: no setting can be a %s", t))
}

// nullable lets a schema that has a type pass null too.
func nullable(s map[string]any) map[string]any {
	switch t := s["type"].(type) {
	case string:
		s["type"] = []string{t, "null"}
	case []string:
		s["type"] = append(t, "null")
	}
	return s
}
