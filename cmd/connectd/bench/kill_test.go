//go:build linux

package bench

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// noteAnnouncements is a trigger of the benchmark's own: it keeps when each batch was announced, in milliseconds.
const noteAnnouncements = `CREATE TABLE announced (at INTEGER);
	CREATE TRIGGER note_announcement AFTER INSERT ON connectd_inflight BEGIN INSERT INTO announced VALUES (NEW.sent_at); END`

// benchmarkKill kills the plugin of a busy daemon and waits for the first record that the next one gets. Two waits in
// between are backoff, made on purpose and of random length: the host's, before it starts the process again, which it
// logs; and the engine's gate, which may still be closed when the process is open again. The rest is work.
func benchmarkKill(b *testing.B, p programs, r *report) {
	const kills = 3
	for b.Loop() {
		for range kills {
			killOnce(b, p, r)
		}
	}
}

// killOnce is one daemon's and two plugins' life.
func killOnce(b *testing.B, p programs, r *report) {
	s := newSetup(b, p, receiptsYAML, "")
	s.init(b)
	app := newProducer(b, s.database())
	if _, err := app.db.Exec(noteAnnouncements); err != nil {
		b.Fatal(err)
	}
	d := s.run(b)
	d.await(connectorRuns, 0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // rows come all the time
		defer close(stopped)
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Second / latencyRate):
				app.insert(n)
			}
		}
	}()
	until(b, "rows flow", time.Millisecond, func() bool { return len(readReceipts(b, s.receipts())) > 50 })
	pid := d.sinkPID()
	killed := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		b.Fatal(err)
	}
	var opened, again time.Time
	until(b, "a record is delivered again", time.Millisecond, func() bool {
		opened, again = reopened(readReceipts(b, s.receipts()))
		return !again.IsZero()
	})
	close(stop)
	<-stopped
	_, m, _ := d.await(sinkRestarts, 0)
	hostWait, err := time.ParseDuration(m[1])
	if err != nil {
		b.Fatal(err)
	}
	var announced int64
	if err := app.db.QueryRow(`SELECT max(at) FROM announced WHERE at <= ?`, again.UnixMilli()).Scan(&announced); err != nil {
		b.Fatal(err)
	}
	d.stop()
	gateWait := max(time.UnixMilli(announced).Sub(opened), 0)
	r.add("kill -9 of the plugin → redelivery, less backoff", "", "ms", atMost(50), milliseconds(again.Sub(killed)-hostWait-gateWait))
	r.add("  backoff taken: host", "", "ms", goal{}, milliseconds(hostWait))
	r.add("  backoff taken: gate, after the plugin was open", "", "ms", goal{}, milliseconds(gateWait))
}

// receipt is a line that the null sink wrote.
type receipt struct {
	what string // "open" or a record's seq
	at   time.Time
}

func readReceipts(b *testing.B, path string) []receipt {
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		b.Fatal(err)
	}
	var list []receipt
	for line := range strings.Lines(string(text)) {
		what, at, _ := strings.Cut(strings.TrimSpace(line), " ")
		nanos, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			b.Fatalf("receipt %q: %v", line, err)
		}
		list = append(list, receipt{what, time.Unix(0, nanos)})
	}
	return list
}

// reopened returns when the second process was opened and when it got its first record; zero for not yet.
func reopened(list []receipt) (opened, again time.Time) {
	opens := 0
	for _, r := range list {
		switch {
		case r.what == "open":
			opens++
			opened = r.at
		case opens == 2:
			return opened, r.at
		}
	}
	return time.Time{}, time.Time{}
}
