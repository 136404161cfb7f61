package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/connectd/connectd/core"
)

// maxDepth is far deeper than any settings and far from the stack's end.
const maxDepth = 64

// object is a JSON object with its names in order.
type object struct {
	names  []string
	values map[string]any // nil, bool, string, json.Number, []any or *object
}

// parser reads JSON and notes duplicate names, which encoding/json lets pass.
type parser struct {
	dec   *json.Decoder
	diags []core.Diagnostic
}

func parse(data []byte) (any, []core.Diagnostic, error) {
	if !utf8.Valid(data) {
		return nil, nil, errors.New("is not valid UTF-8")
	}
	p := &parser{dec: json.NewDecoder(bytes.NewReader(data))}
	p.dec.UseNumber()
	v, err := p.value("", 0)
	if err == nil {
		if _, end := p.dec.Token(); !errors.Is(end, io.EOF) {
			err = errors.New("is not one JSON object: something follows")
		}
	}
	return v, p.diags, err
}

func (p *parser) value(at string, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("is nested deeper than %d", maxDepth)
	}
	tok, err := p.dec.Token()
	if err != nil {
		// The decoder's own words may quote the text.
		return nil, fmt.Errorf("is not valid JSON at byte %d", p.dec.InputOffset())
	}
	switch tok {
	case json.Delim('{'):
		return p.object(at, depth)
	case json.Delim('['):
		list := []any{}
		for p.dec.More() {
			v, err := p.value(at+"/"+strconv.Itoa(len(list)), depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, p.end()
	}
	return tok, nil
}

func (p *parser) object(at string, depth int) (any, error) {
	obj := &object{values: map[string]any{}}
	for p.dec.More() {
		tok, err := p.dec.Token()
		name, ok := tok.(string)
		if err != nil || !ok {
			return nil, fmt.Errorf("is not valid JSON at byte %d", p.dec.InputOffset())
		}
		below := at + "/" + Escape(name)
		v, err := p.value(below, depth+1)
		if err != nil {
			return nil, err
		}
		if _, twice := obj.values[name]; twice {
			p.diags = append(p.diags, core.Diagnostic{Pointer: below, Message: "is set twice"})
			continue
		}
		obj.names = append(obj.names, name)
		obj.values[name] = v
	}
	return obj, p.end()
}

func (p *parser) end() error {
	if _, err := p.dec.Token(); err != nil {
		return fmt.Errorf("is not valid JSON at byte %d", p.dec.InputOffset())
	}
	return nil
}

// Escape makes a name a reference token of an RFC 6901 JSON pointer.
func Escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
