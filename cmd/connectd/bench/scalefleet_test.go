//go:build linux

package bench

import (
	"testing"
	"time"
)

// usualPartitions are what init makes unless it is told otherwise.
const usualPartitions = 16

// bursts are how often a burst is measured.
const bursts = 3

// scaleDaemons lets daemons share one table, and kills one of them at the end. The lease is short, since a fleet takes up
// to two lease times to share the work.
func scaleDaemons(b *testing.B, p programs, s *server, r *report) {
	const sections = "delivery: {lease: 5s}\n    " + rowsDeleted
	for _, n := range sizes(1, 2, 4, 8) {
		f := s.newDatabase(b, "").newFleet(b, p, n, usualPartitions, sections)
		of := count(n)
		f.idle(b, r, of)
		f.trickle(b, r, of)
		for range bursts {
			f.burst(b, r, of, usual())
		}
		f.check(b)
		if n > 1 {
			r.add("kill -9 of one → all its partitions taken over", of, "s", goal{}, f.kill(b).Seconds())
		}
		f.stop(b)
	}
}

// kill kills the first daemon, and returns how long it takes the others to have all partitions.
func (f *fleet) kill(b *testing.B) time.Duration {
	all := total(f.held(b))
	if err := f.daemons[0].cmd.Process.Kill(); err != nil {
		b.Fatal(err)
	}
	killed := time.Now()
	<-f.daemons[0].ended
	f.daemons, f.setups = f.daemons[1:], f.setups[1:]
	until(b, "the others have all partitions", 20*time.Millisecond, func() bool { return total(f.held(b)) == all })
	return time.Since(killed)
}

// check makes sure that every row was published, once for all bursts.
func (f *fleet) check(b *testing.B) { f.d.check(b, f.rows, 0, f.deletes) }

func scalePartitions(b *testing.B, p programs, s *server, r *report) {
	for _, n := range sizes(16, 64, 256, 1024) {
		f := s.newDatabase(b, "").newFleet(b, p, 1, n, rowsDeleted)
		f.idle(b, r, count(n))
		f.trickle(b, r, count(n))
		for range bursts {
			f.burst(b, r, count(n), usual())
		}
		f.check(b)
		f.stop(b)
	}
}

// scaleKeys drains rows of one key, of some, and of a key each. They are fewer where keys are few, which takes longer.
func scaleKeys(b *testing.B, p programs, s *server, r *report) {
	f := s.newDatabase(b, "").newFleet(b, p, 1, usualPartitions, rowsDeleted)
	f.burst(b, &report{}, "", usual()) // the first one, which warms up, does not count
	for _, each := range []struct {
		of         string
		keys, rows int
	}{{"1", 1, 10_000}, {"16", 16, 50_000}, {"10,000", 10_000, 100_000}, {"all different", 100_000, 100_000}} {
		for range bursts {
			f.burst(b, r, each.of, rowsOf{few(each.rows), each.keys, payloadBytes})
		}
	}
	f.check(b)
	f.stop(b)
}

// scalePayload drains rows of several sizes. The server keeps them as they are: the bytes of these compress to nothing,
// as those of real payloads may not.
func scalePayload(b *testing.B, p programs, s *server, r *report) {
	for _, each := range []struct {
		name        string
		bytes, rows int
	}{{"100 B", 100, 100_000}, {"10 KiB", 10 << 10, 10_000}, {"1 MiB", 1 << 20, 200}} {
		f := s.newDatabase(b, "").newFleet(b, p, 1, usualPartitions, rowsDeleted)
		f.d.run(b, `ALTER TABLE outbox ALTER payload SET STORAGE EXTERNAL`)
		for range bursts {
			f.burst(b, r, each.name, rowsOf{few(each.rows), 10_000, each.bytes})
		}
		r.add("daemon, most memory", each.name, "MB", goal{}, status(b, f.daemons[0].cmd.Process.Pid, "VmHWM")*1024/1e6)
		f.check(b)
		f.stop(b)
	}
}
