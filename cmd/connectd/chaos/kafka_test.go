//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/connectd/connectd/scripts/services"
)

const (
	kafkaTopic      = "chaos"
	kafkaPartitions = 4
	largest         = 32 << 10 // bytes that a destination with a limit takes
	adminTime       = 30 * time.Second
)

// kafkaReceiver reads a topic while it is written, straight from the broker and with another client library than the
// sink's. A record's time is the one at which the broker wrote it.
type kafkaReceiver struct {
	servers *services.Servers
	broker  string
	client  *kgo.Client
	ended   chan struct{}

	mu   sync.Mutex
	next [kafkaPartitions]int64 // offset
	home map[string]int32       // key → its partition
	list []reception
	err  error
}

func startKafka(t *testing.T) *kafkaReceiver {
	t.Helper()
	servers := services.Own(t, "kafka")
	k := &kafkaReceiver{servers: servers, broker: servers.Kafka()[0], ended: make(chan struct{}), home: map[string]int32{}}
	var err error
	k.client, err = kgo.NewClient(kgo.SeedBrokers(k.broker), kgo.ConsumeTopics(kafkaTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	must(t, err)
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = kafkaTopic, kafkaPartitions, 1
	for name, value := range map[string]string{"message.timestamp.type": "LogAppendTime", "max.message.bytes": fmt.Sprint(largest)} {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = name, &value
		topic.Configs = append(topic.Configs, config)
	}
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = append(request.Topics, topic)
	request.TimeoutMillis = int32(adminTime / time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), adminTime)
	defer cancel()
	made, err := request.RequestWith(ctx, k.client)
	must(t, err)
	must(t, kerr.ErrorForCode(made.Topics[0].ErrorCode))
	consume, stop := context.WithCancel(context.Background())
	go k.follow(consume)
	t.Cleanup(func() {
		stop()
		<-k.ended
		k.client.Close()
	})
	return k
}

func (k *kafkaReceiver) yaml() string {
	return fmt.Sprintf(`plugin: kafka, brokers: ["${%s}"], topic: "{type|%s}", timeouts: {connect: 1s, request: %v}`, targetVariable, kafkaTopic, requestTimeout)
}
func (k *kafkaReceiver) address() string              { return k.broker }
func (k *kafkaReceiver) target(address string) string { return address }
func (k *kafkaReceiver) name() string                 { return k.servers.Version("kafka") }

// follow reads until the context ends. The broker comes and goes meanwhile.
func (k *kafkaReceiver) follow(ctx context.Context) {
	defer close(k.ended)
	for ctx.Err() == nil {
		fetches := k.client.PollFetches(ctx)
		k.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			if err := k.take(r); k.err == nil {
				k.err = err
			}
		})
		k.mu.Unlock()
	}
}

// take notes a record. Offsets have no gaps: there are no transactions, and nothing is removed so soon.
func (k *kafkaReceiver) take(r *kgo.Record) error {
	if want := k.next[r.Partition]; r.Offset != want {
		return fmt.Errorf("partition %d goes on with offset %d instead of %d", r.Partition, r.Offset, want)
	}
	k.next[r.Partition]++
	headers := map[string]string{}
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	one, err := readRecord(r.Value, func(name string) string { return headers["connectd-"+name] })
	if err != nil {
		return fmt.Errorf("partition %d, offset %d: %w", r.Partition, r.Offset, err)
	}
	if (r.Key != nil) != (one.Key != "") || string(r.Key) != one.Key {
		return fmt.Errorf("partition %d, offset %d: key %q of the record of %q", r.Partition, r.Offset, r.Key, one.Key)
	}
	if home, known := k.home[one.Key]; known && home != r.Partition && r.Key != nil {
		return fmt.Errorf("key %s is in the partitions %d and %d", r.Key, r.Partition, home)
	}
	one.At, k.home[one.Key] = r.Timestamp, r.Partition
	k.list = append(k.list, one)
	return nil
}

// readRecord makes a reception of a message's body and of what is said beside it.
func readRecord(body []byte, said func(name string) string) (one reception, err error) {
	var p payload
	if err := json.Unmarshal(body, &p); err != nil {
		return one, fmt.Errorf("body %q: %w", body, err)
	}
	one = reception{ID: said("id"), Key: p.Key, N: p.N, Marked: said("possible-duplicate") == "true"}
	if one.Delivery, err = strconv.Atoi(said("delivery")); err == nil {
		one.Epoch, err = strconv.ParseInt(said("epoch"), 10, 64)
	}
	return one, err
}

// received waits until all that is in the topic has been read.
func (k *kafkaReceiver) received() ([]reception, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = kafkaTopic
	for n := range int32(kafkaPartitions) {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = n, -1 // the end
		topic.Partitions = append(topic.Partitions, partition)
	}
	request := kmsg.NewPtrListOffsetsRequest()
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(ctx, k.client)
	if err != nil {
		return nil, fmt.Errorf("ask for the topic's end: %w", err)
	}
	read := func(end kmsg.ListOffsetsResponseTopicPartition) bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.next[end.Partition] >= end.Offset || k.err != nil
	}
	for _, end := range answer.Topics[0].Partitions {
		if err := kerr.ErrorForCode(end.ErrorCode); err != nil {
			return nil, fmt.Errorf("end of partition %d: %w", end.Partition, err)
		}
		for !read(end) {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("partition %d was not read to its end at %d", end.Partition, end.Offset)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.list, k.err
}

func (k *kafkaReceiver) hinder(how what) (mend func() error, err error) {
	switch how {
	case targetKill, targetRestart:
		return breakServer(k.servers, "kafka", how == targetKill)
	case targetSlow:
		err = k.quota(20_000)
		return func() error { return k.quota(0) }, err
	default: // one replica too few
		err = k.replicas("2")
		return func() error { return k.replicas("1") }, err
	}
}

// quota limits how many bytes a second any client may write; 0: as many as it likes.
func (k *kafkaReceiver) quota(rate float64) error {
	entity := kmsg.NewAlterClientQuotasRequestEntryEntity()
	entity.Type = "client-id" // all of them
	op := kmsg.NewAlterClientQuotasRequestEntryOp()
	op.Key, op.Value, op.Remove = "producer_byte_rate", rate, rate == 0
	entry := kmsg.NewAlterClientQuotasRequestEntry()
	entry.Entity, entry.Ops = append(entry.Entity, entity), append(entry.Ops, op)
	request := kmsg.NewPtrAlterClientQuotasRequest()
	request.Entries = append(request.Entries, entry)
	ctx, cancel := context.WithTimeout(context.Background(), adminTime)
	defer cancel()
	answer, err := request.RequestWith(ctx, k.client)
	if err == nil {
		err = kerr.ErrorForCode(answer.Entries[0].ErrorCode)
	}
	return err
}

// replicas sets how many of them must have a record: there is one.
func (k *kafkaReceiver) replicas(least string) error {
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Op, config.Value = "min.insync.replicas", kmsg.IncrementalAlterConfigOpSet, &least
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, kafkaTopic
	resource.Configs = append(resource.Configs, config)
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	ctx, cancel := context.WithTimeout(context.Background(), adminTime)
	defer cancel()
	answer, err := request.RequestWith(ctx, k.client)
	if err == nil {
		if err = kerr.ErrorForCode(answer.Resources[0].ErrorCode); err != nil && answer.Resources[0].ErrorMessage != nil {
			err = errors.Join(err, errors.New(*answer.Resources[0].ErrorMessage))
		}
	}
	return err
}
