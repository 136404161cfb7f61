//go:build linux

package bench

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// idleTime is how long a fleet with nothing to do is looked at.
const idleTime = 10 * time.Second

// fleet is some daemons that share the outbox tables of a database on PostgreSQL.
type fleet struct {
	d       *database
	tables  []string
	deletes bool
	setups  []setup
	daemons []*daemon
	rows    int // published by it
}

// newFleet starts daemons on one table with the null sink, and waits until each has its share of the partitions.
func (d *database) newFleet(b *testing.B, p programs, daemons, partitions int, sections string) *fleet {
	f := &fleet{d: d, tables: []string{"outbox"}, deletes: strings.Contains(sections, rowsDeleted)}
	for n := range daemons {
		s := d.setup(b, p, "", receiptsYAML, sections)
		if n == 0 {
			s.init(b, "--partitions", fmt.Sprint(partitions))
		}
		f.setups, f.daemons = append(f.setups, s), append(f.daemons, s.run(b))
	}
	for _, each := range f.daemons {
		each.await(connectorRuns, 0)
	}
	share := (partitions + daemons - 1) / daemons
	until(b, "the partitions are shared", 50*time.Millisecond, func() bool {
		held := f.held(b)
		return total(held) == partitions && slices.Max(held) <= share
	})
	return f
}

// held is how many partitions each daemon holds.
func (f *fleet) held(b *testing.B) []int {
	var held []int
	for _, s := range f.setups {
		held = append(held, int(s.metric(b, `connectd_leases_held{connector="bench"}`)))
	}
	return held
}

func total(list []int) (sum int) {
	for _, n := range list {
		sum += n
	}
	return sum
}

// stop ends the daemons and removes the database.
func (f *fleet) stop(b *testing.B) {
	for _, each := range f.daemons {
		each.stop()
	}
	f.d.drop(b)
}

// usage is what was used so far.
type usage struct {
	at              time.Time
	daemons, server time.Duration // processor time
	transactions    float64       // of the database
}

func (f *fleet) usage(b *testing.B) usage {
	u := usage{at: time.Now(), server: f.d.serverTime(b)}
	for _, each := range f.daemons {
		u.daemons += cpuTime(b, each.cmd.Process.Pid)
	}
	f.d.query(b, fmt.Sprintf(`SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '%s'`, f.d.name), &u.transactions)
	return u
}

// since is what was used since then, in a second of time.
func (f *fleet) since(b *testing.B, then usage) (transactions, daemons, server float64) {
	now := f.usage(b)
	took := now.at.Sub(then.at).Seconds()
	return (now.transactions - then.transactions) / took, (now.daemons - then.daemons).Seconds() / took, (now.server - then.server).Seconds() / took
}

// idle notes what a fleet with nothing to do costs.
func (f *fleet) idle(b *testing.B, r *report, of string) {
	time.Sleep(settleTime) // pauses grow, and what the start left is collected
	then := f.usage(b)
	time.Sleep(idleTime)
	transactions, daemons, server := f.since(b, then)
	r.add(idleTransactions, of, "/s", goal{}, transactions)
	r.add(idleDaemon, of, "% of a core", goal{}, 100*daemons)
	r.addServer(f.d, idleServer, of, "% of a core", 100*server)
}

// addServer notes what a server used, where its processes can be seen.
func (r *report) addServer(d *database, name, of, unit string, value float64) {
	if d.parent != 0 {
		r.add(name, of, unit, goal{}, value)
	}
}

