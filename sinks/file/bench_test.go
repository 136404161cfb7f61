package file

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/connectd/connectd/core"
)

// BenchmarkDeliver writes batches of 500 records of 200 bytes from four callers.
func BenchmarkDeliver(b *testing.B) {
	for _, synced := range []bool{true, false} {
		b.Run(fmt.Sprintf("sync=%v", synced), func(b *testing.B) {
			s := New(slog.New(slog.DiscardHandler), "")
			settings := fmt.Appendf(nil, `{"path":%q,"sync":%v}`, filepath.Join(b.TempDir(), "out"), synced)
			if d, err := s.Configure(b.Context(), settings); err != nil || len(d) > 0 {
				b.Fatal(d, err)
			}
			if err := s.Open(b.Context()); err != nil {
				b.Fatal(err)
			}
			batch := make([]core.Record, 500)
			for i := range batch {
				batch[i] = core.Record{ID: fmt.Sprintf("0198f0c2-5b1e-7000-8000-%012d", i), Key: "order-1", Keyed: true,
					Route: "orders", Type: "Placed", Payload: []byte(`{"text":"` + strings.Repeat("x", 180) + `"}`), Deliveries: 1}
			}
			calls := make(chan struct{})
			var callers sync.WaitGroup
			for range 4 {
				callers.Go(func() {
					for range calls {
						if o, err := s.Deliver(context.Background(), batch); err != nil || o[0].Kind != core.Delivered {
							b.Error(o, err)
						}
					}
				})
			}
			for b.Loop() {
				calls <- struct{}{}
			}
			close(calls)
			callers.Wait()
			b.ReportMetric(float64(b.N*len(batch))/b.Elapsed().Seconds(), "rows/s")
			if err := s.Close(b.Context()); err != nil {
				b.Error(err)
			}
		})
	}
}
