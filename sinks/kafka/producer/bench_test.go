package producer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/connectd/connectd/scripts/services"
)

const (
	benchPartitions = 6
	benchBatch      = 500
	benchCalls      = 8 // at the same time
	benchBytes      = 1 << 10
)

// BenchmarkProduce compares the producer with what it stands on: kafka-go's Client, given the same messages already sorted
// by partition, one request of each partition at a time. Eight calls of 500 messages of 1 KiB run at the same time, as the
// engine makes them.
//
//	go test -run '^$' -bench Produce -benchtime 3s ./sinks/kafka/producer
func BenchmarkProduce(b *testing.B) {
	for _, cluster := range []string{"fake", "real"} {
		b.Run(cluster, func(b *testing.B) {
			var brokers []string
			topic := "bench"
			if cluster == "fake" {
				brokers = fakeProcess(b)
			} else {
				brokers = services.Kafka(b)
				topic = newTopic(b, brokers, benchPartitions, "retention.bytes", "100000000", "segment.bytes", "50000000")
			}
			b.Run("producer", func(b *testing.B) { benchProducer(b, brokers, topic, true) })
			b.Run("producer, not idempotent", func(b *testing.B) { benchProducer(b, brokers, topic, false) })
			b.Run("client", func(b *testing.B) { benchClient(b, brokers, topic) })
		})
	}
}

func benchMessages(topic string) []*Message {
	random := rand.New(rand.NewPCG(1, 2))
	messages := make([]*Message, benchBatch)
	for i := range messages {
		value := make([]byte, benchBytes)
		for j := range value {
			value[j] = "0123456789abcdef"[random.IntN(16)]
		}
		messages[i] = &Message{Topic: topic, Partition: ByKey, Key: fmt.Append(nil, "order-", random.IntN(1000)), Value: value,
			Headers: []Header{{"id", []byte("0b2c")}, {"type", []byte("created")}}, Time: time.Now()}
	}
	return messages
}

func benchProducer(b *testing.B, brokers []string, topic string, idempotent bool) {
	p := opened(b, brokers, func(c *Config) { c.Idempotent = idempotent })
	written(b, p.Produce(b.Context(), benchMessages(topic)))
	calls := make(chan struct{}, benchCalls)
	var wg sync.WaitGroup
	for range benchCalls {
		wg.Go(func() {
			messages := benchMessages(topic)
			for range calls {
				for _, r := range p.Produce(context.Background(), messages) {
					if r.Err != nil {
						b.Error(r.Err)
						return
					}
				}
			}
		})
	}
	benchRun(b, calls, &wg)
}

func benchClient(b *testing.B, brokers []string, topic string) {
	transport := &kafka.Transport{MetadataTopics: []string{topic}}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(brokers...), Transport: transport}
	// Each partition takes a batch of a call at a time.
	var lanes [benchPartitions]sync.Mutex
	calls := make(chan struct{}, benchCalls)
	var wg sync.WaitGroup
	for range benchCalls {
		wg.Go(func() {
			var sorted [benchPartitions][]*Message
			for _, m := range benchMessages(topic) {
				p := partitionOf(m.Key, benchPartitions)
				sorted[p] = append(sorted[p], m)
			}
			for range calls {
				var parts sync.WaitGroup
				for p := range sorted {
					parts.Go(func() {
						lanes[p].Lock()
						defer lanes[p].Unlock()
						if err := clientProduce(client, topic, p, sorted[p]); err != nil {
							b.Error(err)
						}
					})
				}
				parts.Wait()
			}
		})
	}
	benchRun(b, calls, &wg)
}

func clientProduce(c *kafka.Client, topic string, partition int, messages []*Message) error {
	records := make([]kafka.Record, len(messages))
	for i, m := range messages {
		records[i] = kafka.Record{Key: kafka.NewBytes(m.Key), Value: kafka.NewBytes(m.Value), Time: m.Time,
			Headers: []kafka.Header{{Key: "id", Value: m.Headers[0].Value}, {Key: "type", Value: m.Headers[1].Value}}}
	}
	r, err := c.Produce(context.Background(), &kafka.ProduceRequest{
		Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(records...)})
	if err != nil {
		return err
	}
	return r.Error
}

func benchRun(b *testing.B, calls chan<- struct{}, wg *sync.WaitGroup) {
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		calls <- struct{}{}
	}
	close(calls)
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "rows/s")
}

// fakeProcess is a fake cluster in a process of its own, that keeps nothing: the allocations are the client's.
func fakeProcess(b *testing.B) []string {
	b.Helper()
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), program, "-test.run", "^TestFakeProcess$")
	cmd.Env = append(os.Environ(), "FAKE_KAFKA=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	var addrs string
	if _, err := fmt.Fscanln(out, &addrs); err != nil {
		b.Fatal(err)
	}
	return strings.Split(addrs, ",")
}

// TestFakeProcess is the process of fakeProcess, which ends with its standard input.
func TestFakeProcess(t *testing.T) {
	if os.Getenv("FAKE_KAFKA") == "" {
		return
	}
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(benchPartitions, "bench"), kfake.BlackholeProduce())
	fmt.Fprintln(os.Stdout, strings.Join(c.ListenAddrs(), ","))
	os.Stdin.Read(make([]byte, 1))
}
