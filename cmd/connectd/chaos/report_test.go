//go:build linux

package chaos

import (
	"fmt"
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

// report is what was seen of all pairs.
type report struct {
	plan              plan
	revision, machine string
	load              string // at the start
	at                time.Time

	mu      sync.Mutex
	results []*result
}

func newReport(t *testing.T, plan plan) *report {
	r := &report{plan: plan, revision: "unknown", load: load(), at: time.Now().UTC()}
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
		"Each pair of a source and a sink has a fleet of real daemons, whose processes, servers and connections are broken at random "+
		"while producers write; an independent checker then reads what the producers know, the table and what arrived. "+
		"How, and what it rests on, is in [`cmd/connectd/chaos`](../cmd/connectd/chaos/doc.go). "+
		"The same schedule again: `make chaos CHAOS=%v SEED=%d`.\n\n", r.plan.total, r.plan.seed)
	fmt.Fprintf(&b, "connectd %s, %s, %s, race detector %t, %s; load over a minute before and after: %s, %s. "+
		"%v of accidents with each pair; lease %v, poll %v, %d batches of %d rows in flight at most, for each daemon.\n\n",
		r.revision, runtime.Version(), r.machine, len(buildFlags()) > 0, r.at.Format("2006-01-02 15:04 UTC"), r.load, load(),
		r.plan.total, lease, pollMax, inFlight, maxRecords)
	r.laws(&b)
	r.servers(&b)
	r.rows(&b)
	r.takeovers(&b)
	r.accidents(&b)
	return b.String()
}

// column is one of a table in which each pair has a line.
type column struct {
	name  string
	value func(one *result) any
}

// table writes a line for each pair, with figures at the right.
func (r *report) table(b *strings.Builder, right bool, columns ...column) {
	edge := "---|"
	if right {
		edge = "--:|"
	}
	b.WriteString("| pair |")
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", c.name)
	}
	fmt.Fprintf(b, "\n|---|%s\n", strings.Repeat(edge, len(columns)))
	for _, one := range r.results {
		fmt.Fprintf(b, "| %v |", one.pair)
		for _, c := range columns {
			fmt.Fprintf(b, " %v |", c.value(one))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

// laws are what was held against what happened: each with its violations, summed up, and which pairs had them.
func (r *report) laws(b *strings.Builder) {
	b.WriteString("## Laws\n\n| law | violations |\n|---|--:|\n")
	var names []string
	for _, l := range laws() {
		names = append(names, l.name)
	}
	for _, name := range append(names, inGoodOrder) {
		sum, where := 0, ""
		for _, one := range r.results {
			if n := one.broken[name]; n > 0 {
				sum += n
				where += " " + one.pair.String()
			}
		}
		fmt.Fprintf(b, "| %s | %d%s |\n", name, sum, where)
	}
	b.WriteString("\n")
}

func (r *report) servers(b *strings.Builder) {
	b.WriteString("## Pairs\n\n")
	r.table(b, false,
		column{"database", func(one *result) any { return one.source }},
		column{"its clock", func(one *result) any { return one.clock }},
		column{"destination", func(one *result) any { return one.target }},
		column{"daemons", func(one *result) any { return one.pair.daemons }},
		column{"their starts", func(one *result) any { return one.starts }})
}

func (r *report) rows(b *strings.Builder) {
	b.WriteString("## Rows\n\nPoisoned rows, about one in a hundred, are unreadable, refused or too large, and with the sink `killer` three more end or hang it; " +
		"all end dead. A late first send is one that arrived after its repeat. " +
		"The last column is the time from when everything was mended until nothing was left to do.\n\n")
	r.table(b, true,
		column{"transactions", func(one *result) any { return one.transactions }},
		column{"rows committed", func(one *result) any { return one.committed + one.found }},
		column{"of them not answered", func(one *result) any { return one.found }},
		column{"rolled back", func(one *result) any { return one.rolledBack + one.unanswered - one.found }},
		column{"poisoned", func(one *result) any { return one.poison }},
		column{"arrivals", func(one *result) any { return one.arrivals }},
		column{"repeats", func(one *result) any { return one.repeats }},
		column{"for each accident that can cause any", func(one *result) any { return one.perAccident() }},
		column{"late first sends", func(one *result) any { return one.late }},
		column{"settled after", func(one *result) any { return one.settled.Round(10 * time.Millisecond) }})
}

func (r *report) takeovers(b *strings.Builder) {
	fmt.Fprintf(b, "## Takeovers\n\nFrom kill -9 of a daemon with partitions until others had all of them, by the lease table. The law is about those "+
		"that nothing else disturbed: at most the lease, a poll and %v for heartbeats' spread, statements and the looking, %v in all; and where the machine or "+
		"the database was late meanwhile, as much longer as three steps were; the last column is the longest that was allowed so. A file has one writer at a time: "+
		"others get its partitions when they have found the file free, which the law is not about.\n\n", grain, lease+pollMax+grain)
	r.table(b, true,
		column{"kills", func(one *result) any { return len(one.all) }},
		column{"p50", func(one *result) any { return at(one.all, 1, 2) }},
		column{"max", func(one *result) any { return at(one.all, 1, 1) }},
		column{"undisturbed", func(one *result) any { return len(one.judged) }},
		column{"their p50", func(one *result) any { return at(one.judged, 1, 2) }},
		column{"their max", func(one *result) any { return at(one.judged, 1, 1) }},
		column{"allowed", func(one *result) any { return one.allowance() }})
}

// accidents have a table for each kind of thing that breaks: all of them do not fit beside each other.
func (r *report) accidents(b *strings.Builder) {
	b.WriteString("## Accidents\n\n")
	kinds := map[string][]what{}
	var groups []string
	for _, w := range allKinds() {
		group, _, _ := strings.Cut(string(w), ": ")
		if kinds[group] == nil {
			groups = append(groups, group)
		}
		kinds[group] = append(kinds[group], w)
	}
	for _, group := range groups {
		var columns []column
		for _, w := range kinds[group] {
			if !slices.ContainsFunc(r.results, func(one *result) bool { return one.accidents[w] > 0 }) {
				continue
			}
			_, name, _ := strings.Cut(string(w), ": ")
			columns = append(columns, column{name, func(one *result) any { return one.count(w) }})
		}
		if len(columns) > 0 {
			columns[0].name = group + ": " + columns[0].name
			r.table(b, true, columns...)
		}
	}
}
