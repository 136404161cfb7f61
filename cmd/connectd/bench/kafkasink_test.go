//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/connectd/connectd/core"
)

const kafkaPartitions = 6

// benchmarkKafkaSink compares on the brokers of the environment.
func benchmarkKafkaSink(b *testing.B, p programs, brokers string, r *report) {
	compareSink(b, p, r, "Kafka", atLeast(0.7), func() place { return newTopic(b, strings.Split(brokers, ",")) })
}

// benchmarkFakeKafkaSink compares on a fake broker, which costs little itself.
func benchmarkFakeKafkaSink(b *testing.B, p programs, r *report) {
	broker := startChild(b, p.fakeKafka)
	compareSink(b, p, r, "Kafka (kfake)", atLeast(0.5), func() place { return newTopic(b, []string{broker}) })
}

// serveFakeKafka is the process of a fake broker. It prints its address and lives until its stdin ends.
func serveFakeKafka() error {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Println(c.ListenAddrs()[0])
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// topic is one of a Kafka cluster.
type topic struct {
	brokers []string
	name    string
	client  *kafka.Client // makes, asks and removes
}

func newTopic(b *testing.B, brokers []string) *topic {
	b.Helper()
	t := &topic{brokers: brokers, name: fmt.Sprintf("connectd-bench-%x", rand.Uint64())}
	t.client = t.connect(b, &kafka.Transport{MetadataTTL: 100 * time.Millisecond}) // so that it soon sees the topic
	made, err := t.client.CreateTopics(b.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: t.name, NumPartitions: kafkaPartitions, ReplicationFactor: 1,
	}}})
	if err == nil {
		err = made.Errors[t.name]
	}
	if err != nil {
		b.Fatalf("make a topic: %v", err)
	}
	until(b, "the topic has leaders", 10*time.Millisecond, func() bool {
		_, err := t.rows(b)
		return err == nil
	})
	return t
}

// connect makes a client, until the benchmark ends.
func (t *topic) connect(b *testing.B, by *kafka.Transport) *kafka.Client {
	by.MetadataTopics = []string{t.name}
	b.Cleanup(by.CloseIdleConnections)
	return &kafka.Client{Addr: kafka.TCP(t.brokers...), Transport: by}
}

func (t *topic) sink() (string, map[string]any) {
	return "kafka", map[string]any{"brokers": t.brokers, "topic": t.name}
}

// remove deletes the topic. The broker frees the disk somewhat later.
func (t *topic) remove(b *testing.B) {
	answer, err := t.client.DeleteTopics(b.Context(), &kafka.DeleteTopicsRequest{Topics: []string{t.name}})
	if err == nil {
		err = answer.Errors[t.name]
	}
	if err != nil {
		b.Fatalf("delete a topic: %v", err)
	}
	t.client.Transport.(*kafka.Transport).CloseIdleConnections()
}

// bare sorts each batch by partition. Each partition gives the client what waits for it, acks=all, one request at a time.
func (t *topic) bare(b *testing.B, rows *supply) sent {
	client := t.connect(b, new(kafka.Transport))
	partitions := make([]int, kafkaPartitions)
	lanes := make([]*bareLane, kafkaPartitions)
	for i := range partitions {
		partitions[i], lanes[i] = i, &bareLane{client: client, topic: t.name, partition: i}
	}
	hash := kafka.Murmur2Balancer{}
	return rows.send(b, func(batch []core.Record) error {
		var parts [kafkaPartitions][]kafka.Record
		for i := range batch {
			r := &batch[i]
			n := hash.Balance(kafka.Message{Key: []byte(r.Key)}, partitions...)
			parts[n] = append(parts[n], kafkaRecord(r))
		}
		var errs [kafkaPartitions]error
		var all sync.WaitGroup
		for n, part := range parts {
			all.Go(func() { errs[n] = lanes[n].produce(b.Context(), part) })
		}
		all.Wait()
		return errors.Join(errs[:]...)
	})
}

