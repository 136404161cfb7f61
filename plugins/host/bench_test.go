package host

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

// BenchmarkBoundary measures what the process boundary costs: a sink that reads each record and does nothing with it,
// in a process of its own, four calls in flight.
func BenchmarkBoundary(b *testing.B) {
	for _, c := range []struct{ payload, batch int }{{200, 1}, {200, 500}, {1000, 500}, {10_000, 100}, {1 << 20, 4}} {
		b.Run(fmt.Sprintf("%dBx%d", c.payload, c.batch), func(b *testing.B) {
			s, _ := startReady(b, tortureSpec(b, "null"), defaultTiming())
			batch := make([]core.Record, c.batch)
			for i := range batch {
				batch[i] = core.Record{
					ID: fmt.Sprintf("0198c9a0-7e1b-7000-8000-%012d", i), Key: fmt.Sprintf("customer-%05d", i), Keyed: true,
					Route: "orders", Type: "OrderPlaced", Payload: bytes.Repeat([]byte{'x'}, c.payload),
					Headers: []core.Header{
						{Name: "traceparent", Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
						{Name: "content-type", Value: "application/json"}},
					CreatedAt: time.UnixMicro(1764000000000000).UTC(), Seq: int64(i) + 1_000_000, Deliveries: 1, Epoch: 7,
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			begin, cpu := time.Now(), bothCPU(b, s)
			var next atomic.Int64
			var callers sync.WaitGroup
			for range 4 {
				callers.Go(func() {
					for next.Add(1) <= int64(b.N) {
						if _, err := s.Deliver(context.Background(), batch); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			callers.Wait()
			b.ReportMetric(float64(b.N*c.batch)/time.Since(begin).Seconds(), "rows/s")
			b.ReportMetric(float64((bothCPU(b, s)-cpu).Nanoseconds())/1e3/float64(b.N*c.batch), "cpu-us/row")
		})
	}
}

// bothCPU is the processor time of this process and the plugin's: the figure that a busy machine disturbs least.
func bothCPU(b *testing.B, s *Sink) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	ticks, ok := cpuTicks(s.Status().PID)
	if !ok {
		b.Fatal("cannot read the plugin's processor time")
	}
	return time.Duration(u.Utime.Nano()+u.Stime.Nano()) + time.Duration(ticks)*10*time.Millisecond
}
