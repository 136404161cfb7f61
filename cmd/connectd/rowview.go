package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/connectd/connectd/core"
)

// maxShown bounds the payload printed for people, in bytes; --json prints all of it.
const maxShown = 16 << 10

// rowView is a row in JSON.
type rowView struct {
	Connector     string          `json:"connector"`
	Seq           int64           `json:"seq"`
	ID            string          `json:"id"`
	Key           *string         `json:"key"`
	Route         string          `json:"route,omitempty"`
	Type          string          `json:"type,omitempty"`
	State         core.State      `json:"state"`
	Sending       bool            `json:"sending,omitempty"`
	Partition     int             `json:"partition"`
	Attempts      int             `json:"attempts"`
	Deliveries    int             `json:"deliveries"`
	Crashes       int             `json:"crashes,omitempty"`
	LastError     string          `json:"last_error,omitempty"`
	CreatedAt     string          `json:"created_at,omitempty"`
	AvailableAt   string          `json:"available_at,omitempty"`
	PublishedAt   string          `json:"published_at,omitempty"`
	Size          int64           `json:"size"`
	Payload       *string         `json:"payload,omitempty"`
	PayloadBase64 *string         `json:"payload_base64,omitempty"`
	Headers       json.RawMessage `json:"headers,omitempty"`
	HeadersText   string          `json:"headers_text,omitempty"` // a headers column that is no JSON
	History       []attemptView   `json:"history,omitempty"`
}

// attemptView is one entry of a row's history in JSON.
type attemptView struct {
	At         string  `json:"at"`
	Deliveries int     `json:"deliveries"`
	Code       string  `json:"code"`
	Message    string  `json:"message,omitempty"`
	By         string  `json:"by,omitempty"`
	Seconds    float64 `json:"seconds,omitempty"`
}

func viewRow(connector string, r core.RowInfo) rowView {
	v := rowView{
		Connector: connector, Seq: r.Seq, ID: r.ID, Route: r.Route, Type: r.Type, State: r.State, Sending: r.Sending,
		Partition: r.Part, Attempts: r.Attempts, Deliveries: r.Deliveries, Crashes: r.Crashes, LastError: r.LastError,
		CreatedAt: stamp(r.CreatedAt), AvailableAt: stamp(r.AvailableAt), PublishedAt: stamp(r.PublishedAt), Size: r.Size,
	}
	if r.Keyed {
		v.Key = &r.Key
	}
	return v
}

// viewWhole is viewRow with what only Show returns.
func viewWhole(f found) rowView {
	v := viewRow(f.table.connector, f.row)
	if text := string(f.row.Payload); utf8.ValidString(text) {
		v.Payload = &text
	} else {
		text = base64.StdEncoding.EncodeToString(f.row.Payload)
		v.PayloadBase64 = &text
	}
	if json.Valid([]byte(f.row.Headers)) {
		v.Headers = json.RawMessage(f.row.Headers)
	} else {
		v.HeadersText = f.row.Headers
	}
	for _, a := range f.history {
		v.History = append(v.History, attemptView{stamp(a.At), a.Deliveries, a.Code, a.Message, a.By, a.Duration.Seconds()})
	}
	return v
}

// rowsList prints rows of all the tables. A table that cannot be read does not hide the others.
func rowsList(ctx context.Context, p *program, tables []table, req rowsRequest) error {
	views := []rowView{}
	var lines [][]string
	var failed error
	for _, t := range tables {
		rows, err := t.ops.List(ctx, core.Filter{State: req.state, After: req.after, Limit: req.limit})
		if err != nil {
			fmt.Fprintf(p.stderr, "connectd: %s: list rows: %v\n", t.connector, err)
			failed = errReported
			continue
		}
		for _, r := range rows {
			views = append(views, viewRow(t.connector, r))
			lines = append(lines, rowLine(t.connector, r, time.Now()))
		}
		if len(rows) == req.limit {
			fmt.Fprintf(p.stderr, "%s: there may be more: --connector %s --after %d\n", t.connector, t.connector, rows[len(rows)-1].Seq)
		}
	}
	if req.json {
		if err := printJSON(p.stdout, views); err != nil {
			return err
		}
		return failed
	}
	if len(lines) == 0 {
		if failed == nil {
			fmt.Fprintln(p.stderr, "no such rows")
		}
		return failed
	}
	heading := []string{"CONNECTOR", "SEQ", "ID", "KEY", "TYPE", "STATE", "ATTEMPTS", "SENDS", "AGE", "LAST ERROR"}
	if err := printTable(p.stdout, heading, lines); err != nil {
		return err
	}
	return failed
}

