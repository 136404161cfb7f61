// Package settingstest holds the documentation of a sink's settings to its code.
package settingstest

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// heading is the first line of the table.
const heading = "| setting | default | meaning |\n"

var row = regexp.MustCompile("(?m)^\\| `([a-z0-9_.\\[\\]]+)` \\| (.*?) \\|")

// Table compares a documentation's table with the heading "| setting | default | meaning |" with the settings of a struct,
// both ways: each setting has a row, by its name ("tls.ca_file", "secrets[].value"), whose default is that of its tag in
// backquotes, or "required"; where the tag has none, the row says in its own words what counts. groups are names of
// structs that may have a row too.
func Table(t *testing.T, documentation string, example any, groups ...string) {
	t.Helper()
	settings := map[string]string{}
	list(reflect.TypeOf(example), "", settings)
	_, table, found := strings.Cut(documentation, heading)
	if !found {
		t.Fatalf("the documentation has no table %s", heading)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	documented := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(table, -1) {
		if _, twice := documented[m[1]]; twice {
			t.Errorf("%s is there twice", m[1])
		}
		documented[m[1]] = m[2]
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		want, got := settings[name], documented[name]
		if want != "" && want != "required" {
			want = "`" + want + "`"
		}
		if got == "" || want != "" && got != want {
			t.Errorf("%s has the default %q and is documented with %q", name, want, got)
		}
	}
	for name := range documented {
		if _, known := settings[name]; !known && !slices.Contains(groups, name) {
			t.Errorf("%s is documented and unknown", name)
		}
	}
}

// list collects the settings of a struct by their names, and what their tags say of the default: the text, "required", or
// "" where there is none.
func list(t reflect.Type, prefix string, into map[string]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		switch name := prefix + tag; {
		case !f.IsExported() || tag == "-":
		case f.Anonymous && tag == "":
			list(f.Type, prefix, into)
		case group(f.Type) != nil:
			list(group(f.Type), name+".", into)
		default:
			if f.Type.Kind() == reflect.Slice && group(f.Type.Elem()) != nil {
				list(group(f.Type.Elem()), name+"[].", into)
			}
			into[name] = f.Tag.Get("default")
			if f.Tag.Get("required") == "true" {
				into[name] = "required"
			}
		}
	}
}

// group is the struct of a type that is a group of settings, perhaps behind a pointer, and nil for another type.
func group(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	_, isText := reflect.New(t).Interface().(interface{ UnmarshalText([]byte) error })
	if t.Kind() != reflect.Struct || isText {
		return nil
	}
	return t
}
