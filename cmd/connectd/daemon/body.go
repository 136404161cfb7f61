package daemon

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/sync/semaphore"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/settings"
)

const (
	maxBodies   = 32 << 20         // bytes of the bodies of all requests that run; it must be above each one's limit
	bodyWait    = 5 * time.Second  // for other requests' bodies to be done with
	bodyTimeout = 10 * time.Second // for the bytes of one to come
)

// bodies bounds what the bodies of all running requests take together: a few large ones, or very many small ones.
type bodies struct {
	server *server
	room   *semaphore.Weighted
}

func newBodies(s *server) *bodies { return &bodies{s, semaphore.NewWeighted(maxBodies)} }

// within lets requests with a body of at most limit bytes through, once there is room for it, which each keeps until
// it is answered.
func (b *bodies) within(limit int64, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		size := r.ContentLength
		if size < 0 {
			size = limit // it comes in chunks
		}
		if size > limit {
			b.server.answer(w, nil, tooLarge(limit))
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), bodyWait)
		defer cancel()
		if b.room.Acquire(ctx, size) != nil {
			b.server.busy(w, r, "the bodies of other requests take all the room there is for them: send it again")
			return
		}
		defer b.room.Release(size)
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(cmp.Or(b.server.bodyTimeout, bodyTimeout))) // a recorder has none
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		next(w, r)
	}
}

func tooLarge(limit int64) error {
	return refuse(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", limit)
}

// readBody reads a POST's body, one JSON object, into a struct. Each field is there once at most, under its name to the
// letter; lists end the reading at the length that the struct's tag `max` says; text is as it was sent or refused.
func readBody(r *http.Request, into any) error {
	if err := isJSON(r); err != nil {
		return err
	}
	came := &arrival{from: r.Body}
	d := decoder{json.NewDecoder(came), map[reflect.Type]map[string]reflect.StructField{}}
	err := d.structure("", reflect.ValueOf(into).Elem())
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more behind the object")
		}
	}
	var large *http.MaxBytesError
	var refused *httpError
	switch {
	case err == nil, errors.As(err, &refused):
		return err
	case errors.As(came.err, &large):
		return tooLarge(large.Limit)
	case came.err != nil: // it names both ends of the connection
		return refuse(http.StatusRequestTimeout, "the body did not come whole, or took too long")
	}
	return refuse(http.StatusBadRequest, "the body is not as it should be: %s", core.CleanText(err.Error()))
}

// arrival notes why no more of a body came.
type arrival struct {
	from io.Reader
	err  error // but not io.EOF
}

func (a *arrival) Read(p []byte) (int, error) {
	n, err := a.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		a.err = err
	}
	return n, err
}

// decoder reads JSON into structs. Package json takes a field twice and in any case, replaces what is no text, and
// reads a list of any length.
type decoder struct {
	*json.Decoder
	fields map[reflect.Type]map[string]reflect.StructField // of structs, by their names in JSON
}

// object reads an object, whose names are each there once; value reads what is behind one.
func (d decoder) object(at string, value func(name, below string) error) error {
	if tok, err := d.Token(); err != nil || tok != json.Delim('{') {
		return d.wrong(at, "an object", err)
	}
	return d.members(at, value)
}

// members reads what is in an object.
func (d decoder) members(at string, value func(name, below string) error) error {
	seen := map[string]bool{}
	for d.More() {
		tok, err := d.Token()
		name, is := tok.(string)
		if !is {
			return d.wrong(at, "an object", err)
		}
		below := strings.TrimPrefix(at+"."+name, ".")
		if seen[name] {
			return fmt.Errorf("%s is there twice", below)
		}
		seen[name] = true
		if err := value(name, below); err != nil {
			return err
		}
	}
	return d.end(at)
}

// end reads what ends an object or a list.
func (d decoder) end(at string) error {
	if _, err := d.Token(); err != nil {
		return d.wrong(at, "", err)
	}
	return nil
}

func (d decoder) structure(at string, into reflect.Value) error {
	fields := d.fieldsOf(into.Type())
	return d.object(at, func(name, below string) error {
		field, known := fields[name]
		if !known {
			return fmt.Errorf("%.100q is not a field%s", below, settings.DidYouMean(name, slices.Sorted(maps.Keys(fields))))
		}
		return d.field(below, into.FieldByIndex(field.Index), field)
	})
}

// fieldsOf are the fields of a struct, those of embedded ones too, by their names in JSON.
func (d decoder) fieldsOf(t reflect.Type) map[string]reflect.StructField {
	if d.fields[t] == nil {
		d.fields[t] = map[string]reflect.StructField{}
		for _, f := range reflect.VisibleFields(t) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				d.fields[t][name] = f
			}
		}
	}
	return d.fields[t]
}

func (d decoder) field(at string, into reflect.Value, field reflect.StructField) error {
	switch most, _ := strconv.Atoi(field.Tag.Get("max")); into.Kind() {
	case reflect.Map:
		return d.texts(at, into, most)
	case reflect.Slice:
		if most > 0 {
			return d.list(at, into, most)
		}
	}
	return d.value(at, into)
}