// trickle commits single rows at a steady rate and notes how long they take to the sink, and what that costs.
func (f *fleet) trickle(b *testing.B, r *report, of string) {
	app := newProducerOn(b, f.d.open(b, f.d.dsn), insertRow)
	defer app.db.Close()
	committed := map[string]time.Time{}
	then := f.usage(b)
	for next := time.Now(); len(committed) < latencyRows; next = next.Add(pauseBetween()) {
		time.Sleep(time.Until(next))
		id := len(committed) + 1
		committed[rowID(id)] = app.insert(id)
	}
	_, daemons, server := f.since(b, then)
	var first int64
	f.d.query(b, `SELECT last_value FROM outbox_seq_seq`, &first)
	first -= latencyRows - 1
	arrived := map[string]time.Time{}
	until(b, "the rows arrive", 50*time.Millisecond, func() bool {
		for _, s := range f.setups {
			for _, one := range readReceipts(b, s.receipts()) {
				arrived[one.what] = one.at
			}
		}
		for n := range int64(latencyRows) {
			if arrived[fmt.Sprint(first+n)].IsZero() {
				return false
			}
		}
		return true
	})
	waits := make([]time.Duration, 0, latencyRows)
	for n := range latencyRows {
		waits = append(waits, max(arrived[fmt.Sprint(first+int64(n))].Sub(committed[rowID(n+1)]), 0))
	}
	slices.Sort(waits)
	f.rows += latencyRows
	r.add(trickleP50, of, "ms", goal{}, milliseconds(waits[len(waits)/2]))
	r.add(trickleP99, of, "ms", goal{}, milliseconds(waits[len(waits)*99/100]))
	r.add(trickleDaemon, of, "% of a core", goal{}, 100*daemons)
	r.addServer(f.d, trickleServer, of, "% of a core", 100*server)
}

// rowsOf is the burst's rows: how many, of how many keys, with payloads of how many bytes.
type rowsOf struct{ rows, keys, bytes int }

// usual are a burst's rows where they are not what is measured.
func usual() rowsOf { return rowsOf{few(100_000), 10_000, payloadBytes} }

// insert is the statement that inserts the rows, which is one transaction.
func (k rowsOf) insert(table string) string {
	return fmt.Sprintf(`INSERT INTO %s (id, aggregateid, aggregatetype, type, payload)
		SELECT gen_random_uuid(), 'customer-' || lpad((i %% %d)::text, 9, '0'), 'orders', 'OrderPlaced',
			convert_to('{"order":' || 100000000 + i || ',"text":"' || repeat('0', %d) || '"}', 'UTF8') FROM generate_series(1, %d) i`,
		table, k.keys, k.bytes-29, k.rows)
}

// burst commits rows in one transaction, as many for each table, and notes how they are drained from then on.
func (f *fleet) burst(b *testing.B, r *report, of string, k rowsOf) {
	each := k
	each.rows /= len(f.tables)
	k.rows = each.rows * len(f.tables)
	var inserts []string
	for _, table := range f.tables {
		inserts = append(inserts, each.insert(table))
	}
	f.d.run(b, strings.Join(inserts, ";"))
	then := f.usage(b)
	f.rows += k.rows
	untilWithin(b, long(k.rows), "the rows are published", 20*time.Millisecond, func() bool { return f.published(b) >= f.rows })
	took := time.Since(then.at).Seconds()
	_, daemons, server := f.since(b, then)
	r.add(drainRate, of, "rows/s", goal{}, float64(k.rows)/took)
	r.add("drained", of, "MB/s", goal{}, float64(k.rows*k.bytes)/1e6/took)
	r.add(daemonPerRow, of, "µs/row", goal{}, daemons*took*1e6/float64(k.rows))
	r.addServer(f.d, serverPerRow, of, "µs/row", server*took*1e6/float64(k.rows))
}

// published is how many rows the fleet has published. Where they are deleted the ledger knows, for one small query.
func (f *fleet) published(b *testing.B) (rows int) {
	if f.deletes {
		f.d.query(b, `SELECT coalesce(sum(count), 0) FROM connectd_ledger WHERE state = 'published'`, &rows)
		return rows
	}
	for _, s := range f.setups {
		rows += int(s.metric(b, publishedMetric))
	}
	return rows
}

// read notes the mean of the daemons' reads since they started.
func (f *fleet) read(b *testing.B, r *report, of string) {
	var seconds, n float64
	for _, s := range f.setups {
		seconds += s.metric(b, `connectd_read_duration_seconds_sum{connector="bench"}`)
		n += s.metric(b, `connectd_read_duration_seconds_count{connector="bench"}`)
	}
	r.add(readMean, of, "ms", goal{}, 1000*seconds/n)
}