func rowLine(connector string, r core.RowInfo, now time.Time) []string {
	age := ""
	if !r.CreatedAt.IsZero() {
		age = span(now.Sub(r.CreatedAt))
	}
	return []string{
		connector, strconv.FormatInt(r.Seq, 10), line(r.ID, 64), keyText(r), line(r.Type, 32), stateText(r),
		strconv.Itoa(r.Attempts), strconv.Itoa(sendCount(r)), age, line(r.LastError, 80),
	}
}

// keyText shows a key; a row without one is told apart from one whose key is empty.
func keyText(r core.RowInfo) string {
	switch {
	case !r.Keyed:
		return "-"
	case r.Key == "":
		return `""`
	default:
		return line(r.Key, 48)
	}
}

func stateText(r core.RowInfo) string {
	if r.Sending {
		return "sending"
	}
	return line(string(r.State), 32) // somebody else may have written it
}

// rowsShow prints each row whole.
func rowsShow(ctx context.Context, p *program, tables []table, req rowsRequest) error {
	var failed error
	views := []rowView{}
	for i, id := range req.ids {
		f, err := lookup(ctx, tables, id)
		if err != nil {
			fmt.Fprintf(p.stderr, "connectd: %v\n", err)
			failed = errReported
			continue
		}
		if req.json {
			views = append(views, viewWhole(f))
			continue
		}
		if i > 0 {
			fmt.Fprintln(p.stdout)
		}
		showRow(p, f)
	}
	if req.json {
		if err := printJSON(p.stdout, views); err != nil {
			return err
		}
	}
	return failed
}

func showRow(p *program, f found) {
	r := f.row
	field := func(name, value string) {
		if value != "" {
			fmt.Fprintf(p.stdout, "%-13s%s\n", name, value)
		}
	}
	field("connector", f.table.connector)
	field("id", line(r.ID, 512))
	field("seq", strconv.FormatInt(r.Seq, 10)+" in partition "+strconv.Itoa(r.Part))
	field("key", keyText(r))
	field("route", line(r.Route, 512))
	field("type", line(r.Type, 512))
	field("state", stateText(r))
	field("attempts", strconv.Itoa(r.Attempts))
	field("sends", strconv.Itoa(sendCount(r))+" known or possible")
	switch {
	case r.Crashes > core.MaxCrashes: // it was retried after it had been buried
		field("crashes", fmt.Sprintf("%d, and %d bury a row", r.Crashes, core.MaxCrashes))
	case r.Crashes > 0:
		field("crashes", fmt.Sprintf("%d of %d", r.Crashes, core.MaxCrashes))
	}
	field("last error", line(r.LastError, core.MaxErrorText))
	field("created", stamp(r.CreatedAt))
	if r.State == core.Pending {
		field("due", stamp(r.AvailableAt))
	}
	field("published", stamp(r.PublishedAt))
	field("headers", line(r.Headers, 4096))
	for _, a := range f.history {
		number := "send " + strconv.Itoa(a.Deliveries)
		if a.Refused() {
			number = "not sent"
		}
		field("history", fmt.Sprintf("%s  %s  %s  (%s, by %s)", stamp(a.At), line(a.Code, 64), line(a.Message, 200), number, line(a.By, 64)))
	}
	showPayload(p, r.Payload)
}

// showPayload prints a payload as text if it is text, else in base64.
func showPayload(p *program, payload []byte) {
	shown, form := payload[:min(len(payload), maxShown)], "text"
	text := block(string(shown))
	// A cut may go through a character: up to three bytes of it are no sign of binary data.
	if !utf8.Valid(shown) && !(len(shown) < len(payload) && utf8.Valid(shown[:lastRune(shown)])) {
		form, text = "base64", base64.StdEncoding.EncodeToString(shown)
	} else if len(shown) < len(payload) {
		text = block(string(shown[:lastRune(shown)]))
	}
	fmt.Fprintf(p.stdout, "payload      %d bytes, %s\n%s\n", len(payload), form, text)
	if len(shown) < len(payload) {
		fmt.Fprintf(p.stderr, "the payload is cut after %d bytes; --json prints all of it\n", len(shown))
	}
}

// lastRune is where the last character of b begins, if it may be incomplete.
func lastRune(b []byte) int {
	for i := len(b) - 1; i >= max(0, len(b)-utf8.UTFMax); i-- {
		if utf8.RuneStart(b[i]) {
			return i
		}
	}
	return len(b)
}
