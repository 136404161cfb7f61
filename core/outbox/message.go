package outbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Message becomes one row.
type Message struct {
	// ID is the command's identity, unique in the table. It is sent with every attempt, and consumers dedupe by it, so
	// choose it from what the command is about: then a decision that is made twice is refused. At most 255 bytes, the
	// longest that AMQP takes for a message-id.
	ID string
	// Key is the ordering key; "" is none: such a message has no order.
	Key string
	// Route is what routes (topic, routing key, URL), Type the event's or command's type. "" is NULL.
	Route, Type string
	// Payload is sent byte for byte; nil is NULL, which is not the same as empty. It is read until Enqueue returns.
	Payload []byte
	// Headers are sent with the message; the column gets them as a JSON object.
	Headers map[string]string
}

// MessageError says that a message is not one to insert. Nothing was sent to the database.
type MessageError struct {
	ID      string
	Problem string
}

func (e *MessageError) Error() string { return fmt.Sprintf("message %q: %s", e.ID, e.Problem) }

// maxID bounds an id, in bytes.
const maxID = 255

// maxText bounds what goes into the varchar columns that `connectd init` makes in MySQL, in characters. Without strict mode
// the server would cut what is longer.
const maxText = 255

// row is a message on its way into a statement.
type row struct {
	*Message
	headers string // JSON
	size    int
}

// rows checks all messages before any is inserted.
func (t *Table) rows(messages []Message) ([]row, error) {
	rows := make([]row, len(messages))
	ids := make(map[string]bool, len(messages))
	for i := range messages {
		m := &messages[i]
		if problem := t.problem(m); problem != "" {
			return nil, &MessageError{m.ID, problem}
		}
		if ids[m.ID] {
			return nil, &DuplicateError{ID: m.ID}
		}
		ids[m.ID] = true
		headers := headerText(m.Headers)
		rows[i] = row{m, headers, len(m.ID) + len(m.Key) + len(m.Route) + len(m.Type) + len(m.Payload) + len(headers)}
		if t.maxBytes > 0 && rows[i].size > t.maxBytes {
			return nil, &MessageError{m.ID, fmt.Sprintf("it has %d bytes, at most %d are allowed", rows[i].size, t.maxBytes)}
		}
	}
	return rows, nil
}

func (t *Table) problem(m *Message) string {
	if m.ID == "" {
		return "it has no id"
	}
	if len(m.ID) > maxID {
		return fmt.Sprintf("its id has %d bytes, at most %d are allowed", len(m.ID), maxID)
	}
	for _, text := range []struct{ name, value string }{{"id", m.ID}, {"key", m.Key}, {"route", m.Route}, {"type", m.Type}} {
		if wrong := badText(text.value); wrong != "" {
			return "its " + text.name + " " + wrong
		}
		if n := utf8.RuneCountInString(text.value); t.dialect == MySQL && n > maxText {
			return fmt.Sprintf("its %s has %d characters, at most %d are allowed", text.name, n, maxText)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		if name == "" {
			return "one of its headers has no name"
		}
		if wrong := badText(name); wrong != "" {
			return fmt.Sprintf("the name of its header %q %s", name, wrong)
		}
		if wrong := badText(m.Headers[name]); wrong != "" {
			return fmt.Sprintf("its header %q %s", name, wrong)
		}
	}
	if m.Payload == nil || t.payload == Bytes {
		return ""
	}
	if wrong := badText(string(m.Payload)); wrong != "" {
		return "its payload " + wrong
	}
	if t.payload == JSON {
		return t.badJSON(m.Payload)
	}
	return ""
}

func badText(s string) string {
	switch {
	case !utf8.ValidString(s):
		return "is not UTF-8"
	case strings.ContainsRune(s, 0):
		return "has a NUL"
	}
	return ""
}

func (t *Table) badJSON(payload []byte) string {
	if !json.Valid(payload) {
		return "its payload is not JSON"
	}
	if t.dialect != PostgreSQL {
		return ""
	}
	for rest := payload; ; {
		i := bytes.IndexByte(rest, '\\')
		if i < 0 {
			return ""
		}
		if bytes.HasPrefix(rest[i+1:], []byte("u0000")) {
			return `its payload has a \u0000`
		}
		rest = rest[i+2:] // behind what the backslash escapes, be it another one
	}
}

// headerText is "" without headers.
func headerText(headers map[string]string) string {
	if len(headers) == 0 {
		return ""
	}
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(headers); err != nil {
		panic(err) // strings can always be encoded
	}
	return strings.TrimSuffix(text.String(), "\n")
}
