package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// relayed is everything the relay has written about rows, but not who works on what.
func (f *fleet) relayed() string {
	f.t.Helper()
	var all []string
	for _, query := range []string{
		`SELECT concat_ws('|', seq, state, attempts, deliveries, crashes, available_at, last_error, published_at) FROM outbox ORDER BY seq`,
		`SELECT concat_ws('|', seq, n, at, code, message) FROM connectd_attempt ORDER BY seq, n`,
		`SELECT concat_ws('|', part, epoch, batch) FROM connectd_inflight WHERE seqs::text <> '{}' ORDER BY part, epoch, batch`,
	} {
		var lines string
		if err := f.server.db.QueryRowContext(f.t.Context(), `SELECT coalesce(string_agg(line, E'\n'), '') FROM (`+query+`) q (line)`).Scan(&lines); err != nil {
			f.t.Fatalf("%s: %v", query, err)
		}
		all = append(all, lines)
	}
	return strings.Join(all, "\n\n")
}

// TestAPausedMemberOfAFleetChangesNothing (A1, A3, A4, A22, A26): one of three daemons is stopped for longer than its lease in the
// middle of its calls. The others take its partitions. When it wakes nothing changes but the count of leases it lost, which
// the log, the metrics and the status tell; what came twice was in flight and is marked.
func TestAPausedMemberOfAFleetChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "postgres", ", batch: {max_records: 5}")
	f.slow.Store(int64(200 * time.Millisecond))
	daemons := []*daemonProcess{f.start(), f.start(), f.start()}
	f.evenWithin(patience, 3, "the start")
	p := produce(t, f.server)
	f.arriving(100)
	sleeper := f.worker(daemons[0])
	// Stopped between two of its own statements, it has nothing under way in the database but what the server carries on.
	daemons[0].signal(syscall.SIGSTOP)
	held := 0
	for _, l := range f.leases() {
		if l.owner == sleeper.Owner {
			held++
		}
	}
	inFlight := func() int {
		return f.number(`SELECT coalesce(sum(cardinality(i.seqs)), 0) FROM connectd_inflight i JOIN connectd_lease l
			ON l.tbl = i.tbl AND l.part = i.part AND l.epoch = i.epoch WHERE l.owner = $1`, sleeper.Owner)
	}()
	f.evenWithin(2*fleetLease+fleetPoll+grain, 2, "the others took over")
	committed := p.end()
	f.slow.Store(0)
	f.arrived(committed)
	eventually(t, "all are settled", func() (bool, string) {
		n := f.number(`SELECT count(*) FROM outbox WHERE state = 'pending'`)
		return n == 0, fmt.Sprint(n)
	})
	before := f.relayed()
	daemons[0].signal(syscall.SIGCONT)
	daemons[0].eventually("it finds its leases gone", func() (bool, string) {
		_, metrics := daemons[0].get("/metrics")
		return strings.Contains(metrics, fmt.Sprintf(`connectd_leases_lost_total{connector="orders"} %d`, held)), metrics
	})
	if log := daemons[0].log.String(); !strings.Contains(log, "lease_not_owned") {
		t.Error("the log does not say lease_not_owned")
	}
	eventually(t, "the status tells it", func() (bool, string) {
		w := f.worker(daemons[0])
		return w.Published.Lost == int64(held), fmt.Sprintf("%+v", w)
	})
	f.evenWithin(2*fleetLease, 3, "it has a share again")
	if after := f.relayed(); after != before {
		t.Errorf("rows changed when it woke:\n%s\n%s", before, after)
	}
	if n := checkArrivals(t, f.to.arrived(), committed); n > inFlight {
		t.Errorf("%d rows came more than once, and %d were in flight", n, inFlight)
	}
	for _, d := range daemons {
		f.stop(d)
	}
}

// TestADaemonStartedAgainIsAnotherOwner (A7): on the same host, in the same directory, right after it was killed. It does not
// take its predecessor's leases for its own, which would leave the rows in flight to nobody, but takes them over.
func TestADaemonStartedAgainIsAnotherOwner(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "postgres", ", batch: {max_records: 5}, in_flight: 4")
	f.slow.Store(int64(time.Hour)) // of the rows nothing is heard
	first := f.start()
	before := f.worker(first)
	for n := range 20 {
		if _, err := f.server.db.ExecContext(t.Context(), f.server.insert, fmt.Sprintf("row-%d", n), fmt.Sprintf("key-%d", n), "{}"); err != nil {
			t.Fatal(err)
		}
	}
	first.eventually("four batches are on their way", func() (bool, string) {
		n := f.number(`SELECT count(*) FROM connectd_inflight`)
		return n == 4, fmt.Sprint(n)
	})
	first.signal(syscall.SIGKILL)
	first.wait()
	inFlight := f.number(`SELECT coalesce(sum(cardinality(seqs)), 0) FROM connectd_inflight`)
	f.slow.Store(0)
	second := f.start()
	after := f.worker(second)
	if after.Owner == before.Owner {
		t.Fatalf("both are %s", after.Owner)
	}
	eventually(t, "all are published", func() (bool, string) {
		n := f.number(`SELECT count(*) FROM outbox WHERE state = 'published'`)
		return n == 20, fmt.Sprint(n)
	})
	if n := f.number(`SELECT count(*) FROM outbox WHERE crashes = 1 AND deliveries = 2`); n != inFlight || n == 0 {
		t.Errorf("%d rows are counted as in flight at the kill, and %d were", n, inFlight)
	}
	eventually(t, "the status tells the takeover", func() (bool, string) {
		w := f.worker(second)
		return w.Published.TakenOver == fleetParts, fmt.Sprintf("%+v", w)
	})
}

// TestAKilledDaemonsStatementsEnd: a step that waits for a lock on the outbox table has locked its lease, and a dead daemon's
// would keep it from everybody until statement_timeout. The server looks whether the client is there, and ends it.
func TestAKilledDaemonsStatementsEnd(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "postgres", "")
	d := f.start()
	d.ready()
	f.slow.Store(int64(time.Second))
	if _, err := f.server.db.ExecContext(t.Context(), f.server.insert, "row-1", "key-1", "{}"); err != nil {
		t.Fatal(err)
	}
	f.arriving(1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tx, err := f.server.db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, `LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	const steps = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'connectd'
		AND wait_event_type = 'Lock' AND query LIKE '%connectd_inflight%' AND query LIKE '%connectd_lease%'`
	d.eventually("the step waits for the table", func() (bool, string) { return f.number(steps) > 0, "" })
	d.signal(syscall.SIGKILL)
	killed := time.Now()
	d.wait()
	eventually(t, "it has ended", func() (bool, string) { return f.number(steps) == 0, "" })
	if took := time.Since(killed); took > 2*time.Second+grain {
		t.Errorf("the step of the killed daemon waited for %v more", took)
	}
}
