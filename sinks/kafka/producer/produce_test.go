package producer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Every byte of every kind of message comes back, from each compression, where the results say.
func TestReadBack(t *testing.T) {
	c := fake(t, kfake.NumBrokers(2), kfake.SeedTopics(5, "orders"))
	for _, compression := range []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
		t.Run(compression.String(), func(t *testing.T) { readBack(t, c.ListenAddrs(), "orders", compression) })
	}
}

func readBack(t *testing.T, brokers []string, topic string, compression kafka.Compression) {
	p := opened(t, brokers, func(c *Config) { c.Compression, c.MaxBatchBytes = compression, 16<<10 })
	messages := assorted(topic)
	results := p.Produce(within(t, patience), messages)
	written(t, results)
	if !p.Idempotent() {
		t.Error("the batches are not numbered")
	}
	records := log(t, brokers, topic)
	for i, m := range messages {
		r := results[i]
		at := slices.IndexFunc(records[r.Partition], func(k *kgo.Record) bool { return k.Offset == r.Offset })
		if at < 0 {
			t.Fatalf("message %d: nothing at partition %d, offset %d", i, r.Partition, r.Offset)
		}
		if diff := differs(m, records[r.Partition][at]); diff != "" {
			t.Errorf("message %d: %s", i, diff)
		}
		if m.Partition != ByKey && r.Partition != m.Partition || m.Partition == ByKey && m.Key != nil && r.Partition != partitionOf(m.Key, 5) {
			t.Errorf("message %d is in partition %d", i, r.Partition)
		}
	}
	for i := 1; i < len(messages); i++ {
		if a, b := results[i-1], results[i]; a.Partition == b.Partition && a.Offset >= b.Offset {
			t.Errorf("message %d is at %d, the one before it in the partition at %d", i, b.Offset, a.Offset)
		}
	}
}

// assorted is messages with and without everything.
func assorted(topic string) []*Message {
	random := rand.New(rand.NewPCG(1, 2))
	at := time.UnixMilli(time.Now().Add(-2 * time.Hour).UnixMilli())
	messages := []*Message{
		{Topic: topic, Partition: ByKey, Key: []byte("k"), Value: []byte("v"), Time: at},
		{Topic: topic, Partition: ByKey, Key: nil, Value: []byte("no key"), Time: at},
		{Topic: topic, Partition: ByKey, Key: []byte{}, Value: []byte("empty key"), Time: at},
		{Topic: topic, Partition: ByKey, Key: []byte("k"), Value: nil, Time: at},
		{Topic: topic, Partition: ByKey, Key: []byte("k"), Value: []byte{}, Time: at},
		{Topic: topic, Partition: 3, Key: []byte("explicit"), Value: []byte("three"), Time: at},
		{Topic: topic, Partition: ByKey, Key: []byte("k"), Value: []byte("earlier"), Time: at.Add(-time.Hour)},
		{Topic: topic, Partition: ByKey, Key: []byte("k"), Value: []byte("later"), Time: at.Add(time.Hour)},
		{Topic: topic, Partition: ByKey, Key: []byte("k"), Value: []byte("h"), Time: at, Headers: []Header{
			{"id", []byte("1")}, {"id", []byte("2")}, {"", []byte{}}, {"null", nil}, {"bytes", []byte{0, 255, 128}}, {"ü", []byte("ö")},
		}},
	}
	for range 300 {
		value := make([]byte, random.IntN(2000))
		for i := range value {
			value[i] = byte(random.IntN(16))
		}
		messages = append(messages, &Message{Topic: topic, Partition: ByKey, Key: fmt.Append(nil, random.IntN(40)), Value: value, Time: at})
	}
	return messages
}

func differs(m *Message, r *kgo.Record) string {
	switch {
	case !bytes.Equal(m.Key, r.Key) || (m.Key == nil) != (r.Key == nil):
		return fmt.Sprintf("key %q, want %q", r.Key, m.Key)
	case !bytes.Equal(m.Value, r.Value) || (m.Value == nil) != (r.Value == nil):
		return fmt.Sprintf("value %q, want %q", r.Value, m.Value)
	case !r.Timestamp.Equal(m.Time):
		return fmt.Sprintf("time %v, want %v", r.Timestamp, m.Time)
	case len(r.Headers) != len(m.Headers):
		return fmt.Sprintf("%d headers, want %d", len(r.Headers), len(m.Headers))
	}
	for i, h := range m.Headers {
		if got := r.Headers[i]; got.Key != h.Name || !bytes.Equal(got.Value, h.Value) || (got.Value == nil) != (h.Value == nil) {
			return fmt.Sprintf("header %d: %q=%q, want %q=%q", i, got.Key, got.Value, h.Name, h.Value)
		}
	}
	return ""
}

