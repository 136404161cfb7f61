//go:build linux

package bench

import (
	"fmt"
	"testing"
	"time"
)

// mysqlTemplate is a database with a backlog of so many rows, of which the first old ones are published since long.
func mysqlTemplate(b *testing.B, p programs, s *server, rows int, sections string, old int) *database {
	d := s.newDatabase(b, "")
	d.setup(b, p, "", nullSinkYAML, sections).init(b)
	d.run(b, mysqlInsert(0, rows, old))
	var n, size int
	d.query(b, `SELECT count(*), max(length(payload)) FROM outbox`, &n, &size)
	if n != rows || size != payloadBytes {
		b.Fatalf("the backlog is %d rows of %d bytes", n, size)
	}
	return d
}

// mysqlInsert inserts rows with the numbers from one on and below another, and publishes those below old.
func mysqlInsert(from, below, old int) string {
	digit := "(SELECT 0 AS i UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5" +
		" UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	number, digits := fmt.Sprint(from), "(SELECT 0) zero"
	for i, unit := 0, 1; unit < below-from; i, unit = i+1, unit*10 {
		number += fmt.Sprintf(" + %d * d%d.i", unit, i)
		digits += fmt.Sprintf(", %s d%d", digit, i)
	}
	return fmt.Sprintf(`INSERT INTO outbox (id, aggregateid, aggregatetype, type, payload, state, deliveries, published_at)
		SELECT CONCAT('0198f0c2-5b1e-7000-8000-', LPAD(i, 12, '0')), CONCAT('customer-', LPAD(FLOOR(RAND() * 10000), 5, '0')), 'orders', 'OrderPlaced',
			CONCAT('{"order":', 100000000 + i, ',"text":"', REPEAT('0', %d), '"}'),
			IF(i < %[2]d, 'published', 'pending'), i < %[2]d, IF(i < %[2]d, '2020-01-01', '1970-01-01 00:00:00')
		FROM (SELECT %[3]s AS i FROM %[4]s) n WHERE i < %[5]d ORDER BY i`, payloadBytes-29, old, number, digits, below)
}

// copyRows makes a database with the same rows. Its pages are in the server's buffers, still to be written, whatever comes
// next.
func (d *database) copyRows(b *testing.B, p programs, sections string) *database {
	c := d.newDatabase(b, "")
	c.setup(b, p, "", nullSinkYAML, sections).init(b)
	c.run(b, fmt.Sprintf(`INSERT INTO outbox (id, aggregateid, aggregatetype, type, payload)
		SELECT id, aggregateid, aggregatetype, type, payload FROM %s.outbox ORDER BY seq`, d.name))
	return c
}

// benchmarkMySQLDrain drains copies of a backlog, between UPDATEs of other copies of it.
func benchmarkMySQLDrain(b *testing.B, p programs, s *server, r *report) {
	from := mysqlTemplate(b, p, s, backlogRows, rowsDeleted, 0)
	update := func() time.Duration {
		d := from.copyRows(b, p, rowsDeleted)
		defer d.drop(b)
		return d.run(b, updateAll)
	}
	before := update()
	for b.Loop() {
		for _, kind := range []struct {
			name, sink, sections string
			want                 goal
		}{
			{"file sink, rows deleted", fileSinkYAML, rowsDeleted, atLeast(0.15)},
			{"file sink, rows kept", fileSinkYAML, rowsKept, goal{}},
			{"null sink, rows deleted", nullSinkYAML, rowsDeleted, goal{}},
		} {
			d := from.copyRows(b, p, kind.sections)
			done := d.drain(b, d.setup(b, p, "", kind.sink, kind.sections), backlogRows, 0, kind.sections == rowsDeleted)
			after := update()
			r.addDrain(s.name+" drain / UPDATE of all rows", "100k, "+kind.name, kind.want, backlogRows, done, (before+after)/2)
			before = after
		}
	}
}
