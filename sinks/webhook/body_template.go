package webhook

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/template"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/jsonrecord"
)

// bodyText is the setting body_template.
type bodyText struct {
	text      *template.Template
	connector string
	limit     int // bytes of a body
}

var (
	// errTooLong ends a template whose text has become longer than any body may be.
	errTooLong = errors.New("the body is larger than max_body_bytes")
	// errNoValue ends a template that would write "<no value>", package template's word for nil, into a body.
	errNoValue = errors.New("a value is not there; json writes it as null, default names another")
)

// parseBody reads a body template. Its functions are pure: the same record gives the same bytes each time it is sent.
func parseBody(text, connector string, limit int) (*bodyText, error) {
	t, err := template.New("body_template").Option("missingkey=error").Funcs(template.FuncMap{
		"json": asJSON, "base64": asBase64, "string": asString, "default": orDefault,
		"lower": strings.ToLower, "upper": strings.ToUpper, "trim": strings.TrimSpace,
		"replace": func(old, by, s string) string { return strings.ReplaceAll(s, old, by) },
		"split":   func(sep, s string) []string { return strings.Split(s, sep) },
		"join":    join,
	}).Parse(text)
	if err != nil {
		return nil, plainTemplateError(err)
	}
	return &bodyText{t, connector, limit}, nil
}

// bodyData is what a body template sees.
type bodyData struct {
	ID, Key, Route, Type, Connector string
	Keyed                           bool
	Payload                         payloadBytes
	CreatedAt                       string // RFC 3339, UTC, microseconds; "" when the row has none
	Delivery                        int
	PossibleDuplicate               bool
	Epoch                           int64

	headers []core.Header
	looked  bool // what only a row can know was asked for
}

// Headers are the row's by their names; of repeated ones the first.
func (d *bodyData) Headers() map[string]string {
	d.looked = true
	headers := map[string]string{}
	for _, h := range d.headers {
		if _, repeated := headers[h.Name]; !repeated {
			headers[h.Name] = h.Value
		}
	}
	return headers
}

// payloadBytes shows itself as text in a template.
type payloadBytes []byte

func (p payloadBytes) String() string { return string(p) }

// JSON is the payload as maps, lists, strings, bools and numbers, which keep their spelling.
func (d *bodyData) JSON() (any, error) {
	d.looked = true
	decoder := json.NewDecoder(bytes.NewReader(d.Payload))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return nil, errors.New("the payload is not JSON")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the payload is not one JSON value")
	}
	return v, nil
}

// render makes the record's body.
func (b *bodyText) render(r *core.Record) ([]byte, error) {
	body, _, err := b.try(r)
	return body, err
}

// try is render and says whether the template looked at what only a row can know: what is in its payload, and which
// headers it has.
func (b *bodyText) try(r *core.Record) (body []byte, looked bool, err error) {
	data := &bodyData{
		ID: r.ID, Key: r.Key, Keyed: r.Keyed, Route: r.Route, Type: r.Type, Connector: b.connector,
		headers: r.Headers, Payload: r.Payload, CreatedAt: jsonrecord.Time(r.CreatedAt),
		Delivery: r.Deliveries, PossibleDuplicate: r.PossibleDuplicate(), Epoch: r.Epoch,
	}
	w := &boundedBuffer{limit: b.limit}
	if err := b.text.Execute(w, data); err != nil {
		if errors.Is(err, errTooLong) || errors.Is(err, errNoValue) {
			return nil, data.looked, err
		}
		return nil, data.looked, plainTemplateError(err)
	}
	return w.buffer.Bytes(), data.looked, nil
}

// boundedBuffer refuses what goes beyond its limit, and the word for a value that is not there.
type boundedBuffer struct {
	buffer bytes.Buffer
	limit  int
}

func (w *boundedBuffer) Write(p []byte) (int, error) {
	if string(p) == "<no value>" {
		return 0, errNoValue
	}
	if w.buffer.Len()+len(p) > w.limit {
		return 0, errTooLong
	}
	return w.buffer.Write(p)
}

// plainTemplateError is the package's error without the prefix that names it.
func plainTemplateError(err error) error {
	return errors.New(strings.TrimPrefix(err.Error(), "template: "))
}

// asJSON writes any value as JSON, without the escapes that are for HTML.
func asJSON(v any) (string, error) {
	if p, ok := v.(payloadBytes); ok {
		v = string(p)
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return "", fmt.Errorf("as JSON: %w", err)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

func asBase64(v any) (string, error) {
	s, err := asString(v)
	return base64.StdEncoding.EncodeToString([]byte(s)), err
}

// asString is the text of a string, a payload, a number or a bool.
func asString(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case payloadBytes:
		return string(v), nil
	case json.Number, bool, int, int64, float64:
		return fmt.Sprint(v), nil
	default:
		return "", fmt.Errorf("a %T is no text", v)
	}
}

// orDefault is value, or fallback when it is "", nil, or nothing at all.
func orDefault(fallback, value any) any {
	switch v := value.(type) {
	case nil:
		return fallback
	case string:
		if v == "" {
			return fallback
		}
	}
	return value
}

func join(sep string, list any) (string, error) {
	switch list := list.(type) {
	case []string:
		return strings.Join(list, sep), nil
	case []any:
		parts := make([]string, len(list))
		for i, v := range list {
			s, err := asString(v)
			if err != nil {
				return "", err
			}
			parts[i] = s
		}
		return strings.Join(parts, sep), nil
	default:
		return "", fmt.Errorf("a %T is no list", list)
	}
}
