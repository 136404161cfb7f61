package producer

import (
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A batch that may be written, is sent again and then refused, is taken apart. What is left of it may still be written: when
// it is not confirmed in the end, it says so, be it sent once more or not.
func TestDoubtOutlivesTheBatch(t *testing.T) {
	for name, tt := range map[string]struct {
		refusal *kerr.Error
		listed  bool // the broker says that it is the first record
	}{
		"without the culprit": {kerr.InvalidRecord, true},
		"in halves":           {kerr.MessageTooLarge, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
			p := opened(t, c.ListenAddrs())
			var mu sync.Mutex
			var epochs []uint16
			answers(c, func(n int, batch []byte) (*kerr.Error, []int32) {
				mu.Lock()
				epochs = append(epochs, binary.BigEndian.Uint16(batch[atProducerEpoch-4:]))
				mu.Unlock()
				switch {
				case n == 0:
					return kerr.RequestTimedOut, nil
				case n == 1 && tt.listed:
					return tt.refusal, []int32{0}
				case n == 1:
					return tt.refusal, nil
				default:
					return kerr.NotEnoughReplicas, nil // this one is not written
				}
			})
			results := p.Produce(within(t, time.Second), []*Message{message("orders", "a", "1"), message("orders", "b", "2"), message("orders", "a", "3")})
			for i, r := range results {
				if r.Err == nil || !r.Err.Unknown || r.NotSent {
					t.Errorf("message %d: %+v, not sent %v; it may be written", i, r.Err, r.NotSent)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if len(epochs) < 3 || epochs[1] != epochs[0] || epochs[2] != epochs[1]+1 {
				t.Errorf("the epochs are %d: what is left needs one of its own", epochs)
			}
		})
	}
}

// A batch whose latest message is so old that brokers may have forgotten it is sent once: when nobody knows whether it is
// written, that is said at once. The next goes to the right leader, under numbers of its own.
func TestForgettable(t *testing.T) {
	for name, doubt := range map[string]func(*kfake.Cluster){
		"cut":   func(c *kfake.Cluster) { cutOnce(c) },
		"moved": func(c *kfake.Cluster) { _ = c.MoveTopicPartition("orders", 0, 1-c.LeaderFor("orders", 0)) },
		"timed out": func(c *kfake.Cluster) {
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut})
		},
	} {
		for _, age := range []time.Duration{rememberedFor - time.Minute, rememberedFor + time.Minute} {
			t.Run(name+" "+age.String(), func(t *testing.T) {
				c := fake(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "orders"))
				p := opened(t, c.ListenAddrs())
				written(t, p.Produce(within(t, patience), numbered("orders", 1)))
				l := p.topics["orders"].lanes[0]
				eventually(t, "the lane is idle", func() bool { return !l.busy() })
				before := l.next
				old, older := message("orders", "k", "old"), message("orders", "k", "older")
				old.Time = time.Now().Add(-age)
				older.Time = old.Time.Add(-time.Hour)
				doubt(c)
				results := p.Produce(within(t, patience), []*Message{older, old})
				if age < rememberedFor {
					written(t, results)
					return
				}
				for i, r := range results {
					if e := r.Err; e == nil || !e.Unknown || e.Class != Retry || r.NotSent || !strings.Contains(e.Text, "too long ago") {
						t.Errorf("message %d: %+v, not sent %v", i, e, r.NotSent)
					}
				}
				written(t, p.Produce(within(t, patience), []*Message{older, old}))
				eventually(t, "the lane is idle", func() bool { return !l.busy() })
				if want := (numbering{id: before.id, epoch: before.epoch + 1, sequence: 2}); l.next != want {
					t.Errorf("the next batch has %+v, want %+v", l.next, want)
				}
			})
		}
	}
}

// Without numbers a broker knows no batch again, and an old one is no worse than others.
func TestForgettableWithoutNumbers(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	p := opened(t, c.ListenAddrs(), func(c *Config) { c.Idempotent = false })
	cutOnce(c)
	m := message("orders", "k", "old")
	m.Time = time.Now().Add(-2 * rememberedFor)
	written(t, p.Produce(within(t, patience), []*Message{m}))
}

// A broker that has forgotten the producer cannot say that it has not the batch.
func TestForgottenAfterDoubt(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	p := opened(t, c.ListenAddrs())
	requests := 0
	answers(c, func(n int, _ []byte) (*kerr.Error, []int32) {
		requests = n + 1
		if n == 0 {
			return kerr.RequestTimedOut, nil
		}
		return kerr.UnknownProducerID, nil
	})
	r := p.Produce(within(t, patience), numbered("orders", 1))[0]
	if r.Err == nil || !r.Err.Unknown || r.Err.Class != Retry || requests != 2 {
		t.Errorf("%+v after %d requests", r.Err, requests)
	}
}

// cutOnce breaks the connection that the next produce request comes on.
func cutOnce(c *kfake.Cluster) {
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		return nil, errors.New("cut"), true
	})
}

// answers gives produce requests for one partition these answers, by their number.
func answers(c *kfake.Cluster, answer func(n int, batch []byte) (*kerr.Error, []int32)) {
	var mu sync.Mutex
	n := 0
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		request := r.(*kmsg.ProduceRequest)
		code, records := answer(n, request.Topics[0].Partitions[0].Records)
		n++
		response := request.ResponseKind().(*kmsg.ProduceResponse)
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic = request.Topics[0].Topic
		partition := kmsg.NewProduceResponseTopicPartition()
		partition.Partition, partition.ErrorCode, partition.BaseOffset = request.Topics[0].Partitions[0].Partition, code.Code, -1
		for _, i := range records {
			record := kmsg.NewProduceResponseTopicPartitionErrorRecord()
			record.RelativeOffset = i
			partition.ErrorRecords = append(partition.ErrorRecords, record)
		}
		topic.Partitions = append(topic.Partitions, partition)
		response.Topics = append(response.Topics, topic)
		return response, nil, true
	})
}
