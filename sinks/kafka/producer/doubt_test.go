package producer

import (
	"encoding/binary"
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
