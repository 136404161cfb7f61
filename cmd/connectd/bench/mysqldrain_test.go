//go:build linux

package bench

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// mysqlTemplate is a database with a backlog of 100,000 rows, which are copied from it.
func mysqlTemplate(b *testing.B, p programs, s *server) *database {
	d := s.newDatabase(b, "")
	d.setup(b, p, "", nullSinkYAML, rowsDeleted).init(b)
	digit := "(SELECT 0 AS i" + strings.Repeat(" UNION ALL SELECT %d", 9) + ")"
	digit = fmt.Sprintf(digit, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	d.run(b, fmt.Sprintf(`INSERT INTO outbox (id, aggregateid, aggregatetype, type, payload)
		SELECT CONCAT('0198f0c2-5b1e-7000-8000-', LPAD(i, 12, '0')), CONCAT('customer-', LPAD(FLOOR(RAND() * 10000), 5, '0')), 'orders', 'OrderPlaced',
			CONCAT('{"order":', 100000000 + i, ',"text":"', REPEAT('0', %d), '"}')
		FROM (SELECT a.i + 10 * b.i + 100 * c.i + 1000 * d.i + 10000 * e.i AS i FROM %[2]s a, %[2]s b, %[2]s c, %[2]s d, %[2]s e) n`, payloadBytes-29, digit))
	var n, size int
	d.query(b, `SELECT count(*), max(length(payload)) FROM outbox`, &n, &size)
	if n != backlogRows || size != payloadBytes {
		b.Fatalf("the backlog is %d rows of %d bytes", n, size)
	}
	return d
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
	from := mysqlTemplate(b, p, s)
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
