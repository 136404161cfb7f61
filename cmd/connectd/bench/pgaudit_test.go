//go:build linux

package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/connectd/connectd/sources/postgres"
)

// auditedRows are in the table that is audited, half of them published and with a receipt, each with its event.
const auditedRows = 1_000_000

// benchmarkPostgresAudit audits many rows, alone and beside producers that commit half as fast as they can. In the first
// round only.
func benchmarkPostgresAudit(b *testing.B, p programs, s *server, r *report) {
	once(b, func() {
		d := auditedTable(b, p, s)
		defer d.drop(b)
		src, err := postgres.Open(b.Context(), postgres.Config{DSN: d.dsn, Table: "outbox"})
		if err != nil {
			b.Fatal(err)
		}
		defer src.Close()
		alone := auditTime(b, src)
		r.add("PostgreSQL, audit of 1M rows, their events and receipts", "", "s", atMost(10), alone.Seconds())

		const connections, period = 4, 15 * time.Second
		forget := func() {
			d.run(b, fmt.Sprintf(`DELETE FROM outbox WHERE seq > %d`, auditedRows), `DELETE FROM events WHERE id LIKE 'row-%'`)
		}
		most := d.produce(b, connections, period/3, 0).rate
		forget()
		without := d.produce(b, connections, period/3, most/2)
		forget()
		ended, longest := make(chan int), time.Duration(0)
		stop := time.After(period)
		go func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					ended <- n
					return
				default:
					longest = max(longest, auditTime(b, src))
				}
			}
		}()
		beside := d.produce(b, connections, period, most/2)
		audits := <-ended
		const name = "PostgreSQL producers at half their own most, beside audits / that half"
		r.add(name, "", "", atLeast(0.95), beside.rate/(most/2))
		r.add("  their own most, alone", name, "rows/s", goal{}, most)
		r.add("  half of it without audits / that half", name, "", goal{}, without.rate/(most/2))
		r.add("  an insert's p50 without audits", name, "ms", goal{}, milliseconds(without.p50))
		r.add("  an insert's p50 beside them", name, "ms", goal{}, milliseconds(beside.p50))
		r.add("  audits meanwhile", name, "", goal{}, float64(audits))
		r.add("  the longest of them", name, "s", goal{}, longest.Seconds())
	})
}

// auditedTable has its events and receipts; what is inserted later brings its event.
func auditedTable(b *testing.B, p programs, s *server) *database {
	from := pgTemplate(b, p, s, auditedRows, rowsKept, false)
	d := s.newDatabase(b, from.name)
	from.drop(b)
	d.run(b, fmt.Sprintf(`UPDATE outbox SET state = 'published', deliveries = 1, published_at = now() - interval '2 days' WHERE seq <= %d`, auditedRows/2),
		`CREATE TABLE events AS SELECT id FROM outbox`, `ALTER TABLE events ADD PRIMARY KEY (id)`,
		`INSERT INTO connectd_receipt (command_id, consumer) SELECT id, 'bench' FROM outbox WHERE state = 'published'`,
		`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO events VALUES (NEW.id); RETURN NULL; END $$`,
		`CREATE TRIGGER note AFTER INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION note()`,
		`VACUUM (ANALYZE)`, `CHECKPOINT`)
	return d
}
