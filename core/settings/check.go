package settings

import (
	"reflect"
	"slices"
	"strings"
)

// check holds a value that was set against the field's tags.
func (d *decoder) check(at string, f field, v reflect.Value) {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			if f.required {
				d.wrong(at, "is required")
			}
			return
		}
		v = v.Elem()
	}
	size, isLength, counts := measure(v)
	if f.required && isLength && size == 0 {
		d.wrong(at, "must not be empty")
		return
	}
	if f.enum != nil && v.Kind() == reflect.String && !slices.Contains(f.enum, v.String()) {
		d.wrong(at, "must be one of %s", strings.Join(f.enum, ", "))
		return
	}
	if !counts {
		return
	}
	what := "must be"
	if isLength {
		what = "must have a length of"
	}
	low, high := f.min != nil && size < *f.min, f.max != nil && size > *f.max
	switch {
	case (low || high) && f.min != nil && f.max != nil:
		d.wrong(at, "%s %s to %s", what, f.minText, f.maxText)
	case low:
		d.wrong(at, "%s at least %s", what, f.minText)
	case high:
		d.wrong(at, "%s at most %s", what, f.maxText)
	}
}

// measure returns what min and max bound.
func measure(v reflect.Value) (size float64, isLength, counts bool) {
	switch {
	case v.Type() == secretType:
		return float64(len(v.Interface().(Secret).Reveal())), true, true
	case v.CanInt():
		return float64(v.Int()), false, true
	case v.CanUint():
		return float64(v.Uint()), false, true
	case v.CanFloat():
		return v.Float(), false, true
	case v.Kind() == reflect.String, v.Kind() == reflect.Slice, v.Kind() == reflect.Map:
		return float64(v.Len()), true, true
	}
	return 0, false, false
}
