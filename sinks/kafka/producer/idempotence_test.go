package producer

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/connectd/connectd/scripts/services"
)

// What the producer relies on, shown on the broker itself: a batch sent again is known by its numbers, a gap is refused,
// and after the first batch of a higher epoch nothing of a lower one is taken, be it a new batch or an old one again.
func TestBrokerKeepsNumbers(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "numbers"))
	t.Run("fake", func(t *testing.T) { brokerKeepsNumbers(t, c.ListenAddrs(), "numbers") })
	t.Run("real", func(t *testing.T) {
		brokers := services.Kafka(t)
		brokerKeepsNumbers(t, brokers, newTopic(t, brokers, 1))
	})
}

func brokerKeepsNumbers(t *testing.T, brokers []string, topic string) {
	p := opened(t, brokers)
	written(t, p.Produce(within(t, patience), []*Message{message(topic, "k", "first")})) // so that the leader is known
	l := p.topics[topic].lanes[0]
	leader, _, err := l.leader()
	if err != nil {
		t.Fatal(err)
	}
	id, err := p.initProducerID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e := id.epoch
	for _, step := range []struct {
		name     string
		epoch    int16
		sequence int32
		values   []string
		code     kafka.Error
		offset   int64
	}{
		{"the first batch", e, 0, []string{"a", "b"}, 0, 1},
		{"the next", e, 2, []string{"c"}, 0, 3},
		{"the next again", e, 2, []string{"c"}, 0, 3},
		{"a gap", e, 7, []string{"x"}, kafka.OutOfOrderSequenceNumber, -1},
		{"a higher epoch", e + 1, 0, []string{"d"}, 0, 4},
		{"the batch after the last, late", e, 3, []string{"x"}, kafka.InvalidProducerEpoch, -1},
		{"an old batch, late", e, 2, []string{"c"}, kafka.InvalidProducerEpoch, -1},
		{"the higher epoch's next", e + 1, 1, []string{"e"}, 0, 5},
	} {
		a := sendBatch(t, leader, topic, numbering{id: id.id, epoch: step.epoch, sequence: step.sequence}, time.Now(), step.values...)
		if a.err != nil {
			t.Fatal(a.err)
		}
		if a.code != step.code || step.code == 0 && a.offset != step.offset {
			t.Errorf("%s: code %d, offset %d; want %d, %d", step.name, a.code, a.offset, step.code, step.offset)
		}
	}
	var got []string
	for _, r := range log(t, brokers, topic)[0] {
		got = append(got, string(r.Value))
	}
	if want := "first a b c d e"; strings.Join(got, " ") != want {
		t.Errorf("the log is %q, want %q", got, want)
	}
}

// sendBatch sends a batch of messages of that time, under these numbers, to the topic's partition 0.
func sendBatch(t *testing.T, leader *broker, topic string, n numbering, at time.Time, values ...string) answer {
	t.Helper()
	c := &call{}
	var entries []*entry
	for i, v := range values {
		m := message(topic, "k", v)
		m.Time = at
		c.messages = append(c.messages, m)
		entries = append(entries, &entry{call: c, index: i})
	}
	bytes, err := appendBatch(nil, entries, n, 0)
	if err != nil {
		t.Fatal(err)
	}
	a := &attempt{topic: topic, batch: bytes, answer: make(chan answer, 1)}
	leader.produce(a)
	return <-a.answer
}

// A broker that expects other numbers, since it lost a batch, or saw a higher epoch, is given new ones: the messages are
// written once.
func TestNumbersLost(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "numbers"))
	t.Run("fake", func(t *testing.T) { numbersLost(t, c.ListenAddrs(), "numbers") })
	t.Run("real", func(t *testing.T) {
		brokers := services.Kafka(t)
		numbersLost(t, brokers, newTopic(t, brokers, 1))
	})
}

func numbersLost(t *testing.T, brokers []string, topic string) {
	p := opened(t, brokers)
	produce := func(values ...string) {
		t.Helper()
		for _, v := range values {
			written(t, p.Produce(within(t, patience), []*Message{message(topic, "k", v)}))
		}
	}
	produce("0", "1")
	l := p.topics[topic].lanes[0]
	idle := func() {
		t.Helper()
		eventually(t, "the lane is idle", func() bool { return !l.busy() })
	}
	idle()
	first := l.next
	l.next.sequence += 5
	produce("2", "3")
	idle()
	if l.next.id != first.id || l.next.epoch != first.epoch+1 || l.next.sequence != 2 {
		t.Errorf("after a gap: %+v, before it %+v", l.next, first)
	}
	l.next.epoch--
	produce("4", "5")
	idle()
	if l.next.id == first.id || l.next.sequence != 2 {
		t.Errorf("after an epoch that is over: %+v, before it %+v", l.next, first)
	}
	if got := values(log(t, brokers, topic)[0]); got != "0 1 2 3 4 5" {
		t.Errorf("the log is %q", got)
	}
}

// Sequences go from the largest int32 to zero, and epochs end in a new id.
func TestNumbersEnd(t *testing.T) {
	if got := advance(math.MaxInt32-1, 3); got != 1 {
		t.Errorf("the sequence after %d and 3 messages is %d, want 1", math.MaxInt32-1, got)
	}
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "numbers"))
	p := opened(t, c.ListenAddrs())
	written(t, p.Produce(within(t, patience), numbered("numbers", 3)))
	l := p.topics["numbers"].lanes[0]
	id := l.next.id
	l.renumber()
	if l.next != (numbering{id: id, epoch: 1}) {
		t.Errorf("the next epoch begins with %+v", l.next)
	}
	l.next.epoch = math.MaxInt16
	l.renumber()
	written(t, p.Produce(within(t, patience), numbered("numbers", 3)))
	if l.next.id == id || l.next.sequence != 3 {
		t.Errorf("after the last epoch: %+v", l.next)
	}
}

// newTopic is a topic of its own on a real broker, removed with the test.
func newTopic(t testing.TB, brokers []string, partitions int, config ...string) string {
	t.Helper()
	c := &kafka.Client{Addr: kafka.TCP(brokers...), Transport: &kafka.Transport{}}
	t.Cleanup(c.Transport.(*kafka.Transport).CloseIdleConnections)
	name := fmt.Sprintf("producer-%s-%d", strings.NewReplacer("/", "-", " ", "-", "#", "-").Replace(t.Name()), time.Now().UnixNano())
	topic := kafka.TopicConfig{Topic: name, NumPartitions: partitions, ReplicationFactor: 1}
	for i := 0; i < len(config); i += 2 {
		topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: config[i], ConfigValue: config[i+1]})
	}
	r, err := c.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
	if err == nil {
		err = r.Errors[name]
	}
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// deleteRecords deletes what is before an offset of partition 0.
func deleteRecords(t *testing.T, brokers []string, topic string, before int64) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	request := kmsg.NewPtrDeleteRecordsRequest()
	request.TimeoutMillis = 10_000
	wanted := kmsg.NewDeleteRecordsRequestTopic()
	wanted.Topic = topic
	partition := kmsg.NewDeleteRecordsRequestTopicPartition()
	partition.Offset = before
	wanted.Partitions = append(wanted.Partitions, partition)
	request.Topics = append(request.Topics, wanted)
	response, err := request.RequestWith(t.Context(), c)
	if err != nil || response.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("delete records: %v, %+v", err, response)
	}
}
