//go:build linux

package bench

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/plugins/host"
)

const (
	boundaryBatch = 500
	boundaryCalls = 8 // at once: the default of delivery.in_flight
	boundaryTime  = time.Second
)

// benchmarkBoundary delivers batches through the host to the null sink in a process of its own, beside the bytes that a
// bare Unix socket carries to another process.
func benchmarkBoundary(b *testing.B, p programs, r *report) {
	path, err := host.Find(p.plugins, "null")
	if err != nil {
		b.Fatal(err)
	}
	sink := host.Start(host.Spec{Connector: "bench", Plugin: "null", Path: path, Settings: []byte("{}"), RuntimeDir: b.TempDir()},
		slog.New(slog.DiscardHandler))
	defer func() {
		if err := sink.Close(context.Background()); err != nil {
			b.Error(err)
		}
	}()
	if err := sink.Ready(b.Context()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		for _, c := range []struct {
			name    string
			payload int
			want    goal
		}{{"200 B", 200, atLeast(400_000)}, {"1 KB", 1000, atLeast(250_000)}} {
			batch := boundaryRecords(c.payload)
			rows := deliverFor(b, sink, batch) / boundaryTime.Seconds()
			socket := bareSocket(b, p)
			r.add("process boundary", c.name+" payloads", "rows/s", c.want, rows)
			r.add("  its payload bytes / a bare socket's", c.name, "", goal{}, rows*float64(c.payload)/socket)
		}
	}
}

// boundaryRecords is a batch with headers as tracing adds them.
func boundaryRecords(payload int) []core.Record {
	batch := make([]core.Record, boundaryBatch)
	for i := range batch {
		batch[i] = core.Record{
			ID: fmt.Sprintf("0198c9a0-7e1b-7000-8000-%012d", i), Key: fmt.Sprintf("customer-%05d", i), Keyed: true,
			Route: "orders", Type: "OrderPlaced", Payload: bytes.Repeat([]byte{'x'}, payload),
			Headers: []core.Header{
				{Name: "traceparent", Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
				{Name: "content-type", Value: "application/json"}},
			CreatedAt: time.UnixMicro(1764000000000000).UTC(), Seq: int64(i) + 1_000_000, Deliveries: 1, Epoch: 7,
		}
	}
	return batch
}

// deliverFor returns how many rows were confirmed within boundaryTime.
func deliverFor(b *testing.B, sink core.Sink, batch []core.Record) float64 {
	var rows atomic.Int64
	var callers sync.WaitGroup
	end := time.Now().Add(boundaryTime)
	for range boundaryCalls {
		callers.Go(func() {
			for {
				outcomes, err := sink.Deliver(b.Context(), batch)
				if err != nil || len(outcomes) != len(batch) {
					b.Errorf("%d outcomes for %d records, %v", len(outcomes), len(batch), err)
					return
				}
				for i := range outcomes {
					if outcomes[i].Kind != core.Delivered {
						b.Errorf("record %d: %v", i, outcomes[i])
						return
					}
				}
				if time.Now().After(end) {
					return
				}
				rows.Add(int64(len(batch)))
			}
		})
	}
	callers.Wait()
	return float64(rows.Load())
}

// bareSocket returns the bytes per second that a Unix socket carries to a process which only reads them.
func bareSocket(b *testing.B, p programs) float64 {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	near, far := os.NewFile(uintptr(fds[0]), "near"), os.NewFile(uintptr(fds[1]), "far")
	conn, err := net.FileConn(near)
	near.Close()
	if err != nil {
		b.Fatal(err)
	}
	reader := exec.Command(p.discard)
	reader.Stdin = far
	err = reader.Start()
	far.Close()
	if err != nil {
		b.Fatal(err)
	}
	chunk := make([]byte, 128<<10)
	if _, err := conn.Write(make([]byte, 4<<20)); err != nil { // it reads
		b.Fatal(err)
	}
	sent, began := 0, time.Now()
	for time.Since(began) < boundaryTime/4 {
		n, err := conn.Write(chunk)
		if err != nil {
			b.Fatal(err)
		}
		sent += n
	}
	took := time.Since(began)
	conn.Close()
	if err := reader.Wait(); err != nil {
		b.Fatal(err)
	}
	return float64(sent) / took.Seconds()
}
