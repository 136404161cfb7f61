package core

import (
	"bytes"
	"encoding/json"
	"errors"
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
	if !json.Valid(text) {
		return nil, errors.New("headers are not JSON")
	}
	rest := bytes.TrimSpace(text)
	if rest[0] != '{' {
		return nil, errors.New("headers are not a JSON object")
	}
	// From here on the text is known to be an object, so looking for the ends of its parts is enough.
	var headers []Header
	for rest = trim(rest[1:]); rest[0] == '"'; {
		name, after := cut(rest)
		value, after := cut(trim(trim(after)[1:])) // behind the colon
		if string(value) != "null" {
			headers = append(headers, Header{Name: plain(name), Value: plain(value)})
		}
		if rest = trim(after); rest[0] == ',' {
			rest = trim(rest[1:])
		}
	}
	return headers, nil
}

func trim(text []byte) []byte { return bytes.TrimLeft(text, " \t\r\n") }

// cut takes one value off the front of valid JSON.
func cut(text []byte) (value, rest []byte) {
	depth, quoted := 0, false
	for i := 0; ; i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
			if !quoted && depth == 0 {
				return text[:i+1], text[i+1:]
			}
		case quoted:
		case c == '{' || c == '[':
			depth++
		case depth > 0 && (c == '}' || c == ']'):
			if depth--; depth == 0 {
				return text[:i+1], text[i+1:]
			}
		case depth == 0 && (c == ',' || c == '}' || c == ' ' || c == '\t' || c == '\r' || c == '\n'):
			return text[:i], text[i:]
		}
	}
}

// plain is a JSON string's content, and any other value's text.
func plain(value []byte) string {
	if value[0] != '"' {
		return string(value)
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1])
	}
	var s string
	if err := json.Unmarshal(value, &s); err != nil {
		return string(value) // not reached: the text was valid
	}
	return s
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
