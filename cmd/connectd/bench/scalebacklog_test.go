//go:build linux

package bench

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// backlogPayload is the size of a payload where rows are many.
const backlogPayload = 100

// drainTime is how long a backlog is drained at most.
const drainTime = 10 * time.Second

// load inserts rows with payloads of 100 bytes in a state, from two connections, and lets the server settle.
func (d *database) load(b *testing.B, rows int, state string) {
	const chunk = 50_000
	published := "NULL"
	if state == "published" {
		published = "now()"
	}
	statement := fmt.Sprintf(`INSERT INTO outbox (id, aggregateid, aggregatetype, type, payload, state, published_at)
		SELECT 'row-' || i, 'customer-' || lpad((i %% 10000)::text, 9, '0'), 'orders', 'OrderPlaced',
			convert_to('{"order":' || 100000000 + i || ',"text":"' || repeat('0', %d) || '"}', 'UTF8'), '%s', %s FROM generate_series($1::bigint, $2::bigint) i`,
		backlogPayload-29, state, published)
	firsts := make(chan int)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for first := range firsts {
				if _, err := d.db.ExecContext(b.Context(), statement, first, min(first+chunk-1, rows)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for first := 1; first <= rows; first += chunk {
		firsts <- first
	}
	close(firsts)
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
	d.run(b, `VACUUM (ANALYZE) outbox`, `CHECKPOINT`)
}

// scaleBacklog looks at a backlog with the commands, and then drains it, for ten seconds at most.
func scaleBacklog(b *testing.B, p programs, s *server, r *report) {
	for _, rows := range sizes(10_000, 1_000_000, 10_000_000) {
		rows = few(rows)
		of := count(rows)
		d := s.newDatabase(b, "")
		one := d.setup(b, p, "", receiptsYAML, rowsDeleted)
		one.init(b)
		d.load(b, rows, "pending")
		for _, each := range []struct {
			name string
			args []string
		}{
			{"status", nil}, {"rows list", []string{"--state", "pending"}}, {"rows explain", []string{fmt.Sprintf("row-%d", rows)}}, {"doctor", nil},
		} {
			took, err := one.tryCommand(b, each.name, each.args...)
			value := milliseconds(took)
			if err != nil {
				b.Logf("%s rows wait: %v", of, err)
				value = failed
			}
			r.add("connectd "+each.name, of, "ms", goal{}, value)
		}
		f := &fleet{d: d, deletes: true, setups: []setup{one}, daemons: []*daemon{one.run(b)}}
		f.daemons[0].await(connectorRuns, 0)
		began := time.Now()
		until(b, "rows are published", 5*time.Millisecond, func() bool { return f.published(b) > 0 })
		r.add("connector runs → first rows published", of, "ms", goal{}, milliseconds(time.Since(began)))
		first, from := f.published(b), time.Now()
		until(b, "the backlog is drained", 5*time.Millisecond, func() bool { return f.published(b) == rows || time.Since(from) > drainTime })
		r.add(drainRate, of, "rows/s", goal{}, float64(f.published(b)-first)/time.Since(from).Seconds())
		f.read(b, r, of)
		r.add(daemonMemory, of, "MB", goal{}, pss(b, f.daemons[0].cmd.Process.Pid))
		f.stop(b)
	}
}

// scaleKept drains rows beside published ones that are kept, and keeps them too.
func scaleKept(b *testing.B, p programs, s *server, r *report) {
	for _, rows := range sizes(0, 1_000_000, 10_000_000) {
		rows = few(rows)
		of := count(rows)
		d := s.newDatabase(b, "")
		d.setup(b, p, "", receiptsYAML, rowsKept).init(b)
		d.load(b, rows, "published")
		f := d.newFleet(b, p, 1, usualPartitions, rowsKept)
		for range bursts {
			f.burst(b, r, of, usual())
		}
		f.read(b, r, of)
		f.d.check(b, rows+f.rows, 0, false)
		f.stop(b)
	}
}
