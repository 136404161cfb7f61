package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/connectd/connectd/cmd/connectd/rowwork"
)

// printJSON writes one indented JSON value. Less-than signs and ampersands stay as they are: this is no web page.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// jsonArray writes an array as printJSON would, value by value: there may be many.
type jsonArray struct {
	w   io.Writer
	n   int
	err error
}

// add writes the next value.
func (a *jsonArray) add(v any) {
	before := ",\n  "
	if a.n == 0 {
		before = "[\n  "
	}
	a.n++
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("  ", "  ")
	if err := enc.Encode(v); err != nil && a.err == nil {
		a.err = err
	}
	a.write(before + strings.TrimSuffix(text.String(), "\n"))
}

func (a *jsonArray) write(text string) {
	if _, err := io.WriteString(a.w, text); err != nil && a.err == nil {
		a.err = err
	}
}

// end closes the array, and returns the first error that there was.
func (a *jsonArray) end() error {
	if a.n == 0 {
		a.write("[]\n")
	} else {
		a.write("\n]\n")
	}
	if a.err != nil {
		return fmt.Errorf("write the answer: %w", a.err)
	}
	return nil
}

// printTable writes rows under a heading, in columns.
func printTable(w io.Writer, heading []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(heading, "\t"))
	for _, r := range rows {
		fmt.Fprintln(tw, strings.Join(r, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// line makes text from a database fit for one line of a terminal: control characters, which could move the cursor or
// recolour the screen, are escaped, and at most limit characters are kept.
func line(s string, limit int) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n == limit {
			return b.String() + "…"
		}
		if unicode.IsControl(r) || r == utf8.RuneError || unicode.Is(unicode.Cf, r) {
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(r)
		}
		n++
	}
	return b.String()
}

// idText is how an id is printed for people: as line does, and in quotes if it is empty or has what would hide where it begins
// and ends.
func idText(id string, limit int) string {
	if text := line(id, limit); id != "" && !strings.ContainsAny(id, " ,\"'\\") {
		return text
	}
	return `"` + line(strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(id), limit) + `"`
}

// block is line for text of many lines: newlines and tabs stay.
func block(s string) string {
	parts := strings.Split(s, "\n")
	for i, p := range parts {
		fields := strings.Split(p, "\t")
		for j, f := range fields {
			fields[j] = line(f, len(f)+1)
		}
		parts[i] = strings.Join(fields, "\t")
	}
	return strings.Join(parts, "\n")
}

// span writes a duration as people say it: two units at most.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + span(-max(d, -math.MaxInt64)) // the least duration has no opposite
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + "s"
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// stamp writes a moment, UTC; "" for none.
func stamp(t time.Time) string { return rowwork.Stamp(t) }
