//go:build linux

package bench

import (
	"fmt"
	"net/url"
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
	f, setup := d.newConnectors(b, p, n, d.dsn)
	setup.init(b)
	run := f.start(b, setup)
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
	run.stop()

	published := f.rows
	f, setup = d.newConnectors(b, p, n, withSetting(b, d.dsn, "pool_max_conns", "1"))
	f.rows = published
	f.start(b, setup)
	var small report
	f.burst(b, &small, of, usual())
	r.add("connections, after a drain with pool_max_conns=1", of, "", goal{}, f.connections(b))
	r.add("drain with pool_max_conns=1", of, "rows/s", goal{}, small.figures[0].Samples[0])
	f.stop(b)
}

// newConnectors configures connectors, each with a table and a file sink of its own.
func (d *database) newConnectors(b *testing.B, p programs, n int, dsn string) (*fleet, setup) {
	f := &fleet{d: d, deletes: true}
	var text strings.Builder
	for i := range n {
		f.tables = append(f.tables, fmt.Sprintf("outbox_%d", i))
		text.WriteString(connectorYAML(fmt.Sprintf("bench_%d", i), fmt.Sprintf("{plugin: postgres, dsn: %q, table: outbox_%d}", dsn, i),
			fmt.Sprintf("{plugin: file, path: DIR/out_%d.jsonl}", i), rowsDeleted))
	}
	return f, newSetupOf(b, p, text.String())
}

// start runs one daemon until all its connectors are ready.
func (f *fleet) start(b *testing.B, s setup) *daemon {
	run := s.run(b)
	f.daemons = []*daemon{run}
	s.awaitReady(b)
	return run
}

// withSetting is a DSN, which is a URL, with one more setting.
func withSetting(b *testing.B, dsn, name, value string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		b.Fatal("the address of PostgreSQL is no URL")
	}
	settings := u.Query()
	settings.Set(name, value)
	u.RawQuery = settings.Encode()
	return u.String()
}

// connections is how many the daemons have to the database.
func (f *fleet) connections(b *testing.B) (n float64) {
	f.d.query(b, `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'connectd' AND datname = current_database()`, &n)
	return n
}
