package core

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ParseHeaders reads a headers column: a JSON object, in its own order, repeated names included. A string is taken as
// it is, any other value as its JSON text; a null is a header that is not there. Empty text has no headers.
// Every source uses it, so that a header means the same whatever database it comes from.
func ParseHeaders(text []byte) ([]Header, error) {
	if len(text) == 0 {
		return nil, nil
	}
	if !utf8.Valid(text) {
		return nil, errors.New("headers are not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	open, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("headers are not JSON: %w", err)
	}
	if open != json.Delim('{') {
		return nil, errors.New("headers are not a JSON object")
	}
	var headers []Header
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("headers are not JSON: %w", err)
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, fmt.Errorf("headers are not JSON: %w", err)
		}
		value, there, err := headerValue(raw)
		if err != nil {
			return nil, fmt.Errorf("headers are not JSON: %w", err)
		}
		if there {
			// Within an object the decoder gives nothing but strings as names.
			headers = append(headers, Header{Name: name.(string), Value: value})
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("headers are not JSON: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("headers have something after the JSON object")
	}
	return headers, nil
}

func headerValue(raw json.RawMessage) (value string, there bool, err error) {
	switch {
	case string(raw) == "null":
		return "", false, nil
	case raw[0] == '"':
		err := json.Unmarshal(raw, &value)
		return value, true, err
	default:
		return string(raw), true, nil
	}
}

// CleanText makes text from anywhere fit for a Failure's message and a last_error column: valid UTF-8 without control
// characters, at most MaxErrorText bytes, cut between characters. Recording a failure must never fail.
func CleanText(s string) string {
	if clean(s) && len(s) <= MaxErrorText {
		return s
	}
	var b strings.Builder
	for _, r := range s { // an invalid byte comes as U+FFFD
		if unicode.IsControl(r) {
			r = ' '
		}
		if b.Len()+utf8.RuneLen(r) > MaxErrorText {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

func clean(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0
}
