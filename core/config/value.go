package config

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"

	"github.com/connectd/connectd/core/settings"
)

// value is a YAML value, substituted, with its place.
type value struct {
	pos    Pos  // of its key or list item
	data   any  // nil, bool, string, json.Number, []*value or *mapping
	size   int  // what it weighs in JSON, roughly
	height int  // levels below it
	bad    bool // has a problem already; data is nil
}

// mapping is a YAML mapping in the order of the file.
type mapping struct {
	names  []string
	values map[string]*value
}

// only returns the mapping of those keys that keep holds for.
func (m *mapping) only(keep func(name string) bool) *mapping {
	some := &mapping{values: map[string]*value{}}
	for _, name := range m.names {
		if keep(name) {
			some.names = append(some.names, name)
			some.values[name] = m.values[name]
		}
	}
	return some
}

// with returns the mapping with another value at a key that is there.
func (m *mapping) with(name string, v *value) *mapping {
	values := maps.Clone(m.values)
	values[name] = v
	return &mapping{names: m.names, values: values}
}

// find follows a JSON pointer as far as it goes.
func (v *value) find(pointer string) *value {
	for _, token := range tokens(pointer) {
		next := v.child(token)
		if next == nil {
			break
		}
		v = next
	}
	return v
}

func (v *value) child(name string) *value {
	switch data := v.data.(type) {
	case *mapping:
		return data.values[name]
	case []*value:
		if i, err := strconv.ParseUint(name, 10, 31); err == nil && int(i) < len(data) {
			return data[i]
		}
	}
	return nil
}

// appendJSON writes v; numbers stay as they were written.
func (v *value) appendJSON(b []byte) []byte {
	switch data := v.data.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, data)
	case json.Number:
		return append(b, data...)
	case string:
		return appendString(b, data)
	case []*value:
		b = append(b, '[')
		for i, item := range data {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.appendJSON(b)
		}
		return append(b, ']')
	default:
		return data.(*mapping).appendJSON(b)
	}
}

func (m *mapping) appendJSON(b []byte) []byte {
	b = append(b, '{')
	for i, name := range m.names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, name), ':')
		b = m.values[name].appendJSON(b)
	}
	return append(b, '}')
}

func appendString(b []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic("config: a string that JSON cannot hold: " + err.Error()) // there is none
	}
	return append(b, text...)
}

// tokens splits a JSON pointer.
func tokens(pointer string) []string {
	if pointer == "" {
		return nil
	}
	list := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i := range list {
		list[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(list[i])
	}
	return list
}

// pointerTo makes a JSON pointer of names.
func pointerTo(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		b.WriteString("/" + settings.Escape(name))
	}
	return b.String()
}
