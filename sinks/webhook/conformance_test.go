package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/sinktest"
	"github.com/connectd/connectd/sinks/webhook/signature"
)

const (
	testSecret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	// refused is the type of records that the receiver does not take.
	refused = "refused"
)

// serveArg makes this test binary serve the sink.
const serveArg = "serve-sink"

func TestConformance(t *testing.T) { sinktest.Run(t, inProcess(oneReceiver)) }

func TestConformanceAsProcess(t *testing.T) {
	program := sinktest.Program{Path: os.Args[0], Args: []string{serveArg}, Env: []string{"GORACE=atexit_sleep_ms=0 halt_on_error=1"}}
	sinktest.Binary(t, program, func(t testing.TB) sinktest.Harness {
		h, _ := harness(t)
		h.Settings, h.Completes = merged(t, h.Settings, `{"receipt": "on_2xx"}`), true
		return h
	})
}

// One receiver out of many that rows might name.
func TestConformanceTemplatedHost(t *testing.T) {
	sinktest.Run(t, inProcess(func(t testing.TB) sinktest.Harness {
		h, r := harness(t)
		_, port, _ := net.SplitHostPort(r.address)
		h.Settings = merged(t, h.Settings, fmt.Sprintf(`{
			"url": "http://{header:host|127.0.0.1}:%s/hook", "ssrf": {"allow_cidrs": ["127.0.0.1"], "allow_ports": [%s]},
			"breaker": {"open_for": "1s"}}`, port, port))
		return h
	}))
}

// Several rows a request.
func TestConformanceLists(t *testing.T) {
	for _, format := range []string{"json", "ndjson"} {
		t.Run(format, func(t *testing.T) {
			sinktest.Run(t, inProcess(func(t testing.TB) sinktest.Harness {
				h, _ := harness(t)
				h.Settings = merged(t, h.Settings, fmt.Sprintf(`{"batch": {"max_rows": 20, "max_bytes": "8MiB", "format": %q},
					"timeouts": {"header": "1m", "total": "1m"}}`, format)) // the receiver reads 20 MB of JSON before it answers
				h.Expect = func(r core.Record) core.Record { return expectRow(format, r) }
				return h
			}))
		})
	}
}

func inProcess(start func(t testing.TB) sinktest.Harness) func(t testing.TB) sinktest.Harness {
	return func(t testing.TB) sinktest.Harness {
		h := start(t)
		h.Sink = New(slog.New(slog.DiscardHandler), Options{Connector: "orders", Version: "test"})
		return h
	}
}

func oneReceiver(t testing.TB) sinktest.Harness {
	h, _ := harness(t)
	return h
}

