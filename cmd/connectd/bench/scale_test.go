//go:build linux

package bench

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

var (
	pagePath = flag.String("page", "", "write what BenchmarkScale measured into this `FILE`, between its marks")
	quick    = flag.Bool("quick", false, "let BenchmarkScale leave out each dimension's largest size, and nine rows of ten")
)

// dimension is something that grows: what differs between the columns of its table.
type dimension struct {
	name  string // of the benchmark and of its marks in the page
	title string // what is in the columns
	// headlines are the figures whose growth is said in one line.
	headlines []string
	measure   func(*testing.B, programs, *server, *report)
}

// dimensions are all that docs/scaling.md has a table of.
func dimensions() []dimension {
	return []dimension{
		{"daemons", "daemons", []string{drainRate, serverPerRow, trickleServer}, scaleDaemons},
		{"connectors", "connectors", []string{"start: exec → all ready", connectionsIdle, idleTransactions, idleDaemon, daemonMemory, "connectd status"}, scaleConnectors},
		{"partitions", "partitions", []string{drainRate, idleTransactions, idleServer, trickleP50}, scalePartitions},
		{"keys", "keys", []string{drainRate, daemonPerRow}, scaleKeys},
		{"backlog", "rows waiting", []string{drainRate, readMean, "connectd status", daemonMemory}, scaleBacklog},
		{"kept", "published rows kept", []string{drainRate, readMean, serverPerRow}, scaleKept},
		{"payload", "payload", []string{drainRate, "drained", "daemon, most memory"}, scalePayload},
	}
}

// The names of figures that several dimensions have.
const (
	drainRate        = "drain"
	serverPerRow     = "server's processor time, drain"
	daemonPerRow     = "daemons' processor time, drain"
	idleTransactions = "idle: transactions at the server"
	idleServer       = "idle: server's processor time"
	idleDaemon       = "idle: daemons' processor time"
	trickleServer    = "100 rows/s: server's processor time"
	trickleDaemon    = "100 rows/s: daemons' processor time"
	trickleP50       = "100 rows/s: commit → delivered, p50"
	trickleP99       = "100 rows/s: commit → delivered, p99"
	connectionsIdle  = "connections, idle"
	readMean         = "one read of the table, mean"
	daemonMemory     = "daemon, memory (PSS)"
)

// BenchmarkScale measures how what connectd costs and carries grows, on PostgreSQL, and what one table carries on each
// database. -bench 'BenchmarkScale/partitions' measures one dimension.
func BenchmarkScale(b *testing.B) {
	m := lookAtMachine(b)
	p := buildPrograms(b)
	tables := &report{machine: m}
	pg, found := openServer(b, "PostgreSQL", "postgres", "pgx", postgresDSN)
	if found && pg.ours {
		defer tunePostgres(b, pg, "max_connections = 2000")()
	}
	if found {
		pg.findParent(b)
	}
	page := page{machine: m, blocks: map[string]string{}}
	if b.Run("databases", tables.rounds(p, func(b *testing.B, p programs, r *report) { scaleDatabases(b, p, pg, r) })) {
		page.addTable("databases", "database", tables, nil)
	}
	for _, d := range dimensions() {
		r := &report{machine: m}
		if b.Run(d.name, r.withServer(p, pg, d.title, postgresDSN, func(b *testing.B, p programs, s *server, r *report) {
			for b.Loop() {
				d.measure(b, p, s, r)
			}
		})) {
			page.addTable(d.name, d.title, r, d.headlines)
		}
	}
	if err := page.print(os.Stdout); err != nil { // what was measured, also when something else failed
		b.Fatal(err)
	}
	if *pagePath != "" {
		if err := page.update(*pagePath); err != nil {
			b.Fatal(err)
		}
	}
}

// sizes are the sizes to measure at.
func sizes(all ...int) []int {
	if *quick {
		return all[:len(all)-1]
	}
	return all
}

// few makes a number of rows smaller for a quick look.
func few(rows int) int {
	if *quick {
		return rows / 10
	}
	return rows
}

// scaleDatabases drains one table on each database, and sets it against something physical that docs/benchmarks.md explains.
func scaleDatabases(b *testing.B, p programs, pg *server, r *report) {
	for b.Loop() {
		if pg != nil {
			for _, sections := range []string{rowsDeleted, rowsKept} {
				from := pgTemplate(b, p, pg, backlogRows, sections, false)
				before := pgUpdate(b, from)
				done := pgDrain(b, p, from, backlogRows, 0, nullSinkYAML, sections)
				r.addScaleDrain(pg.name, sections, done, (before+pgUpdate(b, from))/2)
				from.drop(b)
			}
		}
		for _, each := range []struct{ name, variable string }{{"MySQL", "CONNECTD_TEST_MYSQL_DSN"}, {"MariaDB", "CONNECTD_TEST_MARIADB_DSN"}} {
			if s, found := openServer(b, each.name, "mysql", "mysql", each.variable); found {
				scaleMySQL(b, p, s, r)
			}
		}
		first := newSetup(b, p, nullSinkYAML, "")
		first.init(b)
		fill(b, first.database())
		for _, sections := range []string{rowsDeleted, rowsKept} {
			s := newSetup(b, p, nullSinkYAML, sections)
			if err := copyFile(first.database(), s.database(), 0o644); err != nil {
				b.Fatal(err)
			}
			before := selectAll(b, first.database())
			c := drain(b, s)
			checkDrained(b, s, sections == rowsDeleted)
			r.addScaleDrain("SQLite", sections, drained(c), before.plus(selectAll(b, first.database())).half().wall)
			remove(b, s.database())
		}
	}
}

func scaleMySQL(b *testing.B, p programs, s *server, r *report) {
	if s.ours {
		defer tuneMySQL(b, s)()
	}
	from := mysqlTemplate(b, p, s, backlogRows, rowsDeleted, 0)
	defer from.drop(b)
	for _, sections := range []string{rowsDeleted, rowsKept} {
		d := from.copyRows(b, p, sections)
		done := d.drain(b, d.setup(b, p, "", nullSinkYAML, sections), backlogRows, 0, sections == rowsDeleted)
		d = from.copyRows(b, p, rowsDeleted)
		r.addScaleDrain(s.name, sections, done, d.run(b, updateAll))
		d.drop(b)
	}
}

// addScaleDrain notes a drain of one table.
func (r *report) addScaleDrain(database, sections string, d drained, limit time.Duration) {
	kind := ", rows kept"
	if sections == rowsDeleted {
		kind = ", rows deleted"
	}
	r.add("drain"+kind, database, "rows/s", goal{}, backlogRows/d.wall.Seconds())
	r.add("by the limit beside it"+kind, database, "", goal{}, limit.Seconds()/d.wall.Seconds())
	r.add("processor time of daemon and sink"+kind, database, "µs/row", goal{}, d.cpu.Seconds()*1e6/backlogRows)
}

// count writes a size as people read it.
func count(n int) string { return thousands(fmt.Sprint(n)) }
