//go:build linux

package bench

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// scaleConnectors runs connectors in one daemon: a table and a file sink, in a process of its own, for each.
func scaleConnectors(b *testing.B, p programs, s *server, r *report) {
	var most int
	if err := s.db.QueryRowContext(b.Context(), `SELECT current_setting('max_connections')::int`).Scan(&most); err != nil {
		b.Fatal(err)
	}
	for _, n := range sizes(1, 10, 100) {
		const each, others = 12, 20
		if most < n*each+others {
			b.Logf("max_connections is %d, too few for %d connectors", most, n)
			continue
		}
		scaleConnectorsTo(b, p, s.newDatabase(b, ""), n, r)
	}
}

func scaleConnectorsTo(b *testing.B, p programs, d *database, n int, r *report) {
	of := count(n)
	f := &fleet{d: d, deletes: true}
	var text strings.Builder
	for i := range n {
		f.tables = append(f.tables, fmt.Sprintf("outbox_%d", i))
		text.WriteString(connectorYAML(fmt.Sprintf("bench_%d", i), fmt.Sprintf("{plugin: postgres, dsn: %q, table: outbox_%d}", d.dsn, i),
			fmt.Sprintf("{plugin: file, path: DIR/out_%d.jsonl}", i), rowsDeleted))
	}
	setup := newSetupOf(b, p, text.String())
	setup.init(b)
	run := setup.run(b)
	f.daemons = []*daemon{run}
	setup.awaitReady(b)
	r.add("start: exec → all ready", of, "s", goal{}, time.Since(run.started).Seconds())
	f.idle(b, r, of)

	pid := run.cmd.Process.Pid
	sinks := children(b, pid)
	if len(sinks) != n {
		b.Fatalf("%d connectors have %d sinks' processes", n, len(sinks))
	}
	var memory float64
	for sink := range sinks {
		memory += pss(b, sink)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		b.Fatal(err)
	}
	r.add(connectionsIdle, of, "", goal{}, f.connections(b))
	r.add(daemonMemory, of, "MB", goal{}, pss(b, pid))
	r.add("sinks, memory (PSS) of all", of, "MB", goal{}, memory)
	r.add("daemon, threads", of, "", goal{}, status(b, pid, "Threads"))
	r.add("daemon, file descriptors", of, "", goal{}, float64(len(files)))

	r.add("connectd status", of, "ms", goal{}, milliseconds(setup.command(b, "status")))
	for range bursts {
		f.burst(b, r, of, usual())
	}
	r.add("connections, after the drain", of, "", goal{}, f.connections(b))
	f.stop(b)
}

// connections is how many the daemons have to the database.
func (f *fleet) connections(b *testing.B) (n float64) {
	f.d.query(b, `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'connectd' AND datname = current_database()`, &n)
	return n
}
