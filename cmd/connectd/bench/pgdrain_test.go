//go:build linux

package bench

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/sources/postgres"
)

var large = flag.Bool("large", false, "drain 5,000,000 rows too, which takes some minutes and 15 GB of disk")

// pgTemplate is a database that copies are made of. All copies are as the files of the template are: their pages are not in
// the server's buffers, and the first change of each goes to the log as a whole, whoever makes it.
func pgTemplate(b *testing.B, p programs, s *server, rows int, sections string, analysedEmpty bool) *database {
	return pgTemplateOf(b, p, s, rows, payloadBytes, sections, analysedEmpty)
}

// pgTemplateOf is pgTemplate with payloads of another size.
func pgTemplateOf(b *testing.B, p programs, s *server, rows, bytes int, sections string, analysedEmpty bool) *database {
	d := s.newDatabase(b, "")
	d.setup(b, p, "", nullSinkYAML, sections).init(b)
	if analysedEmpty {
		d.run(b, `ALTER TABLE outbox SET (autovacuum_enabled = off)`, `ANALYZE outbox`)
	}
	d.run(b, fmt.Sprintf(`INSERT INTO outbox (id, aggregateid, aggregatetype, type, payload)
		SELECT '0198f0c2-5b1e-7000-8000-' || lpad(i::text, 12, '0'), 'customer-' || lpad(floor(random() * 10000)::text, 5, '0'), 'orders',
			CASE WHEN i %% %d = 0 THEN 'Poison' ELSE 'OrderPlaced' END,
			convert_to('{"order":' || 100000000 + i || ',"text":"' || repeat('0', %d) || '"}', 'UTF8') FROM generate_series(1, %d) i`,
		poisonEvery, bytes-29, rows))
	var n, size int
	d.query(b, `SELECT count(*), max(length(payload)) FROM outbox`, &n, &size) // and notes in the rows that they are committed
	if n != rows || size != bytes {
		b.Fatalf("the backlog is %d rows of %d bytes", n, size)
	}
	if !analysedEmpty {
		d.run(b, `VACUUM (ANALYZE) outbox`)
	}
	if err := d.db.Close(); err != nil {
		b.Fatal(err)
	}
	s.exec(b, `CHECKPOINT`)
	return d
}

// pgUpdate is how long the UPDATE of all rows takes on a copy.
func pgUpdate(b *testing.B, template *database) time.Duration {
	d := template.newDatabase(b, template.name)
	defer d.drop(b)
	if err := d.db.Ping(); err != nil {
		b.Fatal(err)
	}
	return d.run(b, updateAll)
}

// pgDrain drains a copy.
func pgDrain(b *testing.B, p programs, template *database, rows, dead int, sink, sections string) drained {
	d := template.newDatabase(b, template.name)
	return d.drain(b, d.setup(b, p, "", sink, sections), rows, dead, sections == rowsDeleted)
}

const pgDrainName = "PostgreSQL drain / UPDATE of all rows"

