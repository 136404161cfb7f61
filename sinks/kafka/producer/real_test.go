package producer

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/connectd/connectd/scripts/services"
)

func TestReal(t *testing.T) {
	brokers := services.Kafka(t)
	for _, compression := range []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
		t.Run(compression.String(), func(t *testing.T) { readBack(t, brokers, newTopic(t, brokers, 5), compression) })
	}
	t.Run("too large", func(t *testing.T) { realTooLarge(t, brokers) })
	t.Run("records refused", func(t *testing.T) { realRecordErrors(t, brokers) })
	t.Run("timestamps refused", func(t *testing.T) { realTimestamps(t, brokers) })
	t.Run("quota", func(t *testing.T) { realQuota(t, brokers) })
	t.Run("partitions grow", func(t *testing.T) { realPartitionsGrow(t, brokers) })
	t.Run("topic deleted", func(t *testing.T) { realTopicDeleted(t, brokers) })
	t.Run("topic created", func(t *testing.T) { realTopicCreated(t, brokers) })
	t.Run("records deleted", func(t *testing.T) { realRecordsDeleted(t, brokers) })
}

func realTooLarge(t *testing.T, brokers []string) {
	topic := newTopic(t, brokers, 1, "max.message.bytes", "20000")
	p := opened(t, brokers)
	messages := numbered(topic, 200)
	for i := range messages {
		messages[i].Value = []byte(strings.Repeat("x", 1000))
		messages[i].Key = fmt.Append(nil, i)
	}
	messages[77].Value = []byte(strings.Repeat("y", 30_000))
	for i, r := range p.Produce(within(t, patience), messages) {
		if i == 77 && (r.Err == nil || r.Err.Class != Permanent || r.Err.Code != kafka.MessageSizeTooLarge || !strings.Contains(r.Err.Text, "max.message.bytes")) || i != 77 && r.Err != nil {
			t.Errorf("message %d: %v", i, r.Err)
		}
	}
	if n := len(log(t, brokers, topic)[0]); n != 199 {
		t.Errorf("%d records in the log, want 199", n)
	}
}

// A compacted topic refuses a record without a key, and says which.
func realRecordErrors(t *testing.T, brokers []string) {
	topic := newTopic(t, brokers, 1, "cleanup.policy", "compact")
	p := opened(t, brokers)
	messages := numbered(topic, 10)
	messages[3].Key, messages[8].Key = nil, nil
	for i, r := range p.Produce(within(t, patience), messages) {
		bad := i == 3 || i == 8
		if bad && (r.Err == nil || r.Err.Class != Permanent || r.Err.Code != invalidRecord || !strings.Contains(r.Err.Text, "key")) || !bad && r.Err != nil {
			t.Errorf("message %d: %v", i, r.Err)
		}
	}
	if got := values(log(t, brokers, topic)[0]); got != "0 1 2 4 5 6 7 9" {
		t.Errorf("the log is %q", got)
	}
}

func realTimestamps(t *testing.T, brokers []string) {
	topic := newTopic(t, brokers, 1, "message.timestamp.before.max.ms", "60000")
	p := opened(t, brokers)
	messages := numbered(topic, 4)
	for _, m := range messages {
		m.Time = time.Now()
	}
	messages[1].Time = time.Now().Add(-time.Hour)
	for i, r := range p.Produce(within(t, patience), messages) {
		if i == 1 && (r.Err == nil || r.Err.Class != Permanent || r.Err.Code != kafka.InvalidTimestamp || !strings.Contains(r.Err.Text, "message.timestamp.before.max.ms")) || i != 1 && r.Err != nil {
			t.Errorf("message %d: %v", i, r.Err)
		}
	}
}

