//go:build linux

package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// benchmarkPostgresKafka drains copies of a backlog to a topic, beside drains to the null sink and the bare client's
// writing, and then commits rows at a tenth of the rate and watches a consumer read them.
func benchmarkPostgresKafka(b *testing.B, p programs, s *server, r *report) {
	r.withBroker(p, postgresKafka, kafkaBrokers, func(b *testing.B, p programs, address string, r *report) {
		measurePostgresKafka(b, p, s, strings.Split(address, ","), r)
	})(b)
}

const postgresKafka = "PostgreSQL → Kafka"

func measurePostgresKafka(b *testing.B, p programs, s *server, brokers []string, r *report) {
	const rows = backlogRows
	templates := []struct {
		name, sections string
		from           *database
	}{{name: "rows deleted", sections: rowsDeleted}, {name: "rows kept", sections: rowsKept}}
	for i := range templates {
		t := &templates[i]
		t.from = pgTemplateOf(b, p, s, rows, brokerBytes, t.sections, false)
	}
	for b.Loop() {
		for _, t := range templates {
			kafka := drainToKafka(b, p, t.from, brokers, rows, t.sections)
			null := pgDrain(b, p, t.from, rows, 0, nullSinkYAML, t.sections)
			bare := bareFor(b, brokers)
			null = halfway(null, pgDrain(b, p, t.from, rows, 0, nullSinkYAML, t.sections))
			kafka = halfway(kafka, drainToKafka(b, p, t.from, brokers, rows, t.sections))
			rate, nullRate := rows/kafka.wall.Seconds(), rows/null.wall.Seconds()
			r.add(postgresKafka+" / slower of null drain and bare client, 1 KB", t.name, "", atLeast(0.5), rate/min(nullRate, bare.rate()))
			r.addRate("→ Kafka "+t.name, "", rows, kafka)
			r.add("  the null drain's", "→ Kafka "+t.name, "rows/s", goal{}, nullRate)
			r.add("  processor time of it", "→ Kafka "+t.name, "µs/row", goal{}, null.cpu.Seconds()*1e6/rows)
			r.add("  the bare client's", "→ Kafka "+t.name, "rows/s", goal{}, bare.rate())
			if t.sections == rowsDeleted {
				commitToReadable(b, p, s, brokers, int(rate/10), r)
			}
		}
	}
}

// drainToKafka drains a copy to a topic, and reads back what is in it.
func drainToKafka(b *testing.B, p programs, template *database, brokers []string, rows int, sections string) drained {
	to := newTopic(b, brokers)
	did := pgDrain(b, p, template, rows, 0, to.yaml(), sections)
	check(b, to, rows)
	to.remove(b)
	return did
}

func (t *topic) yaml() string {
	return fmt.Sprintf("{plugin: kafka, brokers: [%s], topic: %s}", `"`+strings.Join(t.brokers, `", "`)+`"`, t.name)
}

// bareFor is the bare client's writing for two turns, of which the first warms it up.
func bareFor(b *testing.B, brokers []string) (did sent) {
	for range 2 {
		to, rows := newTopic(b, brokers), new(supply)
		did = to.bare(b, rows)
		check(b, to, did.rows)
		to.remove(b)
	}
	return did
}

// commitToReadable commits rows at a rate, ten in a transaction, for some seconds, and notes how long after its commit's
// return each is in a consumer's hands.
func commitToReadable(b *testing.B, p programs, s *server, brokers []string, rate int, r *report) {
	const long, each, connections = 5, 10, 4
	rows := rate * long / each * each
	to := newTopic(b, brokers)
	d := s.newDatabase(b, "")
	setup := d.setup(b, p, "", to.yaml(), rowsDeleted)
	setup.init(b)
	run := setup.run(b)
	run.await(connectorRuns, 0)
	read := make(chan map[string]time.Time, 1)
	consumer := to.consumer(b)
	defer consumer.Close()
	go func() { read <- watch(b, consumer, rows) }()
	committed := make([]time.Time, rows)
	began := time.Now()
	d.insertTimed(b, committed, rate, each, connections)
	took := time.Since(began)
	at := <-read
	means := map[string]float64{}
	for _, of := range []string{"read", "step", "call"} {
		name := "connectd_" + of + "_duration_seconds"
		m := setup.metrics(b, name)
		means[of] = 1000 * m[name+`_sum{connector="bench"}`] / m[name+`_count{connector="bench"}`]
	}
	run.stop()
	if len(at) != rows {
		b.Fatalf("%d of %d rows were read", len(at), rows)
	}
	check(b, to, rows)
	to.remove(b)
	d.drop(b)
	waits := make([]time.Duration, rows)
	for n, c := range committed {
		waits[n] = max(at[brokerID(n+1)].Sub(c), 0) // it may be read before the commit's return
	}
	slices.Sort(waits)
	const name = postgresKafka + ", commit → readable at a tenth of that rate, p50"
	r.add(name, "", "ms", atMost(20), milliseconds(waits[rows/2]))
	r.add("  p99", name, "ms", goal{}, milliseconds(waits[rows*99/100]))
	r.add("  of it a read of the outbox, mean", name, "ms", goal{}, means["read"])
	r.add("  of it a step: settle and announce, mean", name, "ms", goal{}, means["step"])
	r.add("  of it a call of the sink, mean", name, "ms", goal{}, means["call"])
	r.add("  rows in", name, "rows/s", goal{}, float64(rows)/took.Seconds())
}

// watch notes when a consumer gets each of so many rows.
func watch(b *testing.B, c *kgo.Client, rows int) map[string]time.Time {
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	at := make(map[string]time.Time, rows)
	for len(at) < rows {
		fetches := c.PollFetches(ctx)
		now := time.Now()
		if err := fetches.Err(); err != nil {
			b.Errorf("%d of %d rows were read: %v", len(at), rows, err)
			return at
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if id := recordID(r); at[id].IsZero() {
				at[id] = now
			}
		})
	}
	return at
}

// insertTimed commits rows from 1 on at a rate, some in each transaction, from several connections, and notes when each
// commit has returned.
func (d *database) insertTimed(b *testing.B, committed []time.Time, rate, each, connections int) {
	insert := insertSomeOf(brokerBytes)
	var next atomic.Int64
	began := time.Now()
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() {
			for {
				last := int(next.Add(int64(each)))
				if last > len(committed) {
					return
				}
				time.Sleep(time.Until(began.Add(time.Duration(last) * time.Second / time.Duration(rate))))
				if _, err := d.db.ExecContext(b.Context(), insert, last-each+1, last); err != nil {
					b.Error(err)
					return
				}
				now := time.Now()
				for n := last - each; n < last; n++ {
					committed[n] = now
				}
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
}
