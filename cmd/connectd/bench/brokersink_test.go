//go:build linux

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/plugins/host"
)

const (
	brokerBytes = 1000
	brokerBatch = 500
	brokerCalls = 8 // at once: the default of delivery.in_flight
	brokerKeys  = 10_000
)

const kafkaBrokers = "CONNECTD_TEST_KAFKA_BROKERS"

// withBroker makes a benchmark of a function that needs a broker, whose address the variable has. Without one the table
// says so.
func (r *report) withBroker(p programs, figures, variable string, f func(*testing.B, programs, string, *report)) func(*testing.B) {
	return func(b *testing.B) {
		address := os.Getenv(variable)
		if address == "" {
			r.notMeasured(figures, variable+" is not set (make bench starts the servers)")
			return
		}
		f(b, p, address, r)
		b.ReportMetric(0, "ns/op")
	}
}

// place is a topic or a queue that was made for one turn.
type place interface {
	// sink is the settings by which the broker's sink writes to it.
	sink() (plugin string, settings map[string]any)
	// bare writes rows with the client library alone, as the sink would write them, for a turn.
	bare(*testing.B, *supply) sent
	// read is what is in it, all of it.
	read(b *testing.B, rows int) tally
	remove(*testing.B)
}

// sent is how many rows a side wrote, and at what cost.
type sent struct {
	rows int
	wall time.Duration
	cpu  time.Duration // of all the side's processes
}

func (s sent) rate() float64 { return float64(s.rows) / s.wall.Seconds() }

// compareSink lets a broker's sink, in its process, and the bare client write in turn, each time to a new place, and reads
// back what they wrote. The first turn of each warms the broker up.
func compareSink(b *testing.B, p programs, r *report, broker string, want goal, fresh func() place) {
	for b.Loop() {
		var sink, bare sent
		for n := range turns + 1 {
			for side := range 2 {
				at := fresh()
				rows := new(supply)
				var did sent
				if bySink := (n+side)%2 == 0; bySink {
					did = sinkProcess(b, p, at, rows)
					sink.count(did, n > 0)
				} else {
					did = at.bare(b, rows)
					bare.count(did, n > 0)
				}
				check(b, at, did.rows)
				at.remove(b)
			}
		}
		r.add(broker+" sink's process / bare client, same rows of 1 KB", "", "", want, sink.rate()/bare.rate())
		r.add("  rate", broker, "rows/s", goal{}, sink.rate())
		r.add("  processor time, host and sink", broker, "µs/row", goal{}, perRow(sink))
		r.add("  the bare client's rate", broker, "rows/s", goal{}, bare.rate())
		r.add("  the bare client's processor time", broker, "µs/row", goal{}, perRow(bare))
	}
}

func (s *sent) count(other sent, counts bool) {
	if counts {
		s.rows, s.wall, s.cpu = s.rows+other.rows, s.wall+other.wall, s.cpu+other.cpu
	}
}

func perRow(s sent) float64 { return s.cpu.Seconds() * 1e6 / float64(s.rows) }

// check reads back what was written, and wants each row once and whole.
func check(b *testing.B, at place, rows int) {
	b.Helper()
	if got, want := at.read(b, rows), tallyOf(rows); got != want {
		b.Fatalf("of %d rows %d are there, with checksum %x instead of %x", want.rows, got.rows, got.sum, want.sum)
	}
}

// sinkProcess writes through the host to the sink in a process of its own.
func sinkProcess(b *testing.B, p programs, at place, rows *supply) sent {
	plugin, settings := at.sink()
	text, err := json.Marshal(settings)
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	sink := host.Start(host.Spec{
		Connector: "bench", Plugin: plugin, Path: p.connectd, Args: []string{"serve-sink", "--dir", dir, plugin},
		Settings: text, RuntimeDir: dir,
	}, slog.New(slog.DiscardHandler))
	defer func() {
		if err := sink.Close(context.Background()); err != nil {
			b.Error(err)
		}
	}()
	if err := sink.Ready(b.Context()); err != nil {
		b.Fatal(err)
	}
	pid := sink.Status().PID
	before := cpuTime(b, pid)
	did := rows.send(b, func(batch []core.Record) error {
		outcomes, err := sink.Deliver(b.Context(), batch)
		if err != nil {
			return err
		}
		if len(outcomes) != len(batch) {
			return fmt.Errorf("%d outcomes for %d records", len(outcomes), len(batch))
		}
		for i := range outcomes {
			if outcomes[i].Kind != core.Delivered {
				return fmt.Errorf("record %d: %v", i, outcomes[i])
			}
		}
		return nil
	})
	did.cpu += cpuTime(b, pid) - before
	return did
}

// supply hands out rows, numbered from 1 on.
type supply struct{ batches atomic.Int64 }

// next is a batch of rows whose keys are one caller's own, at random.
func (s *supply) next(caller, callers int, at time.Time) []core.Record {
	first := int(s.batches.Add(1)-1)*brokerBatch + 1
	batch := make([]core.Record, brokerBatch)
	for i := range batch {
		n := first + i
		key := fmt.Sprintf("customer-%05d", rand.IntN(brokerKeys/callers)*callers+caller)
		batch[i] = core.Record{
			ID: brokerID(n), Key: key, Keyed: true, Route: "orders", Type: "OrderPlaced", Payload: brokerPayload(n),
			CreatedAt: at, Seq: int64(n), Deliveries: 1, Epoch: 1,
		}
	}
	return batch
}

// send hands batches to a function for a turn, several at once. Their making is in the time and the cost of both sides.
func (s *supply) send(b *testing.B, deliver func([]core.Record) error) sent {
	began, before := time.Now(), cpuTime(b, os.Getpid())
	var wg sync.WaitGroup
	for caller := range brokerCalls {
		wg.Go(func() {
			for time.Since(began) < turn {
				if err := deliver(s.next(caller, brokerCalls, began)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	did := sent{s.rows(), time.Since(began), cpuTime(b, os.Getpid()) - before}
	if b.Failed() {
		b.FailNow()
	}
	return did
}

func (s *supply) rows() int { return int(s.batches.Load()) * brokerBatch }

// brokerID and brokerPayload are row n, as the backlogs of the databases have it too.
func brokerID(n int) string { return fmt.Sprintf("0198f0c2-5b1e-7000-8000-%012d", n) }

func brokerPayload(n int) []byte {
	payload := make([]byte, 0, brokerBytes)
	payload = fmt.Appendf(payload, `{"order":%09d,"text":"`, 100_000_000+n)
	for len(payload) < brokerBytes-2 {
		payload = append(payload, "00000000000000000000000000000000"[:min(32, brokerBytes-2-len(payload))]...)
	}
	return append(payload, `"}`...)
}

// tally counts rows and adds up the checksums of their ids and payloads, in whatever order they come.
type tally struct {
	rows int
	sum  uint64
}

var tallySeed = maphash.MakeSeed()

func (t *tally) add(id string, payload []byte) {
	t.rows++
	t.sum += maphash.String(tallySeed, id)*31 ^ maphash.Bytes(tallySeed, payload)
}

// tallyOf is that of the rows from 1 to n.
func tallyOf(n int) (t tally) {
	for i := range n {
		t.add(brokerID(i+1), brokerPayload(i+1))
	}
	return t
}
