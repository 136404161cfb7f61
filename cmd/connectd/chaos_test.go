package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// chaosTime is how long TestChaos breaks things; chaosSeed repeats a run's order of accidents.
var (
	chaosTime = flag.Duration("chaos", 8*time.Second, "how long TestChaos breaks things")
	chaosSeed = flag.Uint64("chaos.seed", 0, "seed of TestChaos; 0: a new one")
)

// TestChaos: two daemons share a table whose application keeps writing, and daemons and sinks are killed and stopped at
// random. At the end everything has arrived, in order, with its marks.
func TestChaos(t *testing.T) {
	t.Parallel()
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d: repeat the order of accidents with -chaos.seed", seed)
	dice := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	installTorture(t, dir)
	write(t, dir, "connectd.yaml", tortureConfig(", pause: 2ms, path: "+filepath.Join(dir, "out.jsonl"),
		", batch: {max_records: 10}, in_flight: 3"))
	connectd(t, dir, "init").want(t, 0)
	s := openShop(t, dir)
	daemons := []*daemonProcess{startDaemon(t, dir), startDaemon(t, dir)}
	accidents := map[string]int{}
	for end := time.Now().Add(*chaosTime); time.Now().Before(end); {
		s.insert(1+dice.IntN(30), 7)
		time.Sleep(time.Duration(dice.IntN(40)) * time.Millisecond)
		n := dice.IntN(len(daemons))
		switch d := daemons[n]; dice.IntN(30) {
		case 0:
			accidents["daemon killed"]++
			d.signal(syscall.SIGKILL)
			d.wait()
			daemons[n] = startDaemon(t, dir)
		case 1:
			accidents["daemon stopped"]++
			d.ready()
			d.signal(syscall.SIGTERM)
			if code := d.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			daemons[n] = startDaemon(t, dir)
		case 2, 3:
			// A sink that dies five times without having delivered anything is left alone for minutes; that is
			// another test's subject, and a daemon that stands by has nothing to deliver.
			if started := sinkStarted.FindAllString(d.log.String(), -1); len(started) > 0 && len(started) < 5 && running(d.sinkPID()) {
				accidents["sink killed"]++
				_ = syscall.Kill(d.sinkPID(), syscall.SIGKILL)
			}
		}
	}
	eventually(t, "everything is settled", func() (bool, string) {
		n := s.count("pending")
		return n == 0, fmt.Sprint(n, " rows are pending")
	})
	if dead := s.count("dead"); dead > 0 {
		t.Errorf("%d rows are dead, and none of them did any harm", dead)
	}
	duplicates := audit(t, dir, s.n)
	t.Logf("%d rows, %d repeats, %v", s.n, duplicates, accidents)
	for _, d := range daemons {
		d.url() // one that was started a moment ago does not catch signals yet
		d.signal(syscall.SIGTERM)
		if code := d.wait(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}
