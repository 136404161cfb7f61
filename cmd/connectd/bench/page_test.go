//go:build linux

package bench

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// page is what goes into docs/scaling.md: text for the places between its marks, by the mark's name.
type page struct {
	machine machine
	names   []string // in order
	blocks  map[string]string
}

// The marks of a place.
func markBegin(name string) string { return "<!-- begin " + name + " -->\n" }
func markEnd(name string) string   { return "<!-- end " + name + " -->\n" }

func (p *page) set(name, text string) {
	p.names = append(p.names, name)
	p.blocks[name] = text
}

// addTable adds the table of one dimension, and a line on the growth of its headlines, if it was measured.
func (p *page) addTable(name, title string, r *report, headlines []string) {
	figures := slices.DeleteFunc(slices.Clone(r.figures), func(f *figure) bool { return f.NotMeasured != "" })
	if len(figures) == 0 {
		return
	}
	var columns, rows []string
	cells := map[[2]string]*figure{}
	for _, f := range figures {
		f.sum()
		cells[[2]string{f.Name, f.Of}] = f
		if !slices.Contains(columns, f.Of) {
			columns = append(columns, f.Of)
		}
		if !slices.Contains(rows, f.Name) {
			rows = append(rows, f.Name)
		}
	}
	grows := headlines != nil && len(columns) > 1
	factor := func(row string) string {
		first, last := cells[[2]string{row, columns[0]}], cells[[2]string{row, columns[len(columns)-1]}]
		if first == nil || last == nil || first.Median == 0 || math.IsInf(last.Median/first.Median, 0) {
			return ""
		}
		return "×" + number(last.Median/first.Median)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | %s |", title, strings.Join(columns, " | "))
	line := strings.Repeat("--:|", len(columns))
	if grows {
		fmt.Fprint(&b, " last by first |")
		line += "--:|"
	}
	fmt.Fprintf(&b, "\n|---|%s\n", line)
	for _, row := range rows {
		unit := ""
		for _, column := range columns {
			if f := cells[[2]string{row, column}]; f != nil && f.Unit != "" {
				unit = ", " + f.Unit
			}
		}
		fmt.Fprintf(&b, "| %s%s |", row, unit)
		for _, column := range columns {
			if f := cells[[2]string{row, column}]; f != nil {
				fmt.Fprintf(&b, " %s |", f.cell())
			} else {
				fmt.Fprint(&b, " – |")
			}
		}
		if grows {
			fmt.Fprintf(&b, " %s |", factor(row))
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprintf(&b, "\n%s\n", p.source())
	p.set(name, b.String())
	if !grows {
		return
	}
	var factors []string
	for _, row := range headlines {
		if f := factor(row); f != "" {
			factors = append(factors, row+" "+f)
		}
	}
	p.set(name+": growth", fmt.Sprintf("- **%s, %s → %s**: %s.\n", title, columns[0], columns[len(columns)-1], strings.Join(factors, "; ")))
}

// failed is the figure of what did not work, or took longer than anybody waits.
var failed = math.Inf(1)

// cell writes the median. What has no unit and is whole is a number of things.
func (f *figure) cell() string {
	if f.Median == failed {
		return "failed"
	}
	if whole := int(f.Median); f.Unit == "" && float64(whole) == f.Median {
		return count(whole)
	}
	return number(f.Median)
}

// source says where figures come from.
func (p *page) source() string {
	m := p.machine
	text := fmt.Sprintf("%s, %d cores, %s, %s; connectd %s, %s; load over a minute before and after: %s, %s", m.CPU, m.Cores, m.Kernel, m.Go,
		m.Revision, m.At.Format(time.DateOnly), m.Load, load())
	if *quick {
		text += "; a quick look, with a tenth of the rows"
	}
	return text + "."
}

// print shows everything.
func (p *page) print(to io.Writer) error {
	for _, name := range p.names {
		if _, err := fmt.Fprintf(to, "\n%s", p.blocks[name]); err != nil {
			return err
		}
	}
	return nil
}

// update puts what was measured into a file, and leaves the rest of it as it is.
func (p *page) update(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	replaced, err := p.replace(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(replaced), 0o644)
}

func (p *page) replace(text string) (string, error) {
	for _, name := range p.names {
		before, rest, begins := strings.Cut(text, markBegin(name))
		_, after, ends := strings.Cut(rest, markEnd(name))
		if !begins || !ends {
			return "", fmt.Errorf("there is no place for %q", name)
		}
		text = before + markBegin(name) + p.blocks[name] + markEnd(name) + after
	}
	return text, nil
}

// The page has a place for everything that is measured, and text outside of the places stays.
func TestScalingPage(t *testing.T) {
	text, err := os.ReadFile("../../../docs/scaling.md")
	if err != nil {
		t.Fatal(err)
	}
	p := page{blocks: map[string]string{}}
	r := &report{}
	for _, of := range []string{"1", "10"} {
		r.add("rate", of, "rows/s", goal{}, 4)
	}
	r.add("memory", "10", "MB", goal{}, 8)
	r.add("explain", "1", "ms", goal{}, 5)
	r.add("explain", "10", "ms", goal{}, failed)
	r.notMeasured("absent", "no server")
	p.addTable("databases", "database", r, nil)
	for _, d := range dimensions() {
		p.addTable(d.name, d.title, r, []string{"rate", "memory"})
	}
	replaced, err := p.replace(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| keys | 1 | 10 | last by first |", "| rate, rows/s | 4.00 | 4.00 | ×1.00 |", "| memory, MB | – | 8.00 |  |", "| explain, ms | 5.00 | failed |  |",
		"- **keys, 1 → 10**: rate ×1.00.\n"} {
		if !strings.Contains(replaced, want) {
			t.Errorf("the page has no %q:\n%s", want, replaced)
		}
	}
	if again, err := p.replace(replaced); err != nil || again != replaced {
		t.Errorf("put in twice the page differs: %v", err)
	}
	first, _, _ := strings.Cut(string(text), "<!-- begin")
	last := string(text[strings.LastIndex(string(text), "<!-- end"):])
	if !strings.HasPrefix(replaced, first) || !strings.HasSuffix(replaced, last) {
		t.Error("the text around the places has changed")
	}
	p.set("unknown", "")
	if _, err := p.replace(string(text)); err == nil {
		t.Error("a place that is missing was not missed")
	}
}
