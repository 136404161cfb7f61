package kafka

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/connectd/connectd/core"
)

// topic is a topic of one test, read by a client that has nothing to do with the sink's, and that leaves nothing running.
type topic struct {
	name       string
	partitions int
	options    []kgo.Opt
	next       map[int32]int64
	messages   []*kgo.Record
}

// newTopic makes a topic, which is gone when the test ends. Configs are its settings, such as "max.message.bytes".
func newTopic(t testing.TB, brokers []string, partitions int, configs map[string]string, options ...kgo.Opt) *topic {
	t.Helper()
	k := &topic{name: "test-" + strings.ToLower(rand.Text()), partitions: partitions, next: map[int32]int64{}, options: append(options,
		kgo.SeedBrokers(brokers...), kgo.FetchMaxWait(50*time.Millisecond), kgo.FetchMaxBytes(64<<20), kgo.FetchMaxPartitionBytes(64<<20),
		kgo.BrokerMaxReadBytes(128<<20), kgo.MetadataMinAge(10*time.Millisecond))}
	k.create(t, configs)
	t.Cleanup(func() { k.remove(t) })
	return k
}

// connected is a client for one purpose.
func (k *topic) connected(t testing.TB, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(options, k.options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (k *topic) create(t testing.TB, configs map[string]string) {
	t.Helper()
	client := k.connected(t)
	defer client.Close()
	request := kmsg.NewPtrCreateTopicsRequest()
	made := kmsg.NewCreateTopicsRequestTopic()
	made.Topic, made.NumPartitions, made.ReplicationFactor = k.name, int32(k.partitions), 1
	set := func(name, value string) {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = name, &value
		made.Configs = append(made.Configs, c)
	}
	set("retention.ms", "-1") // else the broker removes rows that are dated a week ago, and does so under a test that runs
	for name, value := range configs {
		set(name, value)
	}
	request.Topics = append(request.Topics, made)
	response, err := request.RequestWith(t.Context(), client)
	if err == nil {
		err = kerr.ErrorForCode(response.Topics[0].ErrorCode)
	}
	for err == nil && !k.known(t, client) { // a broker learns of it a moment later
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		t.Fatalf("create topic %s: %v", k.name, err)
	}
}

// known reports whether the broker knows of the topic, and each partition's leader that it is one.
func (k *topic) known(t testing.TB, client *kgo.Client) bool {
	t.Helper()
	request := kmsg.NewPtrMetadataRequest()
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = &k.name
	request.Topics = append(request.Topics, asked)
	response, err := request.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatalf("ask for topic %s: %v", k.name, err)
	}
	if response.Topics[0].ErrorCode != 0 || len(response.Topics[0].Partitions) != k.partitions {
		return false
	}
	_, err = k.ends(t, client)
	return err == nil
}

// remove deletes the topic. It is for clean-ups too, when the test's own context has ended.
func (k *topic) remove(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client := k.connected(t)
	defer client.Close()
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.TopicNames = []string{k.name}
	named := kmsg.NewDeleteTopicsRequestTopic()
	named.Topic = &k.name
	request.Topics = append(request.Topics, named)
	if _, err := request.RequestWith(ctx, client); err != nil {
		t.Errorf("delete topic %s: %v", k.name, err)
	}
}

// ends is how many messages each partition has had.
func (k *topic) ends(t testing.TB, client *kgo.Client) (map[int32]int64, error) {
	t.Helper()
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	asked := kmsg.NewListOffsetsRequestTopic()
	asked.Topic = k.name
	for p := range int32(k.partitions) {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = p, -1
		asked.Partitions = append(asked.Partitions, partition)
	}
	request.Topics = append(request.Topics, asked)
	ends := map[int32]int64{}
	for _, shard := range client.RequestSharded(within(t, 20*time.Second), request) {
		if shard.Err != nil {
			return nil, shard.Err
		}
		for _, p := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, err
			}
			ends[p.Partition] = p.Offset
		}
	}
	return ends, nil
}

// read returns all messages that are in the topic now: those of one partition in their order.
func (k *topic) read(t testing.TB) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	asking := k.connected(t)
	defer asking.Close()
	ends, err := k.ends(t, asking)
	if err != nil {
		t.Fatalf("ask for the end of topic %s: %v", k.name, err)
	}
	from := map[int32]kgo.Offset{}
	for p, end := range ends {
		if k.next[p] < end {
			from[p] = kgo.NewOffset().At(k.next[p])
		}
	}
	if len(from) == 0 {
		return k.messages
	}
	client := k.connected(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{k.name: from}))
	defer client.Close()
	for len(from) > 0 {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("read topic %s: at %v of %v", k.name, k.next, ends)
		}
		fetches.EachRecord(func(m *kgo.Record) {
			k.messages = append(k.messages, m)
			if k.next[m.Partition] = m.Offset + 1; k.next[m.Partition] >= ends[m.Partition] {
				delete(from, m.Partition)
			}
		})
	}
	return k.messages
}

// records reads the messages as a consumer does, with the default settings of the sink.
func (k *topic) records(t testing.TB) []core.Record {
	t.Helper()
	k.read(t)
	return k.kept(t)
}

// kept is what was read last.
func (k *topic) kept(t testing.TB) []core.Record {
	t.Helper()
	var all []core.Record
	for _, m := range k.messages {
		all = append(all, consumed(t, m))
	}
	return all
}

func consumed(t testing.TB, m *kgo.Record) core.Record {
	t.Helper()
	r := core.Record{Key: string(m.Key), Keyed: m.Key != nil, Payload: m.Value}
	marked := false
	var err error
	for _, h := range m.Headers {
		value := string(h.Value)
		switch h.Key {
		case "connectd-id":
			r.ID = value
		case "connectd-type":
			r.Type = value
		case "connectd-route":
			r.Route = value
		case "connectd-delivery":
			r.Deliveries, err = strconv.Atoi(value)
		case "connectd-epoch":
			r.Epoch, err = strconv.ParseInt(value, 10, 64)
		case "connectd-created-at":
			r.CreatedAt, err = time.Parse(time.RFC3339, value)
		case "connectd-possible-duplicate":
			marked = value == "true"
		default:
			r.Headers = append(r.Headers, core.Header{Name: h.Key, Value: value})
		}
		if err != nil {
			t.Errorf("header %s: %v", h.Key, err)
		}
	}
	if marked != r.PossibleDuplicate() {
		t.Errorf("record %s is delivery %d and marked %v", r.ID, r.Deliveries, marked)
	}
	if !m.Timestamp.Equal(r.CreatedAt.Truncate(time.Millisecond)) {
		t.Errorf("record %s of %v has the time %v", r.ID, r.CreatedAt, m.Timestamp)
	}
	return r
}

// wantMessage compares a message byte for byte.
func wantMessage(t testing.TB, m *kgo.Record, key, value []byte, headers ...string) {
	t.Helper()
	var got []string
	for _, h := range m.Headers {
		got = append(got, fmt.Sprintf("%s: %s", h.Key, h.Value))
	}
	same := func(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
	if !same(m.Key, key) || !same(m.Value, value) || strings.Join(got, "\n") != strings.Join(headers, "\n") {
		t.Errorf("the message is %q %q\n%s\nwant %q %q\n%s", m.Key, m.Value, strings.Join(got, "\n"), key, value, strings.Join(headers, "\n"))
	}
}
