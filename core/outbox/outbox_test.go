package outbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/connectd/connectd/core/outbox"
)

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		dialect outbox.Dialect
		table   string
		o       outbox.Options
		want    string
	}{
		{"oracle", "outbox", outbox.Options{}, `outbox: no dialect is named "oracle"`},
		{outbox.SQLite, "", outbox.Options{}, `outbox: table "": the name is empty`},
		{outbox.SQLite, "a\x00", outbox.Options{}, `outbox: table "a\x00": the name is not UTF-8 without NUL`},
		{outbox.PostgreSQL, strings.Repeat("é", 32), outbox.Options{}, "the name has 64 bytes, PostgreSQL takes 63"},
		{outbox.MySQL, strings.Repeat("é", 65), outbox.Options{}, "the name has 65 characters, MySQL takes 64"},
		{outbox.MySQL, "outbox", outbox.Options{Schema: "\xff"}, `outbox: schema "\xff": the name`},
		{outbox.PostgreSQL, "outbox", outbox.Options{Columns: outbox.Columns{Key: "\x00"}}, `outbox: column "\x00": the name`},
		{outbox.PostgreSQL, "outbox", outbox.Options{Columns: outbox.Columns{Key: "id"}}, `outbox: two columns are "id"`},
		{outbox.PostgreSQL, "outbox", outbox.Options{MaxBytes: -1}, "outbox: MaxBytes is -1, must not be negative"},
		{outbox.PostgreSQL, "outbox", outbox.Options{Payload: 7}, "outbox: no payload type has number 7"},
	} {
		if _, err := outbox.New(c.dialect, c.table, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// What would fail later is refused before anything is sent to the database: there is none in this test.
func TestMessagesThatAreRefused(t *testing.T) {
	long := strings.Repeat("é", 256)
	ok := outbox.Message{ID: "ok", Key: "k", Payload: []byte{0, 255}}
	for _, c := range []struct {
		name    string
		dialect outbox.Dialect
		o       outbox.Options
		m       outbox.Message
		want    string
	}{
		{"no id", outbox.SQLite, outbox.Options{}, outbox.Message{}, `message "": it has no id`},
		{"long id", outbox.SQLite, outbox.Options{}, outbox.Message{ID: strings.Repeat("x", 256)}, "its id has 256 bytes, at most 255 are allowed"},
		{"NUL in the id", outbox.SQLite, outbox.Options{}, outbox.Message{ID: "a\x00"}, `message "a\x00": its id has a NUL`},
		{"key that is no text", outbox.SQLite, outbox.Options{}, outbox.Message{ID: "a", Key: "\xff"}, "its key is not UTF-8"},
		{"route with a NUL", outbox.SQLite, outbox.Options{}, outbox.Message{ID: "a", Route: "\x00"}, "its route has a NUL"},
		{"long key in MySQL", outbox.MySQL, outbox.Options{}, outbox.Message{ID: "a", Key: long}, "its key has 256 characters, at most 255 are allowed"},
		{"long type in MySQL", outbox.MySQL, outbox.Options{}, outbox.Message{ID: "a", Type: long}, "its type has 256 characters"},
		{"header without a name", outbox.SQLite, outbox.Options{}, outbox.Message{ID: "a", Headers: map[string]string{"": "x"}}, "one of its headers has no name"},
		{"header's name", outbox.SQLite, outbox.Options{}, outbox.Message{ID: "a", Headers: map[string]string{"\xff": "x"}}, `the name of its header "\xff" is not UTF-8`},
		{"header with a NUL", outbox.SQLite, outbox.Options{}, outbox.Message{ID: "a", Headers: map[string]string{"h": "\x00"}}, `its header "h" has a NUL`},
		{"text with a NUL", outbox.SQLite, outbox.Options{Payload: outbox.Text}, outbox.Message{ID: "a", Payload: []byte{0}}, "its payload has a NUL"},
		{"no text", outbox.SQLite, outbox.Options{Payload: outbox.Text}, outbox.Message{ID: "a", Payload: []byte{255}}, "its payload is not UTF-8"},
		{"no JSON", outbox.MySQL, outbox.Options{Payload: outbox.JSON}, outbox.Message{ID: "a", Payload: []byte("{")}, "its payload is not JSON"},
		{"empty is no JSON", outbox.MySQL, outbox.Options{Payload: outbox.JSON}, outbox.Message{ID: "a", Payload: []byte{}}, "its payload is not JSON"},
		{"NUL in JSON", outbox.PostgreSQL, outbox.Options{Payload: outbox.JSON}, outbox.Message{ID: "a", Payload: []byte(`"\\\u0000"`)}, `its payload has a \u0000`},
		{"too large", outbox.SQLite, outbox.Options{MaxBytes: 20}, outbox.Message{ID: "a", Key: "b", Route: "c", Type: "d", Payload: make([]byte, 10), Headers: map[string]string{"e": ""}}, "it has 22 bytes, at most 20 are allowed"},
	} {
		table, err := outbox.New(c.dialect, "outbox", c.o)
		if err != nil {
			t.Fatal(err)
		}
		if c.o.Payload != outbox.Bytes {
			ok.Payload = nil
		}
		err = table.Enqueue(t.Context(), nil, ok, c.m)
		var refused *outbox.MessageError
		if !errors.As(err, &refused) || refused.ID != c.m.ID || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
}

func TestTwiceInOneCall(t *testing.T) {
	table, err := outbox.New(outbox.SQLite, "outbox", outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = table.Enqueue(t.Context(), nil, outbox.Message{ID: "a"}, outbox.Message{ID: "b"}, outbox.Message{ID: "a"})
	var twice *outbox.DuplicateError
	if !errors.As(err, &twice) || twice.ID != "a" || twice.Err != nil || !errors.Is(err, outbox.ErrDuplicate) {
		t.Error(err)
	}
	if err := table.Enqueue(t.Context(), nil); err != nil {
		t.Error("no messages:", err)
	}
}
