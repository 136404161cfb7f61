package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/connectd/connectd/cmd/connectd/rowwork"
	"github.com/connectd/connectd/core"
)

// What is printed for people of a row at most; --json prints all of it.
const (
	maxShown   = 16 << 10 // bytes of its payload
	maxOld     = 2 << 10  // of each that it had before
	maxHeaders = 4096     // characters
	maxBy      = 128
)

// rowsList prints rows of all the tables. A table that cannot be read does not hide the others.
func rowsList(ctx context.Context, p *program, tables []table, req rowsRequest) error {
	views := []rowwork.View{}
	var lines [][]string
	var failed error
	for _, t := range tables {
		rows, err := t.ops.List(ctx, req.filter)
		if err != nil {
			p.complain(fmt.Errorf("%s: list rows: %w", t.connector, err))
			failed = errReported
			continue
		}
		for _, r := range rows {
			views = append(views, rowwork.ViewRow(t.connector, r))
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
	if err := printTable(p.stdout, rowHeading(), lines); err != nil {
		return err
	}
	return failed
}

func rowHeading() []string {
	return []string{"CONNECTOR", "SEQ", "ID", "KEY", "TYPE", "STATE", "ATTEMPTS", "SENDS", "AGE", "LAST ERROR"}
}

func rowLine(connector string, r core.RowInfo, now time.Time) []string {
	age := ""
	if !r.CreatedAt.IsZero() {
		age = span(now.Sub(r.CreatedAt))
	}
	return []string{
		connector, strconv.FormatInt(r.Seq, 10), line(r.ID, 64), keyText(r), line(r.Type, 32), stateText(r),
		strconv.Itoa(r.Attempts), strconv.Itoa(rowwork.Sends(r)), age, line(r.LastError, 80),
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
	fail := func(err error) {
		p.complain(err)
		failed = errReported
	}
	views := []rowwork.View{}
	for i, id := range req.ids {
		f, err := lookup(ctx, tables, id)
		if err != nil {
			fail(err)
			continue
		}
		revisions, err := f.table.ops.Revisions(ctx, id)
		if err != nil { // the row itself is shown all the same
			err = fmt.Errorf("%s: look for what row %s was before: %w", f.table.connector, line(id, 128), err)
			fail(err)
		}
		trace, unread := f.table.ops.Trace(ctx, id)
		if unread != nil {
			unread = fmt.Errorf("%s: look for receipts of row %s: %w", f.table.connector, line(id, 128), unread)
			fail(unread)
		}
		if req.json {
			view := rowwork.ViewWhole(f.table.connector, f.row, f.history, revisions)
			if err != nil {
				view.RevisionsError = err.Error()
			}
			view.Receipts = rowwork.ViewReceipts(trace.Receipts)
			if unread != nil {
				view.ReceiptsError = unread.Error()
			}
			views = append(views, view)
			continue
		}
		if i > 0 {
			fmt.Fprintln(p.stdout)
		}
		showRow(p, f, trace.Receipts, revisions)
	}
	if req.json {
		if err := printJSON(p.stdout, views); err != nil {
			return err
		}
	}
	return failed
}

func showRow(p *program, f found, receipts []core.Receipt, revisions []core.Revision) {
	r := f.row
	p.field("connector", f.table.connector)
	p.field("id", line(r.ID, 512))
	p.field("seq", strconv.FormatInt(r.Seq, 10)+" in partition "+strconv.Itoa(r.Part))
	p.field("key", keyText(r))
	p.field("route", line(r.Route, 512))
	p.field("type", line(r.Type, 512))
	p.field("state", stateText(r))
	p.field("attempts", strconv.Itoa(r.Attempts))
	p.field("sends", strconv.Itoa(rowwork.Sends(r))+" known or possible")
	switch {
	case r.Crashes > core.MaxCrashes: // it was retried after it had been buried
		p.field("crashes", fmt.Sprintf("%d, and %d bury a row", r.Crashes, core.MaxCrashes))
	case r.Crashes > 0:
		p.field("crashes", fmt.Sprintf("%d of %d", r.Crashes, core.MaxCrashes))
	}
	p.field("last error", line(r.LastError, core.MaxErrorText))
	p.field("created", stamp(r.CreatedAt))
	if r.State == core.Pending {
		p.field("due", stamp(r.AvailableAt))
	}
	p.field("published", stamp(r.PublishedAt))
	p.field("headers", line(r.Headers, maxHeaders))
	for _, a := range f.history {
		p.field("history", historyText(a))
	}
	for _, r := range receipts {
		p.field("receipt", receipt(r).Say)
	}
	showPayload(p, r.Payload, maxShown)
	for _, old := range revisions {
		p.field("until", revisionText(old))
		p.field("headers", line(old.Headers, maxHeaders))
		showPayload(p, old.Payload, maxOld)
	}
}

// field prints what is known of a row under a name, if anything is.
func (p *program) field(name, value string) {
	if value != "" {
		fmt.Fprintf(p.stdout, "%-13s%s\n", name, value)
	}
}

// historyText is a line of a row's history: a person's change, or what became of a send.
func historyText(a core.Attempt) string {
	text := stamp(a.At) + "  " + line(a.Code, 64) + "  "
	if rowwork.ByPerson(a) {
		return text + line(a.Message, core.MaxErrorText) + "  (by " + line(a.By, maxBy) + ")"
	}
	number := "send " + strconv.Itoa(a.Deliveries)
	if a.Refused() {
		number = "not sent"
	}
	took := ""
	if a.Duration > 0 {
		took = ", took " + span(a.Duration)
	}
	return text + line(a.Message, core.MaxErrorText) + "  (" + number + ", by " + line(a.By, maxBy) + took + ")"
}

// revisionText says who ended a revision, and why.
func revisionText(old core.Revision) string {
	text := stamp(old.At) + "  edited by " + line(old.By, maxBy)
	if old.Why != "" {
		text += ": " + line(old.Why, core.MaxErrorText)
	}
	return text + "; what it was:"
}

// showPayload prints a payload as text if it is text, else in base64; at most limit bytes of it.
func showPayload(p *program, payload []byte, limit int) {
	shown, form := payload[:min(len(payload), limit)], "text"
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
