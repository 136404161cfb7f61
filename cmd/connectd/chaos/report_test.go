//go:build linux

package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// result is what was seen of one pair.
type result struct {
	pair                  pair
	Database, Destination string

	committed, rolledBack, unanswered, found int // rows; found are unanswered ones that the table has
	poison, transactions                     int
	arrivals, repeats, late                  int // late: the first send of a row, after another one
	accidents                                map[what]int
	starts                                   int
	takeovers, quiet                         []time.Duration // in order; quiet ones nothing else disturbed
	settled                                  time.Duration
	broken                                   map[string]int // law → violations
}

func summarize(p pair, h *history, violations []violation) *result {
	r := &result{pair: p, arrivals: len(h.receptions), repeats: len(h.repeats()), accidents: map[what]int{}, broken: map[string]int{}}
	for _, f := range h.facts {
		r.transactions = max(r.transactions, f.Transaction)
		_, there := h.rows[f.ID]
		switch f.End {
		case committed:
			r.committed++
		case rolledBack:
			r.rolledBack++
		default:
			r.unanswered++
			if there {
				r.found++
			}
		}
		if f.Poison != "" && there {
			r.poison++
		}
	}
	seen := map[string]bool{}
	for _, one := range h.receptions {
		if seen[one.ID] && !one.Marked {
			r.late++
		}
		seen[one.ID] = true
	}
	for _, a := range h.accidents {
		r.accidents[a.what]++
	}
	for _, v := range violations {
		r.broken[v.law]++
	}
	return r
}

func (r *result) String() string {
	return fmt.Sprintf("%v, %s: %d rows committed, %d rolled back, %d unanswered of which %d are there, %d poison; %d arrivals, %d repeats, %d late; "+
		"%d starts, takeovers %v, undisturbed %v; settled after %v; %v", r.pair, r.Database, r.committed, r.rolledBack, r.unanswered, r.found, r.poison,
		r.arrivals, r.repeats, r.late, r.starts, r.takeovers, r.quiet, r.settled.Round(time.Millisecond), r.accidents)
}

// report is what was seen of all pairs.
type report struct {
	seed              uint64
	total             time.Duration
	revision, machine string
	load              string // at the start
	at                time.Time

	mu      sync.Mutex
	results []*result
}

func newReport(t *testing.T, seed uint64, total time.Duration) *report {
	r := &report{seed: seed, total: total, revision: "unknown", load: load(), at: time.Now().UTC()}
	if out, err := exec.CommandContext(t.Context(), "git", "describe", "--always", "--dirty").Output(); err == nil {
		r.revision = strings.TrimSpace(string(out))
	}
	r.machine = fmt.Sprintf("%d cores", runtime.NumCPU())
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		r.machine += ", Linux " + unix.ByteSliceToString(u.Release[:])
	}
	return r
}

// load is how many processes wanted to run, over the last minute.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

func (r *report) add(one *result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, one)
}

// markdown is the whole document.
func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Fault tests\n\nWritten by `make chaos REPORT=docs/faults.md`; nothing here is by hand. "+
		"What is broken and what is proved is said in `cmd/connectd/chaos`. "+
		"The same schedule again: `make chaos CHAOS=%v SEED=%d`.\n\n", r.total, r.seed)
	fmt.Fprintf(&b, "connectd %s, %s, %s, race detector %t, %s; load over a minute before and after: %s, %s. "+
		"%v of accidents with each pair; lease %v, %d batches of %d rows in flight at most, for each daemon.\n\n",
		r.revision, runtime.Version(), r.machine, len(buildFlags()) > 0, r.at.Format("2006-01-02 15:04 UTC"), r.load, load(),
		r.total, lease, inFlight, maxRecords)
	r.counts(&b)
	r.accidents(&b)
	r.laws(&b)
	return b.String()
}