// A broker whose quota is used up is left alone for as long as it says, and the caller is told.
func realQuota(t *testing.T, brokers []string) {
	topic := newTopic(t, brokers, 1)
	id := fmt.Sprint("quota-", time.Now().UnixNano())
	client := &kafka.Client{Addr: kafka.TCP(brokers...), Transport: &kafka.Transport{}}
	defer client.Transport.(*kafka.Transport).CloseIdleConnections()
	quota := func(remove bool) {
		t.Helper()
		r, err := client.AlterClientQuotas(context.Background(), &kafka.AlterClientQuotasRequest{Entries: []kafka.AlterClientQuotaEntry{{
			Entities: []kafka.AlterClientQuotaEntity{{EntityType: "client-id", EntityName: id}},
			Ops:      []kafka.AlterClientQuotaOps{{Key: "producer_byte_rate", Value: 10_000, Remove: remove}},
		}}})
		if err == nil {
			err = r.Entries[0].Error
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	quota(false)
	defer quota(true)
	p := opened(t, brokers, func(c *Config) { c.ClientID = id })
	messages := numbered(topic, 50)
	for i := range messages {
		messages[i].Value = []byte(strings.Repeat("x", 2000))
	}
	delivered, throttled := 0, 0
	for deadline := time.Now().Add(patience); throttled == 0 && time.Now().Before(deadline); {
		results := p.Produce(within(t, patience), messages)
		for _, r := range results {
			switch {
			case r.Err == nil:
				delivered++
			case r.Err.Class == Throttled && r.Err.RetryAfter > 0 && !r.Err.Unknown:
				throttled++
			default:
				t.Fatalf("%+v", r.Err)
			}
		}
	}
	if delivered == 0 || throttled == 0 {
		t.Errorf("%d delivered, %d throttled", delivered, throttled)
	}
	if n := len(log(t, brokers, topic)[0]); n != delivered {
		t.Errorf("%d records in the log, %d delivered", n, delivered)
	}
}

func realPartitionsGrow(t *testing.T, brokers []string) {
	topic := newTopic(t, brokers, 1)
	p := opened(t, brokers, func(c *Config) { c.MetadataTTL = 50 * time.Millisecond })
	written(t, p.Produce(within(t, patience), numbered(topic, 20)))
	addPartitions(t, brokers, topic, 3)
	eventually(t, "the new partitions are used", func() bool {
		results := p.Produce(within(t, patience), numbered(topic, 20))
		written(t, results)
		return results[0].Partition == partitionOf([]byte("key-0"), 3) && results[0].Partition != 0 ||
			results[1].Partition == partitionOf([]byte("key-1"), 3) && results[1].Partition != 0
	})
}

// A topic that is deleted is unknown, and goes on when it is there again.
func realTopicDeleted(t *testing.T, brokers []string) {
	topic := newTopic(t, brokers, 2)
	p := opened(t, brokers)
	written(t, p.Produce(within(t, patience), numbered(topic, 20)))
	client := &kafka.Client{Addr: kafka.TCP(brokers...), Transport: &kafka.Transport{}}
	defer client.Transport.(*kafka.Transport).CloseIdleConnections()
	if _, err := client.DeleteTopics(t.Context(), &kafka.DeleteTopicsRequest{Topics: []string{topic}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the topic is unknown", func() bool {
		r := p.Produce(within(t, patience), numbered(topic, 2))[0]
		return r.Err != nil && r.Err.Class == UnknownTopic
	})
	if _, err := client.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 2, ReplicationFactor: 1}}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the topic is there again", func() bool {
		return p.Produce(within(t, patience), numbered(topic, 1))[0].Err == nil
	})
}

func realTopicCreated(t *testing.T, brokers []string) {
	topic := fmt.Sprint("created-", time.Now().UnixNano())
	p := opened(t, brokers, func(c *Config) { c.CreateTopics = &CreateTopics{Partitions: 3, Replication: 1} })
	written(t, p.Produce(within(t, patience), numbered(topic, 30)))
	if n := len(log(t, brokers, topic)); n != 3 {
		t.Errorf("records in %d partitions", n)
	}
	tooMany := opened(t, brokers, func(c *Config) { c.CreateTopics = &CreateTopics{Partitions: 1, Replication: 3} })
	if r := tooMany.Produce(within(t, patience), numbered(topic+"-3", 1))[0]; r.Err == nil || r.Err.Class != Sink || !strings.Contains(r.Err.Text, "eplication") {
		t.Errorf("three replicas on one broker: %v", r.Err)
	}
}

// A broker that has deleted all that it had of a producer takes its next batch.
func realRecordsDeleted(t *testing.T, brokers []string) {
	topic := newTopic(t, brokers, 1)
	p := opened(t, brokers)
	written(t, p.Produce(within(t, patience), numbered(topic, 20)))
	deleteRecords(t, brokers, topic, 20)
	written(t, p.Produce(within(t, patience), numbered(topic, 20)))
}
