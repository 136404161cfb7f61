package producer

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// fake is a cluster in this process.
func fake(t testing.TB, options ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// opened is a producer on these brokers, closed when the test ends.
func opened(t testing.TB, brokers []string, change ...func(*Config)) *Producer {
	t.Helper()
	p := made(t, brokers, change...)
	if err := p.Open(within(t, patience)); err != nil {
		t.Fatal(err)
	}
	return p
}

func made(t testing.TB, brokers []string, change ...func(*Config)) *Producer {
	t.Helper()
	cfg := Config{Brokers: brokers, ClientID: "connectd-test", Acks: AcksAll, Idempotent: true, BackoffMin: 5 * time.Millisecond}
	for _, f := range change {
		f(&cfg)
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// log is what is in a topic, read by another client: by partition, in order.
func log(t testing.TB, brokers []string, topic string) map[int32][]*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ends := endOffsets(ctx, t, brokers, topic)
	from := map[int32]kgo.Offset{}
	left := int64(0)
	for p, end := range ends {
		if end > 0 {
			from[p] = kgo.NewOffset().AtStart()
			left += end
		}
	}
	records := map[int32][]*kgo.Record{}
	if left == 0 {
		return records
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for done := map[int32]bool{}; len(done) < len(from); {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("read topic %s: %v", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			records[r.Partition] = append(records[r.Partition], r)
			if r.Offset+1 >= ends[r.Partition] {
				done[r.Partition] = true
			}
		})
	}
	return records
}

func endOffsets(ctx context.Context, t testing.TB, brokers []string, topic string) map[int32]int64 {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	meta := kmsg.NewPtrMetadataRequest()
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = kmsg.StringPtr(topic)
	meta.Topics = append(meta.Topics, asked)
	about, err := meta.RequestWith(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	list := kmsg.NewPtrListOffsetsRequest()
	list.ReplicaID = -1
	wanted := kmsg.NewListOffsetsRequestTopic()
	wanted.Topic = topic
	for _, p := range about.Topics[0].Partitions {
		one := kmsg.NewListOffsetsRequestTopicPartition()
		one.Partition, one.Timestamp = p.Partition, -1
		wanted.Partitions = append(wanted.Partitions, one)
	}
	list.Topics = append(list.Topics, wanted)
	ends := map[int32]int64{}
	for _, shard := range c.RequestSharded(ctx, list) {
		if shard.Err != nil {
			t.Fatal(shard.Err)
		}
		for _, topic := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range topic.Partitions {
				if p.ErrorCode != 0 {
					t.Fatalf("end of partition %d: code %d", p.Partition, p.ErrorCode)
				}
				ends[p.Partition] = p.Offset
			}
		}
	}
	return ends
}

// written fails the test unless every message was written.
func written(t testing.TB, results []Result) {
	t.Helper()
	for i, r := range results {
		if r.Err != nil {
			t.Fatalf("message %d: %v: %v", i, r.Err.Class, r.Err)
		}
	}
}

func message(topic, key, value string) *Message {
	return &Message{Topic: topic, Key: []byte(key), Partition: ByKey, Value: []byte(value), Time: time.Now()}
}

func numbered(topic string, n int) []*Message {
	messages := make([]*Message, n)
	for i := range messages {
		messages[i] = message(topic, fmt.Sprint("key-", i%17), fmt.Sprint(i))
	}
	return messages
}

// values are the records' values, in order.
func values(records []*kgo.Record) string {
	var all []string
	for _, r := range records {
		all = append(all, string(r.Value))
	}
	return strings.Join(all, " ")
}