// bareLane is a partition: what comes while a request is on its way goes together in the next one.
type bareLane struct {
	client    *kafka.Client
	topic     string
	partition int

	busy    sync.Mutex // while a request is on its way
	mu      sync.Mutex
	waiting *bareRequest
}

type bareRequest struct {
	records []kafka.Record
	done    bool
	err     error
}

func (l *bareLane) produce(ctx context.Context, records []kafka.Record) error {
	if len(records) == 0 {
		return nil
	}
	const most = 800 // a request's records, so that it stays below what a broker takes by default
	l.mu.Lock()
	mine := l.waiting
	if mine == nil || len(mine.records)+len(records) > most {
		mine = new(bareRequest)
		l.waiting = mine
	}
	mine.records = append(mine.records, records...)
	l.mu.Unlock()
	l.busy.Lock()
	defer l.busy.Unlock()
	if mine.done {
		return mine.err
	}
	l.mu.Lock()
	if l.waiting == mine {
		l.waiting = nil
	}
	l.mu.Unlock()
	mine.done, mine.err = true, l.write(ctx, mine.records)
	return mine.err
}

func (l *bareLane) write(ctx context.Context, records []kafka.Record) error {
	answer, err := l.client.Produce(ctx, &kafka.ProduceRequest{
		Topic: l.topic, Partition: l.partition, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(records...),
	})
	if err != nil {
		return err
	}
	return answer.Error
}

// kafkaRecord is the message that the sink makes of a row.
func kafkaRecord(r *core.Record) kafka.Record {
	return kafka.Record{
		Key: kafka.NewBytes([]byte(r.Key)), Value: kafka.NewBytes(r.Payload), Time: r.CreatedAt,
		Headers: []kafka.Header{
			{Key: idHeader, Value: []byte(r.ID)},
			{Key: "connectd-type", Value: []byte(r.Type)},
			{Key: "connectd-route", Value: []byte(r.Route)},
			{Key: "connectd-delivery", Value: strconv.AppendInt(nil, int64(r.Deliveries), 10)},
			{Key: "connectd-epoch", Value: strconv.AppendInt(nil, r.Epoch, 10)},
			{Key: "connectd-created-at", Value: []byte(r.CreatedAt.UTC().Format("2006-01-02T15:04:05.000000Z07:00"))},
		},
	}
}

const idHeader = "connectd-id"

// rows is how many are in the topic.
func (t *topic) rows(b *testing.B) (n int, err error) {
	ends := make([]kafka.OffsetRequest, kafkaPartitions)
	for i := range ends {
		ends[i] = kafka.LastOffsetOf(i)
	}
	answer, err := t.client.ListOffsets(b.Context(), &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{t.name: ends}})
	if err != nil {
		return 0, err
	}
	if n := len(answer.Topics[t.name]); n != kafkaPartitions {
		return 0, fmt.Errorf("topic %s has %d partitions", t.name, n)
	}
	for _, p := range answer.Topics[t.name] {
		if p.Error != nil {
			return 0, p.Error
		}
		n += int(p.LastOffset)
	}
	return n, nil
}

// read reads the whole topic with another client library than the ones that wrote it.
func (t *topic) read(b *testing.B, rows int) (got tally) {
	there, err := t.rows(b)
	if err != nil {
		b.Fatal(err)
	}
	if there != rows {
		b.Fatalf("%d rows are %d in the topic", rows, there)
	}
	consumer := t.consumer(b)
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(b.Context(), long(rows))
	defer cancel()
	for got.rows < there {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			b.Fatalf("%d of %d rows were read: %v", got.rows, there, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { got.add(recordID(r), r.Value) })
	}
	return got
}

// consumer reads the topic from its beginning.
func (t *topic) consumer(b *testing.B) *kgo.Client {
	c, err := kgo.NewClient(kgo.SeedBrokers(t.brokers...), kgo.ConsumeTopics(t.name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func recordID(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == idHeader {
			return string(h.Value)
		}
	}
	return ""
}
