package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	fleetLease = 4 * time.Second
	fleetPoll  = 500 * time.Millisecond // the longest pause between two looks, by default
	fleetParts = 16
	// grain is what a busy machine and the pace of the test's own looks add to a time that is promised.
	grain = 1500 * time.Millisecond
)

// fleetKinds are the servers that a fleet is tested on.
var fleetKinds = []string{"postgres", "mysql"}

// fleet is an outbox table on a server, its receiver, and any number of daemons with one configuration.
type fleet struct {
	t      *testing.T
	server server
	dir    string
	to     *inbox
	slow   atomic.Int64 // how long the receiver takes for a record, once it has it
	env    map[string]string
}

func newFleet(t *testing.T, kind, delivery string) *fleet {
	t.Helper()
	f := &fleet{t: t, server: serverKinds[kind](t), dir: t.TempDir(), to: &inbox{}}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.to.ServeHTTP(w, r)
		select {
		case <-time.After(time.Duration(f.slow.Load())):
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(web.Close)
	write(t, f.dir, "connectd.yaml", fmt.Sprintf(`connectors:
  orders:
    source: {plugin: %s, dsn: "${SHOP_DSN}"}
    sink: {plugin: webhook, url: %q, signing: {secrets: [{value: %q}]}}
    delivery: {lease: %v%s}
`, f.server.plugin, web.URL, serverSecret, fleetLease, delivery))
	f.env = map[string]string{"SHOP_DSN": f.server.dsn}
	f.command("init").want(t, 0)
	return f
}

func (f *fleet) command(args ...string) result { return connectdWith(f.t, f.dir, "", f.env, args...) }

func (f *fleet) start() *daemonProcess {
	f.t.Helper()
	return startDaemon(f.t, f.dir, "SHOP_DSN="+f.server.dsn)
}

// lease is a row of the lease table; valid by the server's clock.
type lease struct {
	owner string
	epoch int64
	valid bool
}

// leases reads the lease table.
func (f *fleet) leases() map[int]lease {
	f.t.Helper()
	now := map[string]string{"postgres": "clock_timestamp()", "mysql": "utc_timestamp(6)"}[f.server.plugin]
	rows, err := f.server.db.QueryContext(f.t.Context(), `SELECT part, coalesce(owner, ''), epoch, lease_until > `+now+` FROM connectd_lease`)
	if err != nil {
		f.t.Fatal(err)
	}
	defer rows.Close()
	all := map[int]lease{}
	for rows.Next() {
		var part int
		var l lease
		if err := rows.Scan(&part, &l.owner, &l.epoch, &l.valid); err != nil {
			f.t.Fatal(err)
		}
		all[part] = l
	}
	if err := rows.Err(); err != nil {
		f.t.Fatal(err)
	}
	return all
}

// number asks the server for one.
func (f *fleet) number(query string, args ...any) (n int) {
	f.t.Helper()
	if err := f.server.db.QueryRowContext(f.t.Context(), query, args...).Scan(&n); err != nil {
		f.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// shares says how many partitions each owner has.
func (f *fleet) shares() map[string]int {
	f.t.Helper()
	shares := map[string]int{}
	for _, l := range f.leases() {
		if l.valid && l.owner != "" {
			shares[l.owner]++
		}
	}
	return shares
}

// evenWithin waits until all partitions are leased by so many workers, none of which has more than its share rounded up.
func (f *fleet) evenWithin(limit time.Duration, workers int, what string) {
	f.t.Helper()
	began := time.Now()
	for {
		shares, total, most := f.shares(), 0, 0
		for _, n := range shares {
			total, most = total+n, max(most, n)
		}
		took := time.Since(began)
		switch {
		case len(shares) == workers && total == fleetParts && most <= (fleetParts+workers-1)/workers:
			f.t.Logf("%s: even after %v: %v", what, took.Round(time.Millisecond), shares)
			if took > limit {
				f.t.Errorf("%s: shared evenly after %v, want it within %v", what, took, limit)
			}
			return
		case took > patience:
			f.t.Fatalf("%s: not shared evenly: %v", what, shares)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// status is the connector in `status --json`.
func (f *fleet) status() connectorStatus {
	f.t.Helper()
	r := f.command("status", "--json")
	var list struct{ Connectors []connectorStatus }
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil || len(list.Connectors) != 1 {
		f.t.Fatalf("%v: %s%s", err, r.stdout, r.stderr)
	}
	return list.Connectors[0]
}

// worker waits until the daemon has a heartbeat in the table, and returns what it says.
func (f *fleet) worker(d *daemonProcess) (w workerStatus) {
	f.t.Helper()
	d.eventually("its heartbeat is in the table", func() (bool, string) {
		s := f.status()
		for _, w = range s.Workers {
			if w.Published.PID == d.cmd.Process.Pid {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", s)
	})
	return w
}

// arrived waits until every committed row has.
func (f *fleet) arrived(committed map[string]bool) {
	f.t.Helper()
	eventually(f.t, "everything arrives", func() (bool, string) {
		n := map[string]bool{}
		for _, g := range f.to.arrived() {
			n[g.id] = true
		}
		return len(n) >= len(committed), fmt.Sprintf("%d of %d", len(n), len(committed))
	})
}

// arriving waits until so many more have arrived.
func (f *fleet) arriving(n int) {
	f.t.Helper()
	want := len(f.to.arrived()) + n
	eventually(f.t, "rows arrive", func() (bool, string) {
		got := len(f.to.arrived())
		return got >= want, fmt.Sprintf("%d of %d", got, want)
	})
}

// stop ends a daemon in good order.
func (f *fleet) stop(d *daemonProcess) {
	f.t.Helper()
	d.url() // one that was started a moment ago does not catch signals yet
	d.signal(syscall.SIGTERM)
	if code := d.wait(); code != 0 {
		f.t.Errorf("exit code %d", code)
	}
}

// onEach runs a test of a fleet on each kind of server.
func onEach(t *testing.T, delivery string, test func(t *testing.T, f *fleet)) {
	for _, kind := range fleetKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, newFleet(t, kind, delivery))
		})
	}
}

// TestAFleetSharesPartitionsEvenly (G5, A22, A23, A25): within two lease times of a join and of a leave, by the lease table;
// and a partition is handed over only when what was in flight is settled: with a slow receiver nothing is sent twice.
func TestAFleetSharesPartitionsEvenly(t *testing.T) {
	onEach(t, ", batch: {max_records: 5}", func(t *testing.T, f *fleet) {
		f.slow.Store(int64(200 * time.Millisecond))
		p := produce(t, f.server)
		var daemons []*daemonProcess
		for n := 1; n <= 3; n++ {
			d := f.start()
			daemons = append(daemons, d)
			f.worker(d)
			f.evenWithin(2*fleetLease, n, fmt.Sprintf("%d joined", n))
			f.arriving(20)
		}
		for n := 2; n >= 1; n-- {
			f.stop(daemons[n])
			f.evenWithin(2*fleetLease, n, fmt.Sprintf("%d are left", n))
			f.arriving(20)
		}
		committed := p.end()
		f.slow.Store(0)
		f.arrived(committed)
		if n := checkArrivals(t, f.to.arrived(), committed); n > 0 {
			t.Errorf("%d rows were sent more than once, and nobody was killed", n)
		}
		f.stop(daemons[0])
	})
}

// TestAFleetTakesOverAfterAKill (A4, A5, A11, A18, A21, A23, A24): no partition of a killed daemon is without an owner for longer
// than a lease and a poll; what was in flight there, and nothing else, is sent again, marked.
func TestAFleetTakesOverAfterAKill(t *testing.T) {
	onEach(t, ", batch: {max_records: 5}", func(t *testing.T, f *fleet) {
		f.slow.Store(int64(100 * time.Millisecond))
		daemons := []*daemonProcess{f.start(), f.start(), f.start()}
		f.evenWithin(patience, 3, "the start")
		p := produce(t, f.server)
		f.arriving(100)
		victim := f.worker(daemons[1])
		daemons[1].signal(syscall.SIGKILL)
		killed := time.Now()
		daemons[1].wait()
		length := map[string]string{"postgres": "cardinality", "mysql": "json_length"}[f.server.plugin]
		inFlight := f.number(fmt.Sprintf(`SELECT coalesce(sum(%s(i.seqs)), 0) FROM connectd_inflight i JOIN connectd_lease l
			ON l.tbl = i.tbl AND l.part = i.part AND l.epoch = i.epoch WHERE l.owner = '%s'`, length, victim.Owner))
		var longest time.Duration
		orphans := map[int]bool{}
		for part, l := range f.leases() {
			orphans[part] = l.owner == victim.Owner
		}
		eventually(t, "all are taken over", func() (bool, string) {
			left := 0
			for part, l := range f.leases() {
				switch {
				case !orphans[part]:
				case l.owner == victim.Owner || !l.valid:
					left++
				default:
					longest = max(longest, time.Since(killed))
					orphans[part] = false
				}
			}
			return left == 0, fmt.Sprint(left, " are not")
		})
		t.Logf("the last partition had an owner %v after the kill; %d rows were in flight", longest.Round(time.Millisecond), inFlight)
		if limit := fleetLease + fleetPoll + grain; longest > limit {
			t.Errorf("a partition had no owner for %v, want %v at most", longest, limit)
		}
		f.arriving(50)
		committed := p.end()
		f.slow.Store(0)
		f.arrived(committed)
		if n := checkArrivals(t, f.to.arrived(), committed); n > inFlight {
			t.Errorf("%d rows were sent more than once, and %d were in flight", n, inFlight)
		}
	})
}

// TestEightDaemonsAtOnceAreNoHerd: when as many start in one moment, the first takes what there is and hands over the
// others' shares; no partition wanders about before it is where it stays.
func TestEightDaemonsAtOnceAreNoHerd(t *testing.T) {
	onEach(t, "", func(t *testing.T, f *fleet) {
		var daemons []*daemonProcess
		for range 8 {
			daemons = append(daemons, f.start())
		}
		for _, d := range daemons {
			d.ready()
		}
		f.evenWithin(patience, 8, "eight at once")
		most, all := int64(0), int64(0)
		for _, l := range f.leases() {
			most, all = max(most, l.epoch), all+l.epoch
		}
		t.Logf("%d acquisitions of %d partitions, %d of one at most", all, fleetParts, most)
		if all > 3*fleetParts {
			t.Errorf("%d acquisitions of %d partitions", all, fleetParts)
		}
		for _, d := range daemons {
			d.signal(syscall.SIGTERM)
		}
		for _, d := range daemons {
			if code := d.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		}
	})
}
