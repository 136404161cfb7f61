package settings

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// field is one setting: where it is in the struct and what its tags say.
type field struct {
	name     string
	index    []int // through the structs that it is embedded by
	typ      reflect.Type
	required bool
	fallback string // the default tag
	hasFall  bool
	enum     []string
	min, max *float64
	minText  string // the tags as written, for messages
	maxText  string
	doc      string
}

var (
	durationType = reflect.TypeFor[Duration]()
	bytesType    = reflect.TypeFor[Bytes]()
	secretType   = reflect.TypeFor[Secret]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
	numericType  = reflect.TypeFor[Numeric]()
)

// Numeric is a type with an UnmarshalText method whose values may also be bare numbers, such as a size or a status code.
type Numeric interface {
	encoding.TextUnmarshaler
	Numeric()
}

// isText says whether values of t are read from a string by UnmarshalText.
func isText(t reflect.Type) bool { return reflect.PointerTo(t).Implements(textType) }

// isNumeric says whether a bare number will do for one of these too.
func isNumeric(t reflect.Type) bool { return reflect.PointerTo(t).Implements(numericType) }

// fields reads the tags of a struct type, those of structs that it embeds included. A mistake in them is the author's, so
// it panics.
func fields(t reflect.Type) []field {
	var all []field
	for i := range t.NumField() {
		sf := t.Field(i)
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if name == "-" || !sf.IsExported() {
			continue
		}
		if name == "" && sf.Anonymous && sf.Type.Kind() == reflect.Struct && !isText(sf.Type) {
			for _, f := range fields(sf.Type) {
				f.index = append([]int{i}, f.index...)
				all = append(all, f)
			}
			continue
		}
		if name == "" {
			panic(fmt.Sprintf("settings: field %s.%s needs a json tag with a name", t, sf.Name))
		}
		f := field{name: name, index: []int{i}, typ: sf.Type, doc: sf.Tag.Get("doc"), required: sf.Tag.Get("required") == "true"}
		f.fallback, f.hasFall = sf.Tag.Lookup("default")
		if enum, ok := sf.Tag.Lookup("enum"); ok {
			f.enum = strings.Split(enum, ",")
		}
		f.min, f.minText = f.bound(sf.Tag, "min")
		f.max, f.maxText = f.bound(sf.Tag, "max")
		all = append(all, f)
	}
	for i, name := range names(all) {
		if slices.Contains(names(all[:i]), name) {
			panic(fmt.Sprintf("settings: %s has two fields %q", t, name))
		}
	}
	return all
}

func (f *field) bound(tag reflect.StructTag, which string) (*float64, string) {
	text, ok := tag.Lookup(which)
	if !ok {
		return nil, ""
	}
	var n float64
	var err error
	switch f.typ {
	case durationType:
		d, e := ParseDuration(text)
		n, err = float64(d), e
	case bytesType:
		b, e := ParseBytes(text)
		n, err = float64(b), e
	default:
		n, err = strconv.ParseFloat(text, 64)
	}
	if err != nil {
		panic(fmt.Sprintf("settings: %s of %q: %v", which, f.name, err))
	}
	return &n, text
}

// names lists the fields' names.
func names(all []field) []string {
	list := make([]string, len(all))
	for i, f := range all {
		list[i] = f.name
	}
	return list
}
