// Package template fills texts such as "orders.{type}" from a record's fields. Sinks use it for what is chosen record
// by record: topics, routing keys, URLs, headers.
//
// A field stands in braces: {id}, {key}, {route}, {type}, {connector} and {header:NAME}; {{ and }} are a brace each.
// A field without a value (a NULL key, an absent header, an empty route or type) is an error of that record, so that
// no record goes where nobody meant it to, unless the template says what to take instead: {key|none}, or {key|} for
// nothing.
package template

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/connectd/connectd/core"
)

// Template is a parsed text. It may be used concurrently.
type Template struct {
	parts []part
}

// part is either a literal or a field.
type part struct {
	literal  string
	field    string // "" for a literal
	header   string // the name, when field is "header"
	fallback string
	optional bool // fallback stands in for a missing value
}

// fields are the names that may stand in braces, header aside.
var fields = []string{"id", "key", "route", "type", "connector"}

// Parse reads a template. {connector} is filled in at once. The error says what is wrong and where, in characters from
// 1, without the text, which may hold a secret.
func Parse(text, connector string) (*Template, error) {
	t := &Template{}
	rest := text
	for rest != "" {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			t.add(rest)
			break
		}
		t.add(rest[:i])
		at := utf8.RuneCountInString(text[:len(text)-len(rest)+i]) + 1
		brace := rest[i : i+1]
		rest = rest[i+1:]
		switch {
		case strings.HasPrefix(rest, brace):
			t.add(brace)
			rest = rest[1:]
		case brace == "}":
			return nil, fmt.Errorf("has a } at character %d without its {; a brace of the text itself is written twice", at)
		default:
			inside, after, closed := strings.Cut(rest, "}")
			if !closed || strings.Contains(inside, "{") {
				return nil, fmt.Errorf("has a { at character %d without its }; a brace of the text itself is written twice", at)
			}
			p, err := parseField(inside)
			if err != nil {
				return nil, fmt.Errorf("has at character %d %w", at, err)
			}
			if p.field == "connector" {
				t.add(connector)
			} else {
				t.parts = append(t.parts, p)
			}
			rest = after
		}
	}
	return t, nil
}

// add appends a literal.
func (t *Template) add(text string) {
	if text == "" {
		return
	}
	if n := len(t.parts); n > 0 && t.parts[n-1].field == "" {
		t.parts[n-1].literal += text
		return
	}
	t.parts = append(t.parts, part{literal: text})
}

func parseField(inside string) (part, error) {
	var p part
	inside, p.fallback, p.optional = strings.Cut(inside, "|")
	p.field, p.header, _ = strings.Cut(inside, ":")
	if p.field == "header" {
		if p.header == "" {
			return p, errors.New("{header:NAME} without the name")
		}
		return p, nil
	}
	for _, name := range fields {
		if inside == name {
			return p, nil
		}
	}
	return p, fmt.Errorf("no known field; there are {%s} and {header:NAME}", strings.Join(fields, "}, {"))
}

// Fixed reports whether the text is the same for every record.
func (t *Template) Fixed() bool {
	for _, p := range t.parts {
		if p.field != "" {
			return false
		}
	}
	return true
}

// Append appends the text for a record to dst. escape, if not nil, is applied to the values of fields and to what
// stands in for them, not to the template's own text. The error names the field that has no value.
func (t *Template) Append(dst []byte, r *core.Record, escape func(string) string) ([]byte, error) {
	for i := range t.parts {
		p := &t.parts[i]
		if p.field == "" {
			dst = append(dst, p.literal...)
			continue
		}
		value, ok := p.value(r)
		if !ok {
			if !p.optional {
				return dst, fmt.Errorf("the record has no %s", p.name())
			}
			value = p.fallback
		}
		if escape != nil {
			value = escape(value)
		}
		dst = append(dst, value...)
	}
	return dst, nil
}

// Expand returns the text for a record, see Append.
func (t *Template) Expand(r *core.Record, escape func(string) string) (string, error) {
	if len(t.parts) == 1 && t.parts[0].field == "" {
		return t.parts[0].literal, nil
	}
	text, err := t.Append(nil, r, escape)
	return string(text), err
}

func (p *part) value(r *core.Record) (string, bool) {
	switch p.field {
	case "id":
		return r.ID, true
	case "key":
		return r.Key, r.Keyed
	case "route":
		return r.Route, r.Route != ""
	case "type":
		return r.Type, r.Type != ""
	default:
		return r.Header(p.header)
	}
}

func (p *part) name() string {
	if p.field == "header" {
		return fmt.Sprintf("header %q", p.header)
	}
	return p.field
}
