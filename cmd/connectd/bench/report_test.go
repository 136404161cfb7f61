//go:build linux

package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// report collects figures in the order in which they were first named.
type report struct {
	machine machine
	figures []*figure
}

// figure is one line of the table: a value for each round, and what is wanted of their median.
type figure struct {
	Name string `json:"name"`
	Of   string `json:"of,omitempty"` // which of several alike it belongs to
	Unit string `json:"unit"`
	// Goal is "at least" or "at most" followed by a number, or "" for a figure that only explains others.
	Goal    string    `json:"goal,omitempty"`
	OK      *bool     `json:"ok,omitempty"`
	Median  float64   `json:"median"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
	Samples []float64 `json:"samples"`
	// NotMeasured says why there are no samples.
	NotMeasured string `json:"not_measured,omitempty"`

	want goal
}

// goal is a bound for a median; the zero goal wants nothing.
type goal struct {
	kind  string
	value float64
}

func atLeast(v float64) goal { return goal{"at least", v} }
func atMost(v float64) goal  { return goal{"at most", v} }

// add notes a round's value.
func (r *report) add(name, of, unit string, want goal, value float64) {
	i := slices.IndexFunc(r.figures, func(f *figure) bool { return f.Name == name && f.Of == of })
	if i < 0 {
		i = len(r.figures)
		r.figures = append(r.figures, &figure{Name: name, Of: of, Unit: unit, want: want})
	}
	r.figures[i].Samples = append(r.figures[i].Samples, value)
}

// notMeasured notes that there will be no figure, and why, so that its absence is seen.
func (r *report) notMeasured(name, why string) {
	r.figures = append(r.figures, &figure{Name: name, NotMeasured: why})
}

// rounds makes a benchmark of a function that notes figures. The time of one round says nothing, so it is not printed.
func (r *report) rounds(p programs, f func(*testing.B, programs, *report)) func(*testing.B) {
	return func(b *testing.B) {
		f(b, p, r)
		b.ReportMetric(0, "ns/op")
	}
}

// sum fills in what follows from the samples.
func (f *figure) sum() {
	sorted := slices.Sorted(slices.Values(f.Samples))
	n := len(sorted)
	if n == 0 {
		return
	}
	f.Min, f.Median, f.Max = sorted[0], (sorted[(n-1)/2]+sorted[n/2])/2, sorted[n-1]
	if f.want.kind == "" {
		return
	}
	f.Goal = fmt.Sprintf("%s %s", f.want.kind, number(f.want.value))
	ok := f.Median >= f.want.value
	if f.want.kind == "at most" {
		ok = f.Median <= f.want.value
	}
	f.OK = &ok
}

// title says what the figure is; one that explains the figure above it is set in.
func (f *figure) title() string {
	if f.Of == "" || strings.HasPrefix(f.Name, " ") {
		return f.Name
	}
	return f.Name + ", " + f.Of
}

func (f *figure) verdict() string {
	switch {
	case f.OK == nil:
		return ""
	case *f.OK:
		return "ok"
	case f.want.kind == "at most":
		return "ABOVE"
	default:
		return "BELOW"
	}
}

// table prints everything for people.
func (r *report) table(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nFIGURE\tMEDIAN\tMIN – MAX\tSAMPLES\tGOAL\t\n")
	for _, f := range r.figures {
		f.sum()
		if f.NotMeasured != "" {
			fmt.Fprintf(w, "%s\tnot measured: %s\n", f.Name, f.NotMeasured)
			continue
		}
		fmt.Fprintf(w, "%s\t%s %s\t%s – %s\t%d\t%s\t%s\n",
			f.title(), number(f.Median), f.Unit, number(f.Min), number(f.Max), len(f.Samples), f.Goal, f.verdict())
	}
	m := r.machine
	fmt.Fprintf(w, "\n%s, %d cores, %s, %s; files on %s\n", m.CPU, m.Cores, m.Kernel, m.Go, m.FileSystem)
	fmt.Fprintf(w, "load before and after, over a minute: %s, %s; %s; at %s\n", m.Load, load(), m.Revision, m.At.Format(time.RFC3339))
	return w.Flush()
}

// writeJSON writes everything for programs.
func (r *report) writeJSON(path string) error {
	for _, f := range r.figures {
		f.sum()
	}
	data, err := json.MarshalIndent(struct {
		Machine machine   `json:"machine"`
		Figures []*figure `json:"figures"`
	}{r.machine, r.figures}, "", "  ")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// number writes a value with three digits, thousands apart.
func number(v float64) string {
	switch {
	case v < 1:
		return fmt.Sprintf("%.3f", v)
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return thousands(fmt.Sprintf("%.0f", v))
}

// thousands sets the thousands of a number apart.
func thousands(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// machine is where the figures come from.
type machine struct {
	CPU        string    `json:"cpu"`
	Cores      int       `json:"cores"`
	Kernel     string    `json:"kernel"`
	Go         string    `json:"go"`
	FileSystem string    `json:"file_system"`
	Load       string    `json:"load"`
	Revision   string    `json:"revision"`
	At         time.Time `json:"at"`
}

func lookAtMachine(b *testing.B) machine {
	m := machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Load: load(), At: time.Now().UTC().Truncate(time.Second)}
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = "Linux " + unix.ByteSliceToString(u.Release[:])
	}
	out, err := exec.Command("stat", "-f", "-c", "%T", b.TempDir()).Output()
	if err == nil {
		m.FileSystem = strings.TrimSpace(string(out))
	}
	out, err = exec.Command("git", "describe", "--always", "--dirty").Output()
	if err == nil {
		m.Revision = strings.TrimSpace(string(out))
	}
	return m
}

// load is the number of processes that wanted to run, over the last minute.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
