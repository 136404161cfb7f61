package settings

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
)

// Mask replaces by "***" every text in s that is a Secret somewhere in the struct that in is or points to. It is for what
// others say: errors of a client library, which like to quote an address with its password, and answers of a server. A
// secret that was encoded or cut is not found.
func Mask(s string, in any) string {
	for _, secret := range Secrets(in) {
		s = strings.ReplaceAll(s, secret, "***")
	}
	return s
}

// Secrets returns every text that is a Secret, and not empty, somewhere in the struct that in is or points to: the longest
// first, since one may be part of another.
func Secrets(in any) []string {
	var found []string
	collect(reflect.ValueOf(in), &found)
	slices.SortFunc(found, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return found
}

// collect adds the secrets in what a struct of settings may be made of.
func collect(v reflect.Value, found *[]string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			collect(v.Elem(), found)
		}
	case reflect.Struct:
		if v.Type() == secretType {
			if !v.CanInterface() { // an unexported field is no setting
				return
			}
			if text := v.Interface().(Secret).Reveal(); text != "" {
				*found = append(*found, text)
			}
			return
		}
		for i := range v.NumField() {
			collect(v.Field(i), found)
		}
	case reflect.Slice:
		for i := range v.Len() {
			collect(v.Index(i), found)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			collect(v.MapIndex(key), found)
		}
	}
}
