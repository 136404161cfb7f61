package settings

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/connectd/connectd/core"
)

// Decode reads the JSON object data into the struct that into points to and returns every problem it finds; with none,
// the struct is filled. It panics when into or the tags below it are not as the package comment says: that is a mistake
// in the program and not in the settings.
func Decode(data []byte, into any) []core.Diagnostic {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		panic(fmt.Sprintf("settings: cannot decode into %T, only into a pointer to a struct", into))
	}
	tree, diags, err := parse(data)
	if err != nil {
		return []core.Diagnostic{{Message: err.Error()}}
	}
	d := &decoder{diags: diags}
	d.value("", v.Elem(), tree)
	return d.diags
}

type decoder struct {
	diags []core.Diagnostic
}

func (d *decoder) wrong(at, format string, args ...any) {
	d.diags = append(d.diags, core.Diagnostic{Pointer: at, Message: fmt.Sprintf(format, args...)})
}

// value sets v from tree and says whether it could.
func (d *decoder) value(at string, v reflect.Value, tree any) bool {
	if v.Kind() == reflect.Pointer {
		if tree == nil {
			v.SetZero()
			return true
		}
		v.Set(reflect.New(v.Type().Elem()))
		return d.value(at, v.Elem(), tree)
	}
	if isText(v.Type()) {
		return d.text(at, v, tree)
	}
	switch v.Kind() {
	case reflect.Struct:
		obj, ok := tree.(*object)
		if !ok {
			return d.mistyped(at, "a map of settings", tree)
		}
		d.structure(at, v, obj)
		return true
	case reflect.Map:
		return d.mapping(at, v, tree)
	case reflect.Slice:
		return d.list(at, v, tree)
	default:
		return d.scalar(at, v, tree)
	}
}

// structure sets the fields of v: those in obj first, in its order, then the defaults of the others.
func (d *decoder) structure(at string, v reflect.Value, obj *object) {
	all := fields(v.Type())
	for _, name := range obj.names {
		below := at + "/" + Escape(name)
		i := slices.IndexFunc(all, func(f field) bool { return f.name == name })
		if i < 0 {
			d.wrong(below, "is not a known setting%s", DidYouMean(name, names(all)))
			continue
		}
		f := all[i]
		if d.value(below, v.FieldByIndex(f.index), obj.values[name]) {
			d.check(below, f, v.FieldByIndex(f.index))
		}
	}
	for _, f := range all {
		if _, there := obj.values[f.name]; there {
			continue
		}
		if f.required {
			d.wrong(at+"/"+Escape(f.name), "is required")
			continue
		}
		d.fallback(f, v.FieldByIndex(f.index))
	}
}

// fallback sets a field that is absent.
func (d *decoder) fallback(f field, v reflect.Value) {
	if f.hasFall {
		var own decoder
		if !own.value("", v, f.fallback) {
			panic(fmt.Sprintf("settings: default of %q: %s", f.name, own.diags[0].Message))
		}
		return
	}
	if v.Kind() == reflect.Struct && !isText(v.Type()) {
		// What is required inside counts only when the whole is there.
		for _, inner := range fields(v.Type()) {
			d.fallback(inner, v.FieldByIndex(inner.index))
		}
	}
}

func (d *decoder) mapping(at string, v reflect.Value, tree any) bool {
	obj, ok := tree.(*object)
	if !ok {
		return d.mistyped(at, "a map", tree)
	}
	m := reflect.MakeMap(v.Type())
	good := true
	for _, name := range obj.names {
		item := reflect.New(v.Type().Elem()).Elem()
		good = d.value(at+"/"+Escape(name), item, obj.values[name]) && good
		m.SetMapIndex(reflect.ValueOf(name).Convert(v.Type().Key()), item)
	}
	v.Set(m)
	return good
}

func (d *decoder) list(at string, v reflect.Value, tree any) bool {
	items, ok := tree.([]any)
	if !ok {
		return d.mistyped(at, "a list", tree)
	}
	list := reflect.MakeSlice(v.Type(), len(items), len(items))
	good := true
	for i, item := range items {
		good = d.value(at+"/"+strconv.Itoa(i), list.Index(i), item) && good
	}
	v.Set(list)
	return good
}

// text reads a value by its UnmarshalText.
func (d *decoder) text(at string, v reflect.Value, tree any) bool {
	s, ok := tree.(string)
	if n, number := tree.(json.Number); number && isNumeric(v.Type()) {
		s, ok = n.String(), true
	}
	if !ok {
		want := "a string"
		switch {
		case v.Type() == durationType:
			want = strings.TrimPrefix(errDuration.Error(), "must be ")
		case v.Type() == bytesType:
			want = strings.TrimPrefix(errBytes.Error(), "must be ")
		case isNumeric(v.Type()):
			want = "a string or a number"
		}
		return d.mistyped(at, want, tree)
	}
	if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s)); err != nil {
		d.wrong(at, "%v", err)
		return false
	}
	return true
}

// scalar reads a string, bool or number. Bools and numbers may come as strings.
func (d *decoder) scalar(at string, v reflect.Value, tree any) bool {
	s, isString := tree.(string)
	if n, ok := tree.(json.Number); ok && v.Kind() != reflect.String && v.Kind() != reflect.Bool {
		s, isString = n.String(), true
	}
	if b, ok := tree.(bool); ok && v.Kind() == reflect.Bool {
		s, isString = strconv.FormatBool(b), true
	}
	want, good := "", false
	switch {
	case v.Kind() == reflect.String:
		want, good = "a string", isString
		v.SetString(s)
	case v.Kind() == reflect.Bool:
		want, good = "true or false", isString && (s == "true" || s == "false")
		v.SetBool(s == "true")
	case v.CanInt():
		n, err := strconv.ParseInt(s, 10, v.Type().Bits())
		want, good = "a whole number", isString && err == nil
		if bits := v.Type().Bits(); bits < 64 {
			top := int64(math.MaxInt64) >> (64 - bits)
			want = fmt.Sprintf("a whole number from %d to %d", -top-1, top)
		}
		v.SetInt(n)
	case v.CanUint():
		n, err := strconv.ParseUint(s, 10, v.Type().Bits())
		want, good = "a whole number, not negative", isString && err == nil
		if bits := v.Type().Bits(); bits < 64 {
			want = fmt.Sprintf("a whole number from 0 to %d", uint64(math.MaxUint64)>>(64-bits))
		}
		v.SetUint(n)
	case v.CanFloat():
		n, err := strconv.ParseFloat(s, v.Type().Bits())
		want, good = "a number", isString && err == nil && n-n == 0 // neither Inf nor NaN
		v.SetFloat(n)
	default:
		panic(fmt.Sprintf("settings: no setting can be a %s", v.Type()))
	}
	if !good {
		v.SetZero()
		return d.mistyped(at, want, tree)
	}
	return true
}

func (d *decoder) mistyped(at, want string, tree any) bool {
	switch tree.(type) {
	case nil:
		d.wrong(at, "has no value; it must be %s, or not be there at all", want)
	case json.Number, bool:
		if want == "a string" {
			want = "a string; put it in quotes"
		}
		d.wrong(at, "must be %s", want)
	default:
		d.wrong(at, "must be %s", want)
	}
	return false
}
