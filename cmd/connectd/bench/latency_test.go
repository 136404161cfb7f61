//go:build linux

package bench

import (
	"bufio"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	latencyRate = 100 // rows a second
	latencyRows = 400 // a round
)

// benchmarkLatency commits to a SQLite file.
func benchmarkLatency(b *testing.B, p programs, r *report) {
	s := newSetup(b, p, fileSinkYAML, "")
	s.init(b)
	measureLatency(b, s, newProducer(b, s.database()), func(p50, p99 float64) {
		r.add("commit → delivered, p50", "", "ms", atMost(15), p50)
		r.add("commit → delivered, p99", "", "ms", goal{}, p99)
	})
}

// benchmarkPostgresLatency commits to PostgreSQL, where the relay polls, and where a trigger notifies it.
func benchmarkPostgresLatency(b *testing.B, p programs, s *server, r *report) {
	for _, by := range []struct {
		name, more string
		want       goal
	}{{"polling", "", atMost(15)}, {"NOTIFY", ", notify: trigger", atMost(5)}} {
		// A benchmark of its own, since each has its rounds.
		b.Run(by.name, func(b *testing.B) {
			d := s.newDatabase(b, "")
			setup := d.setup(b, p, by.more, fileSinkYAML, rowsDeleted)
			setup.init(b)
			measureLatency(b, setup, newProducerOn(b, d.db, insertRow), func(p50, p99 float64) {
				r.add("PostgreSQL, commit → delivered by "+by.name+", p50", "", "ms", by.want, p50)
				r.add("  p99", by.name, "ms", goal{}, p99)
			})
			b.ReportMetric(0, "ns/op")
		})
	}
}

// measureLatency commits rows one by one at a steady rate and watches them appear in the file that the file sink writes.
// The pause between two rows is random, so that it does not beat with any of the daemon's own times. It notes the
// milliseconds of each round.
func measureLatency(b *testing.B, s setup, app *producer, note func(p50, p99 float64)) {
	d := s.run(b)
	d.await(connectorRuns, 0)
	app.insert(0)
	until(b, "the first row arrives", time.Millisecond, func() bool { return countLines(b, s.output()) == 1 })
	f := follow(b, s.output())
	n := 0
	for b.Loop() {
		committed := map[string]time.Time{}
		arrived := make(chan map[string]time.Time, 1)
		go func() { arrived <- f.lines(latencyRows) }()
		for next := time.Now(); len(committed) < latencyRows; next = next.Add(pauseBetween()) {
			time.Sleep(time.Until(next))
			n++
			committed[rowID(n)] = app.insert(n)
		}
		var at map[string]time.Time
		select {
		case at = <-arrived:
		case <-time.After(patience):
			b.Fatalf("rows do not arrive:\n%s", d.log())
		}
		waits := make([]time.Duration, 0, len(at))
		for id, c := range committed {
			if at[id].IsZero() {
				b.Fatalf("row %s did not arrive", id)
			}
			waits = append(waits, max(at[id].Sub(c), 0)) // the commit may be seen before it returns
		}
		slices.Sort(waits)
		note(milliseconds(waits[len(waits)/2]), milliseconds(waits[len(waits)*99/100]))
	}
	d.stop()
}

func pauseBetween() time.Duration {
	const mean = time.Second / latencyRate
	return mean/2 + rand.N(mean)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// follower reads a file as it grows.
type follower struct {
	watch *os.File // tells of each change
	r     *bufio.Reader
	rest  string // of a line
}

// follow begins at the file's end.
func follow(b *testing.B, path string) *follower {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		b.Fatal(err)
	}
	f := &follower{watch: os.NewFile(uintptr(fd), "inotify")}
	b.Cleanup(func() { f.watch.Close() })
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_MODIFY); err != nil {
		b.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { file.Close() })
	if _, err := file.Seek(0, 2); err != nil {
		b.Fatal(err)
	}
	f.r = bufio.NewReaderSize(file, 1<<20)
	return f
}

// lines returns when n more rows came, by id. It ends early when the file is closed.
func (f *follower) lines(n int) map[string]time.Time {
	at := map[string]time.Time{}
	event := make([]byte, 4096)
	for len(at) < n {
		if _, err := f.watch.Read(event); err != nil {
			return at
		}
		now := time.Now()
		for {
			part, err := f.r.ReadString('\n')
			f.rest += part
			if err != nil {
				break // for now
			}
			_, id, _ := strings.Cut(f.rest, `{"id":"`)
			id, _, _ = strings.Cut(id, `"`)
			at[id], f.rest = now, ""
		}
	}
	return at
}
