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

// benchmarkLatency commits rows one by one at a steady rate and watches them appear in the file that the file sink
// writes. The pause between two rows is random, so that it does not beat with any of the daemon's own times.
func benchmarkLatency(b *testing.B, p programs, r *report) {
	s := newSetup(b, p, fileSinkYAML, "")
	s.init(b)
	d := s.run(b)
	d.await(connectorRuns, 0)
	app := newProducer(b, s.database())
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
		r.add("commit → delivered, p50", "", "ms", atMost(15), milliseconds(waits[len(waits)/2]))
		r.add("commit → delivered, p99", "", "ms", goal{}, milliseconds(waits[len(waits)*99/100]))
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