// texts reads an object of texts.
func (d decoder) texts(at string, into reflect.Value, most int) error {
	switch tok, err := d.Token(); {
	case err == nil && tok == nil:
		return nil // null: it is not there
	case err != nil || tok != json.Delim('{'):
		return d.wrong(at, "an object", err)
	}
	all := map[string]text{}
	err := d.members(at, func(name, below string) error {
		if len(all) == most {
			return tooMany(at, most)
		}
		var t text
		if err := d.Decode(&t); err != nil {
			return d.wrong(below, "text", err)
		}
		all[name] = t
		return nil
	})
	into.Set(reflect.ValueOf(all))
	return err
}

func (d decoder) list(at string, into reflect.Value, most int) error {
	switch tok, err := d.Token(); {
	case err == nil && tok == nil:
		return nil // null: it is not there
	case err != nil || tok != json.Delim('['):
		return d.wrong(at, "a list", err)
	}
	list := reflect.MakeSlice(into.Type(), 0, 0)
	for d.More() {
		if list.Len() == most {
			return tooMany(at, most)
		}
		one := reflect.New(into.Type().Elem()).Elem()
		if err := d.element(fmt.Sprintf("%s[%d]", at, list.Len()), one); err != nil {
			return err
		}
		list = reflect.Append(list, one)
	}
	into.Set(list)
	return d.end(at)
}

// element reads one of a list, where null is nothing that could be meant.
func (d decoder) element(at string, into reflect.Value) error {
	if into.Kind() != reflect.String {
		return d.value(at, into)
	}
	var t *text
	if err := d.Decode(&t); err != nil || t == nil {
		return d.wrong(at, "text", err)
	}
	into.SetString(string(*t))
	return nil
}

func tooMany(at string, most int) error {
	return refuse(http.StatusRequestEntityTooLarge, "%s has more than %d entries", at, most)
}

func (d decoder) value(at string, into reflect.Value) error {
	switch into.Kind() {
	case reflect.Struct:
		return d.structure(at, into)
	case reflect.String:
		var t text
		if err := d.Decode(&t); err != nil {
			return d.wrong(at, "text", err)
		}
		into.SetString(string(t))
		return nil
	}
	if into.Type() == reflect.TypeFor[[]byte]() {
		return d.bytes(at, into)
	}
	if err := d.Decode(into.Addr().Interface()); err != nil {
		return d.wrong(at, kindOf(into.Type()), err)
	}
	if raw, is := into.Interface().(json.RawMessage); is && !exact(raw) {
		return d.wrong(at, "", errNoText)
	}
	return nil
}

// bytes reads base64 (RFC 4648, 4), which package json also takes as a list of numbers, or with line breaks in it.
func (d decoder) bytes(at string, into reflect.Value) error {
	var t *text
	if err := d.Decode(&t); err != nil {
		return d.wrong(at, "base64", err)
	}
	if t == nil {
		return nil
	}
	data, err := base64.StdEncoding.Strict().DecodeString(string(*t))
	if err != nil || strings.ContainsAny(string(*t), "\r\n") {
		return d.wrong(at, "base64", nil)
	}
	into.SetBytes(data)
	return nil
}

// wrong says what is wrong with a value, without the words of package json, which are about Go.
func (d decoder) wrong(at, want string, err error) error {
	if at == "" {
		at = "it"
	}
	var kind *json.UnmarshalTypeError
	switch {
	case errors.Is(err, errNoText):
		return fmt.Errorf("%s: %w", at, err)
	case errors.Is(err, io.EOF) && d.InputOffset() == 0:
		return errors.New("it is empty")
	case err == nil || errors.As(err, &kind):
		return fmt.Errorf("%s must be %s", at, want)
	}
	return fmt.Errorf("it is not JSON at byte %d", d.InputOffset())
}

func kindOf(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	default:
		return "text"
	}
}

// text is a JSON string that is read to the letter or not at all: package json replaces bytes that are not UTF-8 and
// halves of surrogate pairs, and an id that was changed would name another row.
type text string

var errNoText = errors.New("bytes that are not UTF-8, and half of a surrogate pair, are no text")

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(data []byte) error {
	if !exact(data) {
		return errNoText
	}
	return json.Unmarshal(data, (*string)(t))
}

// exact says whether valid JSON says every character of its strings (RFC 8259, 7 and 8.2).
func exact(data []byte) bool {
	unit := func(at []byte) rune {
		if len(at) < 6 || at[0] != '\\' || at[1] != 'u' {
			return -1
		}
		n, err := strconv.ParseUint(string(at[2:6]), 16, 32)
		if err != nil {
			return -1
		}
		return rune(n)
	}
	if !utf8.Valid(data) {
		return false
	}
	for {
		at := bytes.IndexByte(data, '\\')
		if at < 0 {
			return true
		}
		data = data[at:]
		length := 2
		if r := unit(data); utf16.IsSurrogate(r) {
			if length = 12; utf16.DecodeRune(r, unit(data[6:])) == utf8.RuneError {
				return false
			}
		}
		data = data[length:]
	}
}