// table writes a line for each name, with a column for each result.
func (r *report) table(b *strings.Builder, head string, names []string, value func(one *result, name string) string) {
	fmt.Fprintf(b, "| %s |", head)
	for _, one := range r.results {
		fmt.Fprintf(b, " %v |", one.pair)
	}
	fmt.Fprintf(b, "\n|---|%s\n", strings.Repeat("--:|", len(r.results)))
	for _, name := range names {
		fmt.Fprintf(b, "| %s |", name)
		for _, one := range r.results {
			fmt.Fprintf(b, " %s |", value(one, name))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

func (r *report) counts(b *strings.Builder) {
	lines := []struct {
		name  string
		value func(one *result) any
	}{
		{"database", func(one *result) any { return shortVersion(one.Database) }},
		{"destination", func(one *result) any { return one.Destination }},
		{"daemons", func(one *result) any { return one.pair.daemons }},
		{"starts of daemons", func(one *result) any { return one.starts }},
		{"producers' transactions", func(one *result) any { return one.transactions }},
		{"rows committed", func(one *result) any { return one.committed + one.found }},
		{"of these, commit not answered", func(one *result) any { return one.found }},
		{"of these, poison (dead at the end)", func(one *result) any { return one.poison }},
		{"rows rolled back", func(one *result) any { return one.rolledBack + one.unanswered - one.found }},
		{"arrivals", func(one *result) any { return one.arrivals }},
		{"repeats", func(one *result) any { return one.repeats }},
		{"of these, a first send that came late", func(one *result) any { return one.late }},
		{"repeats for each accident that can cause any", func(one *result) any { return one.perAccident() }},
		{"kills of a daemon with partitions", func(one *result) any { return len(one.takeovers) }},
		{"kill → all of them taken over, p50", func(one *result) any { return at(one.takeovers, 1, 2) }},
		{"kill → all of them taken over, max", func(one *result) any { return at(one.takeovers, 1, 1) }},
		{"kills that nothing else disturbed", func(one *result) any { return len(one.quiet) }},
		{"kill → all taken over, p50", func(one *result) any { return at(one.quiet, 1, 2) }},
		{"kill → all taken over, max", func(one *result) any { return at(one.quiet, 1, 1) }},
		{"all mended → nothing pending", func(one *result) any { return one.settled.Round(10 * time.Millisecond) }},
	}
	names := make([]string, len(lines))
	for i, l := range lines {
		names[i] = l.name
	}
	r.table(b, "what was seen", names, func(one *result, name string) string {
		i := slices.Index(names, name)
		return fmt.Sprint(lines[i].value(one))
	})
}

// perAccident is the mean of the repeats for each accident that may cause any.
func (r *result) perAccident() string {
	n := 0
	for w, count := range r.accidents {
		if (accident{what: w}).cost(limits{daemons: 1, inFlight: 1, records: 1}) > 0 {
			n += count
		}
	}
	if n == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", float64(r.repeats)/float64(n))
}

// at is a quantile of sorted times, "–" of none.
func at(sorted []time.Duration, part, of int) string {
	if len(sorted) == 0 {
		return "–"
	}
	return fmt.Sprint(sorted[(len(sorted)-1)*part/of].Round(10 * time.Millisecond))
}

// shortVersion is the part of a server's version that people know.
func shortVersion(version string) string {
	words := strings.Fields(version)
	return strings.Join(words[:min(2, len(words))], " ")
}

func (r *report) accidents(b *strings.Builder) {
	kinds := map[string]bool{}
	for _, one := range r.results {
		for w := range one.accidents {
			kinds[string(w)] = true
		}
	}
	r.table(b, "accidents", slices.SortedFunc(maps.Keys(kinds), cmp.Compare[string]), func(one *result, name string) string {
		if n := one.accidents[what(name)]; n > 0 {
			return fmt.Sprint(n)
		}
		return "–"
	})
}

func (r *report) laws(b *strings.Builder) {
	var names []string
	for _, l := range laws() {
		names = append(names, l.name)
	}
	names = append(names, inGoodOrder)
	r.table(b, "violations", names, func(one *result, name string) string { return fmt.Sprint(one.broken[name]) })
}