// Messages without a key reach all partitions, in runs.
func TestUnkeyedSpread(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(4, "orders"))
	p := opened(t, c.ListenAddrs())
	var messages []*Message
	for range 200 {
		messages = append(messages, &Message{Topic: "orders", Partition: ByKey, Value: []byte(strings.Repeat("x", 1000))})
	}
	results := p.Produce(within(t, patience), messages)
	written(t, results)
	seen := map[int32]int{}
	changes := 0
	for i, r := range results {
		seen[r.Partition]++
		if i > 0 && results[i-1].Partition != r.Partition {
			changes++
		}
	}
	if len(seen) != 4 || changes > 8 {
		t.Errorf("partitions %v, %d changes", seen, changes)
	}
}

// A partition that does not exist stops only its own message.
func TestNoSuchPartition(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"))
	p := opened(t, c.ListenAddrs())
	bad := message("orders", "k", "2")
	bad.Partition = 7
	results := p.Produce(within(t, patience), []*Message{message("orders", "k", "1"), bad, message("orders", "k", "3")})
	if results[0].Err != nil || results[2].Err != nil || results[1].Err == nil || !strings.Contains(results[1].Err.Text, "has no partition 7") {
		t.Errorf("%+v", results)
	}
}

// The broker is told how many acks a batch needs.
func TestAcks(t *testing.T) {
	for acks, wire := range map[Acks]int16{AcksAll: -1, AcksLeader: 1} {
		c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
		var asked atomic.Int32
		c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			asked.Store(int32(r.(*kmsg.ProduceRequest).Acks))
			return nil, nil, false
		})
		p := opened(t, c.ListenAddrs(), func(c *Config) { c.Acks, c.Idempotent = acks, false })
		written(t, p.Produce(within(t, patience), numbered("orders", 3)))
		if got := int16(asked.Load()); got != wire {
			t.Errorf("acks %d: asked for %d, want %d", acks, got, wire)
		}
	}
}

// The batches that one call has for a broker go in few requests, although each partition sends for itself.
func TestLanesShareRequests(t *testing.T) {
	const partitions, calls = 8, 100
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // or the scheduler's moods would be measured
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(partitions, "orders"))
	p := opened(t, c.ListenAddrs())
	var requests, batches atomic.Int32
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		requests.Add(1)
		for _, topic := range r.(*kmsg.ProduceRequest).Topics {
			batches.Add(int32(len(topic.Partitions)))
		}
		return nil, nil, false
	})
	for range calls {
		var messages []*Message
		for n := range partitions {
			m := message("orders", "k", "v")
			m.Partition = int32(n)
			messages = append(messages, m)
		}
		written(t, p.Produce(within(t, patience), messages))
	}
	if batches.Load() != partitions*calls || requests.Load() > 2*calls {
		t.Errorf("%d batches in %d requests of %d calls", batches.Load(), requests.Load(), calls)
	}
}

// Messages without a key go where there is a leader.
func TestUnkeyedAvoidsLeaderless(t *testing.T) {
	lanes := []*lane{{partition: 0}, {partition: 1}, {partition: 2}}
	for _, tt := range []struct {
		leaders []int32
		want    []int32
	}{
		{[]int32{5, 6, 7}, []int32{0, 1, 2}}, {[]int32{5, -1, 7}, []int32{0, 2}}, {[]int32{-1, -1, -1}, []int32{0, 1, 2}},
	} {
		var got []int32
		for _, l := range (&topic{lanes: lanes, leaders: tt.leaders}).able() {
			got = append(got, l.partition)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("leaders %v: partitions %v, want %v", tt.leaders, got, tt.want)
		}
	}
}

// What cannot work is refused before anything is sent.
func TestConfig(t *testing.T) {
	good := Config{Brokers: []string{"localhost:9092"}}
	if _, err := New(good); err != nil {
		t.Errorf("a list of brokers alone: %v", err)
	}
	for name, change := range map[string]func(*Config){
		"no brokers":                  func(c *Config) { c.Brokers = nil },
		"no port":                     func(c *Config) { c.Brokers = []string{"localhost"} },
		"a negative duration":         func(c *Config) { c.DialTimeout = -1 },
		"a backoff upside down":       func(c *Config) { c.BackoffMin, c.BackoffMax = time.Second, time.Millisecond },
		"batches too small":           func(c *Config) { c.MaxBatchBytes = 10 },
		"batches too large":           func(c *Config) { c.MaxBatchBytes = LargestMaxBatchBytes + 1 },
		"unknown acks":                func(c *Config) { c.Acks = 9 },
		"idempotence with fewer acks": func(c *Config) { c.Idempotent, c.Acks = true, AcksLeader },
		"an unknown compression":      func(c *Config) { c.Compression = 9 },
	} {
		bad := good
		change(&bad)
		if _, err := New(bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
