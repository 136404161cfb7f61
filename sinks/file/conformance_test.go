package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/sinktest"
)

func TestConformance(t *testing.T) {
	sinktest.Run(t, func(t testing.TB) sinktest.Harness {
		h := harness(t)
		h.Sink = New(slog.New(slog.DiscardHandler), "")
		return h
	})
}

// serveArg makes this test binary serve the sink.
const serveArg = "serve-sink"

func TestConformanceAsProcess(t *testing.T) {
	sinktest.Binary(t, sinktest.Program{Path: os.Args[0], Args: []string{serveArg}, Env: []string{"GORACE=atexit_sleep_ms=0 halt_on_error=1"}}, harness)
}

// harness is everything but the sink. The outage is that the file's directory is gone.
func harness(t testing.TB) sinktest.Harness {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	place := dir // where the directory is now
	move := func(to string) {
		if err := os.Rename(place, to); err != nil {
			t.Fatal(err)
		}
		place = to
	}
	return sinktest.Harness{
		Settings: fmt.Appendf(nil, `{"path":%q}`, filepath.Join(dir, "out")),
		BadSettings: []sinktest.BadSettings{
			{Settings: `{}`, Pointer: "/path"},
			{Settings: `{"path":"hunter2/"}`, Pointer: "/path", Secret: "hunter2"},
			{Settings: `{"path":"/x","mode":"hunter2"}`, Pointer: "/mode", Secret: "hunter2"},
			{Settings: `{"path":"/x","sync":"hunter2"}`, Pointer: "/sync", Secret: "hunter2"},
		},
		Received: func(t testing.TB) []core.Record { return readBack(t, filepath.Join(place, "out")) },
		Expect:   expect,
		Outage: func(testing.TB) func() {
			move(dir + ".away")
			return func() { move(dir) }
		},
	}
}

// expect says what a JSON payload looks like inside a line: without the blanks around it, and those inside only if
// there were line ends among them.
func expect(r core.Record) core.Record {
	if !utf8.Valid(r.Payload) || !json.Valid(r.Payload) {
		return r
	}
	if bytes.ContainsAny(r.Payload, "\r\n") {
		var compact bytes.Buffer
		_ = json.Compact(&compact, r.Payload)
		r.Payload = compact.Bytes()
	}
	r.Payload = bytes.TrimSpace(r.Payload)
	return r
}

func readBack(t testing.TB, path string) []core.Record {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var records []core.Record
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // still being written, by a call that was given up
		}
		var got struct {
			ID                string          `json:"id"`
			Key               *string         `json:"key"`
			Route             string          `json:"route"`
			Type              string          `json:"type"`
			Headers           json.RawMessage `json:"headers"`
			Payload           json.RawMessage `json:"payload"`
			PayloadBase64     []byte          `json:"payload_base64"`
			CreatedAt         time.Time       `json:"created_at"`
			Deliveries        int             `json:"deliveries"`
			PossibleDuplicate bool            `json:"possible_duplicate"`
			Epoch             int64           `json:"epoch"`
		}
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&got); err != nil {
			t.Fatalf("line %d of %s, %.100q: %v", len(records)+1, path, line, err)
		}
		r := core.Record{
			ID: got.ID, Route: got.Route, Type: got.Type, Headers: readHeaders(t, got.Headers), Payload: got.PayloadBase64,
			CreatedAt: got.CreatedAt, Deliveries: got.Deliveries, Epoch: got.Epoch,
		}
		if got.Key != nil {
			r.Key, r.Keyed = *got.Key, true
		}
		if got.Payload != nil {
			r.Payload = got.Payload
		}
		if got.PossibleDuplicate != r.PossibleDuplicate() {
			t.Errorf("record %s says possible_duplicate %v and deliveries %d", got.ID, got.PossibleDuplicate, got.Deliveries)
		}
		records = append(records, r)
	}
	return records
}

// readHeaders keeps the order of the object's names.
func readHeaders(t testing.TB, object json.RawMessage) []core.Header {
	decoder := json.NewDecoder(bytes.NewReader(object))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		t.Fatalf("headers %q: %v", object, err)
	}
	var headers []core.Header
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			t.Fatalf("headers %q: %v", object, err)
		}
		var value string
		if err := decoder.Decode(&value); err != nil {
			t.Fatalf("headers %q: %v", object, err)
		}
		headers = append(headers, core.Header{Name: name.(string), Value: value})
	}
	return headers
}
