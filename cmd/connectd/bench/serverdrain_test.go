//go:build linux

package bench

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// refusingSinkYAML refuses one row in a thousand for good: those of type Poison.
const refusingSinkYAML = "{plugin: \"null\", refuse: Poison}"

const poisonEvery = 1000

// drained is how a daemon drained a backlog on a server.
type drained struct {
	wall, cpu time.Duration // cpu is that of the daemon and the sink, their start included
}

// drain runs a daemon from the moment its connector runs until every row is settled, makes sure of what it did, and
// removes the database.
func (d *database) drain(b *testing.B, s setup, rows, dead int, deletes bool) drained {
	run := s.run(b)
	began, _, _ := run.await(connectorRuns, 0)
	var ended time.Time
	untilWithin(b, long(rows), "the backlog is drained", 20*time.Millisecond, func() bool {
		settled := s.metric(b, `connectd_settled_rows_total{connector="bench",state="published"}`) +
			s.metric(b, `connectd_settled_rows_total{connector="bench",state="dead"}`)
		ended = time.Now()
		return settled >= float64(rows)
	})
	used := drained{ended.Sub(began.at), cpuTime(b, run.cmd.Process.Pid) + cpuTime(b, run.sinkPID())}
	run.stop()
	d.check(b, rows, dead, deletes)
	if lines := countLines(b, s.output()); lines >= 0 && lines != rows {
		b.Fatalf("%d rows are %d lines", rows, lines)
	}
	remove(b, s.output())
	d.drop(b)
	return used
}

// long bounds what has to be done for each row.
func long(rows int) time.Duration { return patience + time.Duration(rows)*200*time.Microsecond }

// check makes sure that all rows were settled as they should be.
func (d *database) check(b *testing.B, rows, dead int, deletes bool) {
	var published, others, cleaned int
	d.query(b, `SELECT (SELECT count(*) FROM outbox WHERE state = 'published'), (SELECT count(*) FROM outbox WHERE state = 'dead'),
		(SELECT coalesce(sum(count), 0) FROM connectd_ledger)`, &published, &others, &cleaned)
	if deletes {
		published += cleaned
	}
	if published != rows-dead || others != dead || (cleaned > 0) != deletes {
		b.Fatalf("of %d rows %d are published, %d of them cleaned, and %d dead", rows, published, cleaned, others)
	}
}

// metric is the value of one line of the daemon's metrics.
func (s setup) metric(b *testing.B, name string) float64 {
	b.Helper()
	return s.metrics(b, name)[name]
}

// metrics are the values of the lines that begin with one of the names.
func (s setup) metrics(b *testing.B, prefix string) map[string]float64 {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://"+s.http+"/metrics", nil)
	if err != nil {
		b.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	values := map[string]float64{}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		i := strings.LastIndexByte(lines.Text(), ' ')
		if i < 0 || !strings.HasPrefix(lines.Text(), prefix) {
			continue
		}
		if values[lines.Text()[:i]], err = strconv.ParseFloat(lines.Text()[i+1:], 64); err != nil {
			b.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		b.Fatal(err)
	}
	if len(values) == 0 {
		b.Fatalf("no metric begins with %s", prefix)
	}
	return values
}

// updateAll is one statement that changes each row, and no column that an index is about.
const updateAll = `UPDATE outbox SET attempts = attempts + 1`

// addDrain notes a drain by what an UPDATE of as many rows took, and what explains it.
func (r *report) addDrain(name, of string, want goal, rows int, d drained, update time.Duration) {
	r.add(name, of, "", want, update.Seconds()/d.wall.Seconds())
	r.addRate(name, of, rows, d)
	r.add("  the UPDATEs beside it", name+of, "rows/s", goal{}, float64(rows)/update.Seconds())
}

func (r *report) addRate(name, of string, rows int, d drained) {
	r.add("  rate", name+of, "rows/s", goal{}, float64(rows)/d.wall.Seconds())
	r.add("  processor time", name+of, "µs/row", goal{}, d.cpu.Seconds()*1e6/float64(rows))
}
