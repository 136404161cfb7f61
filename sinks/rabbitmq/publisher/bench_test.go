package publisher

import (
	"context"
	"fmt"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	benchCalls  = 8   // at a time
	benchSize   = 500 // messages of a call
	benchWindow = 1000
)

// BenchmarkPublish compares the publisher with the client library as it is, with the same messages of 1 KB to the same
// quorum queue. One operation is one message.
//
//	go test -run '^$' -bench Publish -benchtime 50000x ./sinks/rabbitmq/publisher
func BenchmarkPublish(b *testing.B) {
	b.Run("bare library, window 1000", benchmarkBare)
	b.Run("publisher, 5000 keys", func(b *testing.B) { benchmarkPublisher(b, 5000) })
	b.Run("publisher, 100 keys", func(b *testing.B) { benchmarkPublisher(b, 100) })
}

func benchQueue(b *testing.B) string {
	return shared(b).queue(amqp.Table{"x-queue-type": "quorum"})
}

func benchmarkBare(b *testing.B) {
	queue := benchQueue(b)
	ch := shared(b).ch
	must(b, ch.Confirm(false))
	returns := ch.NotifyReturn(make(chan amqp.Return, benchWindow+1))
	body := make([]byte, 1024)
	b.ReportAllocs()
	b.ResetTimer()
	var flight []*amqp.DeferredConfirmation
	for i := range b.N {
		if len(flight) == benchWindow {
			if !flight[0].Wait() || len(returns) > 0 {
				b.Fatal("not confirmed")
			}
			flight = flight[1:]
		}
		confirm, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{
			MessageId: fmt.Sprint(i), DeliveryMode: amqp.Persistent, Headers: amqp.Table{"key": "k"}, Body: body,
		})
		must(b, err)
		flight = append(flight, confirm)
	}
	for _, confirm := range flight {
		confirm.Wait()
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

func benchmarkPublisher(b *testing.B, keys int) {
	queue := benchQueue(b)
	p := opened(b, configFor(b, rabbit(b)))
	body := make([]byte, 1024)
	b.ReportAllocs()
	b.ResetTimer()
	var callers sync.WaitGroup
	batches := make(chan int)
	for caller := range benchCalls {
		callers.Go(func() {
			for n := range batches {
				messages := make([]*Message, n)
				for i := range messages {
					m := to(queue, fmt.Sprint(caller, i%(keys/benchCalls)), fmt.Sprint(i))
					m.Publishing.Headers, m.Publishing.Body = amqp.Table{"key": "k"}, body
					messages[i] = m
				}
				for _, r := range p.Publish(context.Background(), messages) {
					if r.Err != nil {
						b.Error(r.Err)
					}
				}
			}
		})
	}
	for left := b.N; left > 0; left -= benchSize {
		batches <- min(left, benchSize)
	}
	close(batches)
	callers.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}
