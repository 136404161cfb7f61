//go:build linux

package bench

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"
)

// drains are the connectors that drain the backlog, in turn.
var drains = []struct {
	name, sink, more string
	deletes          bool
	want             goal
}{
	{"file sink, rows kept", fileSinkYAML, "", false, atLeast(0.15)},
	{"file sink, rows deleted", fileSinkYAML, "retention: {published: 0s}", true, atLeast(0.15)},
	{"null sink, rows kept", nullSinkYAML, "", false, atLeast(0.25)},
	{"null sink, rows deleted", nullSinkYAML, "retention: {published: 0s}", true, atLeast(0.25)},
}

// benchmarkDrain lets the daemon drain a backlog, from the moment the connector runs until no row is pending, between two
// plain SELECTs of the same rows. Beside the rates, which a busy machine disturbs, it notes the processor time of both.
func benchmarkDrain(b *testing.B, p programs, r *report) {
	first := newSetup(b, p, nullSinkYAML, "")
	first.init(b)
	fill(b, first.database())
	for b.Loop() {
		before := selectAll(b, first.database())
		for _, d := range drains {
			s := newSetup(b, p, d.sink, d.more)
			if err := copyFile(first.database(), s.database(), 0o644); err != nil {
				b.Fatal(err)
			}
			drained := drain(b, s)
			checkDrained(b, s, d.deletes)
			after := selectAll(b, first.database())
			selected := before.plus(after).half()
			before = after
			r.add("SQLite drain / plain SELECT", d.name, "", d.want, selected.wall.Seconds()/drained.wall.Seconds())
			r.add("  rate", d.name, "rows/s", goal{}, backlogRows/drained.wall.Seconds())
			r.add("  processor time", d.name, "µs/row", goal{}, drained.cpu.Seconds()*1e6/backlogRows)
			r.add("  the SELECTs beside it", d.name, "rows/s", goal{}, backlogRows/selected.wall.Seconds())
			r.add("  their processor time", d.name, "µs/row", goal{}, selected.cpu.Seconds()*1e6/backlogRows)
			remove(b, s.database(), s.output())
		}
	}
}

// cost is what some work took.
type cost struct{ wall, cpu time.Duration }

func (c cost) plus(d cost) cost { return cost{c.wall + d.wall, c.cpu + d.cpu} }
func (c cost) half() cost       { return cost{c.wall / 2, c.cpu / 2} }

// drain runs a daemon and returns how long its connector needed, and the processor time of both processes, which has
// their start in it.
func drain(b *testing.B, s setup) cost {
	db := openDatabase(b, s.database())
	defer db.Close()
	pending, err := db.Prepare(`SELECT EXISTS (SELECT 1 FROM outbox INDEXED BY connectd_outbox_pending WHERE state = 'pending')`)
	if err != nil {
		b.Fatal(err)
	}
	defer pending.Close()
	d := s.run(b)
	began, _, _ := d.await(connectorRuns, 0)
	var ended time.Time
	until(b, "the backlog is drained", 5*time.Millisecond, func() bool {
		var any bool
		if err := pending.QueryRow().Scan(&any); err != nil {
			b.Fatal(err)
		}
		ended = time.Now()
		return !any
	})
	used := cost{ended.Sub(began.at), cpuTime(b, d.cmd.Process.Pid) + cpuTime(b, d.sinkPID())}
	d.stop()
	return used
}

// checkDrained makes sure that the daemon did what it was measured at.
func checkDrained(b *testing.B, s setup, deleted bool) {
	db := openDatabase(b, s.database())
	defer db.Close()
	var rows, published, cleaned int
	err := db.QueryRow(`SELECT count(*), count(*) FILTER (WHERE state = 'published'),
		(SELECT coalesce(sum(count), 0) FROM connectd_ledger) FROM outbox`).Scan(&rows, &published, &cleaned)
	if err != nil {
		b.Fatal(err)
	}
	if deleted && (rows != 0 || cleaned != backlogRows) || !deleted && published != backlogRows {
		b.Fatalf("of %d rows there are %d, %d of them published, and %d cleaned", backlogRows, rows, published, cleaned)
	}
	if lines := countLines(b, s.output()); lines >= 0 && lines != backlogRows {
		b.Fatalf("%d rows are %d lines", backlogRows, lines)
	}
}

// countLines counts a file's lines; -1 without a file.
func countLines(b *testing.B, path string) int {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return -1
	}
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	n := 0
	for buf := make([]byte, 1<<20); ; {
		k, err := f.Read(buf)
		n += bytes.Count(buf[:k], []byte{'\n'})
		if err == io.EOF {
			return n
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