// benchmarkPostgresDrain drains copies of a backlog, between UPDATEs of other copies of it.
func benchmarkPostgresDrain(b *testing.B, p programs, s *server, r *report) {
	const rows = backlogRows
	deleted := pgTemplate(b, p, s, rows, rowsDeleted, false)
	kept := pgTemplate(b, p, s, rows, rowsKept, false)
	stale := pgTemplate(b, p, s, rows, rowsDeleted, true)
	samePlan(b, s, deleted, stale)
	for b.Loop() {
		before := pgUpdate(b, deleted)
		file := pgDrain(b, p, deleted, rows, 0, fileSinkYAML, rowsDeleted)
		null := pgDrain(b, p, deleted, rows, 0, nullSinkYAML, rowsDeleted)
		update := (before + pgUpdate(b, deleted)) / 2
		r.addDrain(pgDrainName, "100k, file sink, rows deleted", atLeast(0.6), rows, file, update)
		r.addDrain(pgDrainName, "100k, null sink, rows deleted", atLeast(0.9), rows, null, update)

		poisoned := pgDrain(b, p, deleted, rows, rows/poisonEvery, refusingSinkYAML, rowsDeleted)
		again := pgDrain(b, p, deleted, rows, 0, nullSinkYAML, rowsDeleted)
		clean := (null.wall + again.wall) / 2
		r.add("PostgreSQL drain, one refused row in 1,000 / none", "", "", atLeast(0.9), clean.Seconds()/poisoned.wall.Seconds())
		r.addRate("poison", "", rows, poisoned)

		empty := pgDrain(b, p, stale, rows, 0, fileSinkYAML, rowsDeleted)
		file = halfway(file, pgDrain(b, p, deleted, rows, 0, fileSinkYAML, rowsDeleted))
		r.add("PostgreSQL drain, table analysed while empty / when full", "", "", atLeast(0.9), file.wall.Seconds()/empty.wall.Seconds())
		r.addRate("empty", "", rows, empty)

		before = pgUpdate(b, kept)
		file = pgDrain(b, p, kept, rows, 0, fileSinkYAML, rowsKept)
		update = (before + pgUpdate(b, kept)) / 2
		r.addDrain(pgDrainName, "100k, file sink, rows kept", atLeast(0.4), rows, file, update)
	}
}

func halfway(a, b drained) drained { return drained{(a.wall + b.wall) / 2, (a.cpu + b.cpu) / 2} }

// benchmarkPostgresLarge drains larger backlogs, in the first round only.
func benchmarkPostgresLarge(b *testing.B, p programs, s *server, r *report) {
	once(b, func() {
		const rows = 1_000_000
		deleted := pgTemplate(b, p, s, rows, rowsDeleted, false)
		before := pgUpdate(b, deleted)
		file := pgDrain(b, p, deleted, rows, 0, fileSinkYAML, rowsDeleted)
		null := pgDrain(b, p, deleted, rows, 0, nullSinkYAML, rowsDeleted)
		update := (before + pgUpdate(b, deleted)) / 2
		r.addDrain(pgDrainName, "1M, file sink, rows deleted", atLeast(0.6), rows, file, update)
		r.addDrain(pgDrainName, "1M, null sink, rows deleted", atLeast(0.9), rows, null, update)
		deleted.drop(b)

		kept := pgTemplate(b, p, s, rows, rowsKept, false)
		before = pgUpdate(b, kept)
		done := pgDrain(b, p, kept, rows, 0, fileSinkYAML, rowsKept)
		update = (before + pgUpdate(b, kept)) / 2
		r.addDrain(pgDrainName, "1M, file sink, rows kept", atLeast(0.4), rows, done, update)
		kept.drop(b)

		const five = "PostgreSQL drain, 5M rows / 1M"
		if !*large {
			r.notMeasured(five, "make bench LARGE=1 does it")
			return
		}
		most := pgTemplate(b, p, s, 5*rows, rowsDeleted, false)
		d := pgDrain(b, p, most, 5*rows, 0, fileSinkYAML, rowsDeleted)
		r.add(five, "", "", atLeast(0.8), 5*file.wall.Seconds()/d.wall.Seconds())
		r.addRate(five, "", 5*rows, d)
		most.drop(b)
	})
}

// samePlan makes sure that the fetch has one plan, whatever the statistics say, and that it is the right one.
func samePlan(b *testing.B, s *server, templates ...*database) {
	var plans []string
	for _, t := range templates {
		d := s.newDatabase(b, t.name)
		src, err := postgres.Open(b.Context(), postgres.Config{DSN: d.dsn, Table: "outbox", DeletePublished: true})
		if err != nil {
			b.Fatal(err)
		}
		plan, err := src.FetchPlan(b.Context(), 0)
		if err == nil {
			err = src.CheckPlan(plan)
		}
		if err := src.Close(); err != nil {
			b.Error(err)
		}
		if err != nil {
			b.Fatalf("%v\n%s", err, plan)
		}
		plans = append(plans, plan)
		d.drop(b)
	}
	if plans[0] != plans[1] {
		b.Fatalf("the plan depends on the statistics:\n%s", strings.Join(plans, "\n\n"))
	}
}
