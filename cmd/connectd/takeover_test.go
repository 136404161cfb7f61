package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPausedDaemonChangesNothingWhenItWakes: a second daemon takes over after the lease. What the paused one had in flight
// is sent again with the mark, in order; when it wakes it finds its lease gone, says so, and touches no row:
// https://github.com/riverqueue/river/issues/1302, https://github.com/speakeasy-api/gram/pull/4984
func TestPausedDaemonChangesNothingWhenItWakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	installTorture(t, dir)
	write(t, dir, "connectd.yaml", tortureConfig(", pause: 400ms, path: "+filepath.Join(dir, "out.jsonl"),
		", batch: {max_records: 10}, in_flight: 2"))
	connectd(t, dir, "init").want(t, 0)
	s := openShop(t, dir)
	s.insert(80, 20)
	first := startDaemon(t, dir)
	// Both calls are in the sink now, which takes its time to answer: nothing else is about to be sent.
	first.eventually("two batches are on their way", func() (bool, string) {
		n := len(arrivals(t, dir))
		return n >= 20, fmt.Sprint(n)
	})
	first.signal(syscall.SIGSTOP)
	second := startDaemon(t, dir)
	s.published(80)
	if n := audit(t, dir, 80); n == 0 || n > 20 {
		t.Errorf("%d repeats, want those of the 20 rows in flight that were not settled", n)
	}
	before := s.dump()
	first.signal(syscall.SIGCONT)
	first.eventually("the woken daemon finds its lease gone", func() (bool, string) {
		_, metrics := first.get("/metrics")
		return strings.Contains(metrics, `connectd_leases_lost_total{connector="orders"} 1`), metrics
	})
	if log := first.log.String(); !strings.Contains(log, "lease_not_owned: partition was taken over by another worker") {
		t.Errorf("the log does not say so:\n%s", log)
	}
	first.ready() // it stands by
	if after := s.dump(); after != before {
		t.Errorf("rows changed:\n%s\n%s", before, after)
	}
	s.insert(40, 20)
	s.published(120)
	if n := audit(t, dir, 120); n > 20 {
		t.Errorf("%d repeats", n)
	}
	if _, metrics := second.get("/metrics"); !strings.Contains(metrics, `connectd_leases_taken_over_total{connector="orders"} 1`) {
		t.Error("the metrics do not count the takeover")
	}
	for _, d := range []*daemonProcess{first, second} {
		d.signal(syscall.SIGTERM)
		if code := d.wait(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	audit(t, dir, 120)
}

// dump is everything the relay writes about rows.
func (s *shop) dump() string {
	s.t.Helper()
	var rows, history, inflight string
	err := s.db.QueryRow(`SELECT
		(SELECT group_concat(concat_ws('|', seq, state, attempts, deliveries, crashes, available_at, last_error, published_at), char(10)) FROM outbox),
		(SELECT coalesce(group_concat(concat_ws('|', seq, n, at, code, message, by), char(10)), '') FROM connectd_attempt),
		(SELECT coalesce(group_concat(concat_ws('|', part, epoch, batch, seqs), char(10)), '') FROM connectd_inflight)`).Scan(&rows, &history, &inflight)
	if err != nil {
		s.t.Fatal(err)
	}
	return rows + "\n\n" + history + "\n\n" + inflight
}