// harness is everything but the sink, around a receiver of its own.
func harness(t testing.TB) (sinktest.Harness, *receiver) {
	r := receive(t)
	r.always(answer{do: func(w http.ResponseWriter, request *http.Request) {
		if refuses(arrivalOf(request).records(t)) {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}})
	return sinktest.Harness{
		Settings: fmt.Appendf(nil, `{"url": %q, "signing": {"secrets": [{"value": %q}]}, "forward_headers": ["*"],
			"max_body_bytes": "64MiB", "auth": {"type": "bearer", "token": "hunter2-token"}}`, r.url()+"/hook", testSecret),
		Secrets: []string{testSecret, strings.TrimPrefix(testSecret, "whsec_"), "hunter2-token"},
		BadSettings: []sinktest.BadSettings{
			{Settings: `{}`, Pointer: "/url"},
			{Settings: `{"url":"https://u:hunter2@example.com/"}`, Pointer: "/url", Secret: "hunter2"},
			{Settings: `{"url":"https://example.com/","method":"hunter2"}`, Pointer: "/method", Secret: "hunter2"},
			{Settings: `{"url":"https://example.com/","signing":{"secrets":[{"value":"hunter2"}]}}`, Pointer: "/signing/secrets/0/value", Secret: "hunter2"},
			{Settings: `{"url":"https://example.com/","auth":{"type":"hunter2"}}`, Pointer: "/auth/type", Secret: "hunter2"},
		},
		Received: func(t testing.TB) []core.Record { return r.records(t) },
		Expect: func(r core.Record) core.Record {
			r.Headers = sorted(r.Headers)
			return r
		},
		Refuse: func(r core.Record) core.Record {
			r.Type = refused
			return r
		},
		Outage: func(t testing.TB) func() { return r.outage(t) },
		Hang:   r.hang,
	}, r
}

// merged is the settings with others in their place.
func merged(t testing.TB, base []byte, changes string) []byte {
	var all map[string]json.RawMessage
	for _, text := range []string{string(base), changes} {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(err)
		}
	}
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// records are the records that the receiver took.
func (r *receiver) records(t testing.TB) []core.Record {
	var all []core.Record
	for _, a := range r.got() {
		if records := a.records(t); !refuses(records) {
			all = append(all, records...)
		}
	}
	return all
}

func refuses(records []core.Record) bool {
	return slices.ContainsFunc(records, func(r core.Record) bool { return r.Type == refused })
}

// records reads a request as a consumer does.
func (a *arrival) records(t testing.TB) []core.Record {
	a.parse.Do(func() { a.parsed = a.read(t) })
	return a.parsed
}

func (a *arrival) read(t testing.TB) []core.Record {
	if !strings.HasPrefix(a.header.Get("Webhook-Id"), "list_") {
		return []core.Record{a.single(t)}
	}
	rows := json.NewDecoder(bytes.NewReader(a.body))
	rows.DisallowUnknownFields()
	if a.header.Get("Content-Type") == "application/json" {
		if _, err := rows.Token(); err != nil { // the list begins
			t.Errorf("body %.100q: %v", a.body, err)
		}
	}
	var all []core.Record
	for rows.More() {
		var e entry
		if err := rows.Decode(&e); err != nil {
			t.Errorf("an entry of a list: %v", err)
			break
		}
		all = append(all, e.record(t))
	}
	return all
}

// single reads a request with one record: what is not in the body is in the headers.
func (a *arrival) single(t testing.TB) core.Record {
	id, err := signature.DecodeID(a.header.Get("Webhook-Id"))
	if err != nil {
		t.Errorf("webhook-id: %v", err)
	}
	number := func(name string) int64 {
		n, err := strconv.ParseInt(a.header.Get(name), 10, 64)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return n
	}
	text := func(name string) string { return decoded(t, name, a.header.Get(name)) }
	r := core.Record{
		ID: id, Key: text("Connectd-Key"), Keyed: a.header["Connectd-Key"] != nil, Route: text("Connectd-Route"), Type: text("Connectd-Type"),
		Payload: a.body, Deliveries: int(number("Connectd-Delivery")), Epoch: number("Connectd-Epoch"),
	}
	if r.CreatedAt, err = time.Parse(time.RFC3339, a.header.Get("Connectd-Created-At")); err != nil {
		t.Errorf("Connectd-Created-At: %v", err)
	}
	if mark := a.header.Get("Connectd-Possible-Duplicate"); (mark == "true") != r.PossibleDuplicate() {
		t.Errorf("record %s is delivery %d and has the duplicate mark %q", r.ID, r.Deliveries, mark)
	}
	for name, values := range a.header {
		if strings.HasPrefix(name, "Connectd-") || strings.HasPrefix(name, "Webhook-") || slices.Contains(ours, name) {
			continue
		}
		for _, value := range values {
			r.Headers = append(r.Headers, core.Header{Name: strings.ToLower(name), Value: decoded(t, name, value)})
		}
	}
	r.Headers = sorted(r.Headers)
	return r
}

// ours are the headers that every request has.
var ours = []string{"Authorization", "Content-Length", "Content-Type", "User-Agent"}

func decoded(t testing.TB, name, value string) string {
	text, err := signature.PercentDecode(value)
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return text
}

func sorted(headers []core.Header) []core.Header {
	headers = slices.Clone(headers)
	slices.SortFunc(headers, func(a, b core.Header) int { return strings.Compare(a.Name, b.Name) })
	return headers
}

// entry is one record in a list.
type entry struct {
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

func (got *entry) record(t testing.TB) core.Record {
	headers, err := core.ParseHeaders(got.Headers)
	if err != nil {
		t.Errorf("entry %s: %v", got.ID, err)
	}
	r := core.Record{
		ID: got.ID, Route: got.Route, Type: got.Type, Headers: sorted(headers), Payload: got.PayloadBase64,
		CreatedAt: got.CreatedAt, Deliveries: got.Deliveries, Epoch: got.Epoch,
	}
	if got.Key != nil {
		r.Key, r.Keyed = *got.Key, true
	}
	if got.Payload != nil {
		r.Payload = got.Payload
	}
	if got.PossibleDuplicate != r.PossibleDuplicate() {
		t.Errorf("record %s is delivery %d and has the duplicate mark %v", r.ID, r.Deliveries, got.PossibleDuplicate)
	}
	return r
}

// expectRow says what a payload looks like inside a list: JSON without the blanks around it, on one line if it must be.
func expectRow(format string, r core.Record) core.Record {
	r.Headers = sorted(r.Headers)
	if !utf8.Valid(r.Payload) || !json.Valid(r.Payload) {
		return r
	}
	if format == "ndjson" && bytes.ContainsAny(r.Payload, "\r\n") {
		var compact bytes.Buffer
		_ = json.Compact(&compact, r.Payload)
		r.Payload = compact.Bytes()
	}
	r.Payload = bytes.TrimSpace(r.Payload)
	return r
}
