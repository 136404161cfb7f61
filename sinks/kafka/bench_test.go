package kafka

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/kafka/producer"
)

// ready is a wire on which everything is written at once.
type ready struct{}

func (ready) Produce(_ context.Context, messages []*producer.Message) []producer.Result {
	return make([]producer.Result, len(messages))
}

// BenchmarkCompose is what the sink itself costs for each row of 1 KB, the producer aside.
func BenchmarkCompose(b *testing.B) {
	batch := make([]core.Record, 1000)
	for i := range batch {
		batch[i] = core.Record{
			ID: fmt.Sprintf("command-%08d", i), Key: fmt.Sprintf("order-%d", i%100), Keyed: true, Route: "orders", Type: "OrderPlaced",
			Payload: bytes.Repeat([]byte("x"), 1000), Headers: []core.Header{{Name: "tenant", Value: "acme"}},
			CreatedAt: time.Now(), Deliveries: 1, Epoch: 1,
		}
	}
	for name, others := range map[string]string{
		"fixed": `,"topic":"orders"`, "templates": `,"topic":"orders.{type}","key":"{header:tenant}:{key}"`, "ce_binary": `,"topic":"orders","format":"ce_binary"`,
	} {
		b.Run(name, func(b *testing.B) {
			_, made := parsed(b, settingsWith(others))
			c := &courier{composer: made, judge: judging(true), wire: ready{}}
			b.ReportAllocs()
			rows := 0
			for b.Loop() {
				c.deliver(b.Context(), batch)
				rows += len(batch)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rows), "ns/row")
		})
	}
}
