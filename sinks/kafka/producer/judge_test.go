package producer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What passes is sent again inside the call, and written once.
func TestCodesThatPass(t *testing.T) {
	for _, err := range []*kerr.Error{
		kerr.UnknownTopicOrPartition, kerr.LeaderNotAvailable, kerr.NotLeaderForPartition, kerr.RequestTimedOut,
		kerr.BrokerNotAvailable, kerr.ReplicaNotAvailable, kerr.NetworkException, kerr.NotEnoughReplicas,
		kerr.NotEnoughReplicasAfterAppend, kerr.KafkaStorageError, kerr.ListenerNotFound, kerr.FencedLeaderEpoch,
		kerr.UnknownLeaderEpoch, kerr.UnknownTopicID, kerr.InconsistentTopicID, kerr.OutOfOrderSequenceNumber,
		kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.ProducerFenced, kerr.CorruptMessage, kerr.UnknownServerError,
	} {
		t.Run(err.Message, func(t *testing.T) {
			c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
			p := opened(t, c.ListenAddrs())
			written(t, p.Produce(within(t, patience), numbered("orders", 2)))
			fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: err})
			results := p.Produce(within(t, patience), numbered("orders", 5))
			written(t, results)
			if fault.Hits() != 1 {
				t.Errorf("%d requests met the fault", fault.Hits())
			}
			if got := log(t, c.ListenAddrs(), "orders")[0]; len(got) != 7 {
				t.Errorf("%d records in the log, want 7", len(got))
			}
		})
	}
}

// What does not pass in time is the call's to report: with the broker's code, and whether it may be written.
func TestCodesThatStay(t *testing.T) {
	for _, tt := range []struct {
		err     *kerr.Error
		class   Class
		unknown bool
		text    string
	}{
		{kerr.NotEnoughReplicas, Retry, false, "min.insync.replicas"},
		{kerr.NotEnoughReplicasAfterAppend, Retry, true, "min.insync.replicas"},
		{kerr.RequestTimedOut, Retry, true, "Timed Out"},
		{kerr.NotLeaderForPartition, Retry, true, "Not Leader"},
		{kerr.KafkaStorageError, Retry, true, "Storage"},
		{kerr.UnknownServerError, Retry, true, ""},
		{kerr.ThrottlingQuotaExceeded, Throttled, false, ""},
		{kerr.InvalidRequiredAcks, Sink, false, ""},
		{kerr.TopicAuthorizationFailed, Sink, false, "grant this client Write"},
		{kerr.ClusterAuthorizationFailed, Sink, false, "IdempotentWrite"},
		{kerr.UnsupportedSaslMechanism, Sink, false, ""},
		{kerr.UnsupportedVersion, Sink, false, ""},
		{kerr.PolicyViolation, Sink, false, ""},
		{kerr.TransactionalIDAuthorizationFailed, Sink, false, ""},
		{kerr.SaslAuthenticationFailed, Sink, false, "password"},
		{kerr.UnsupportedCompressionType, Sink, false, "compression"},
		{kerr.InvalidTimestamp, Permanent, false, "message.timestamp"},
		{kerr.UnsupportedForMessageFormat, Sink, false, "message.format.version"},
		{kerr.InvalidRecord, Permanent, false, ""},
		{kerr.InvalidTopicException, Permanent, false, ""},
		{kerr.MessageTooLarge, Permanent, false, "max.message.bytes"},
		{kerr.RecordListTooLarge, Permanent, false, "max.message.bytes"},
		{kerr.CorruptMessage, Permanent, false, ""},
	} {
		t.Run(tt.err.Message, func(t *testing.T) {
			c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
			p := opened(t, c.ListenAddrs())
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: tt.err, Count: -1})
			began := time.Now()
			results := p.Produce(within(t, time.Second), []*Message{message("orders", "a", "1"), message("orders", "b", "2")})
			for i, r := range results {
				switch {
				case r.Err == nil:
					t.Fatalf("message %d is written", i)
				case r.Err.Class != tt.class || r.Err.Unknown != tt.unknown || r.Err.Code != kafka.Error(tt.err.Code) || r.NotSent:
					t.Errorf("message %d: %+v, not sent %v", i, r.Err, r.NotSent)
				case !strings.Contains(r.Err.Text, tt.text):
					t.Errorf("message %d: %q does not say %q", i, r.Err.Text, tt.text)
				}
				if tt.class == Throttled && r.Err.RetryAfter <= 0 {
					t.Errorf("message %d: throttled for %v", i, r.Err.RetryAfter)
				}
			}
			if took := time.Since(began); tt.class != Retry && took > 800*time.Millisecond {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// The broker names the records that it refuses: the others of the batch are written, but for those behind one of its key.
func TestRecordErrors(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	p := opened(t, c.ListenAddrs())
	refuseRecords(c, 1, 4)
	var messages []*Message
	for _, m := range []string{"a1", "b1", "a2", "b2", "c1", "c2", "d1"} {
		messages = append(messages, message("orders", m[:1], m))
	}
	results := p.Produce(within(t, patience), messages)
	for i, want := range []string{"", "permanent", "", "behind", "permanent", "behind", ""} {
		got := ""
		if e := results[i].Err; e != nil {
			if got = e.Class.String(); results[i].NotSent {
				got = "behind"
			}
		}
		if got != want {
			t.Errorf("message %d: %q, want %q (%v)", i, got, want, results[i].Err)
		}
	}
	if text := results[1].Err.Text; !strings.Contains(text, "record 1 is bad") {
		t.Errorf("the broker's words are missing: %s", text)
	}
	if got := values(log(t, c.ListenAddrs(), "orders")[0]); got != "a1 a2 d1" {
		t.Errorf("the log is %q", got)
	}
}

// refuseRecords makes the next produce request fail as a broker's validation does.
func refuseRecords(c *kfake.Cluster, indexes ...int32) {
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		response := r.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range r.(*kmsg.ProduceRequest).Topics {
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic = t.Topic
			for _, p := range t.Partitions {
				partition := kmsg.NewProduceResponseTopicPartition()
				partition.Partition, partition.ErrorCode, partition.BaseOffset = p.Partition, kerr.InvalidRecord.Code, -1
				for _, i := range indexes {
					e := kmsg.NewProduceResponseTopicPartitionErrorRecord()
					e.RelativeOffset, e.ErrorMessage = i, kmsg.StringPtr(fmt.Sprintf("record %d is bad", i))
					partition.ErrorRecords = append(partition.ErrorRecords, e)
				}
				topic.Partitions = append(topic.Partitions, partition)
			}
			response.Topics = append(response.Topics, topic)
		}
		return response, nil, true
	})
}

// A batch that is too large for the broker, which does not say why, is taken apart until the one to blame is alone.
func TestTooLargeForBroker(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "other"))
	if err := c.CreateTopic("orders", 1, map[string]string{"max.message.bytes": "20000"}); err != nil {
		t.Fatal(err)
	}
	p := opened(t, c.ListenAddrs())
	messages := numbered("orders", 200)
	for i := range messages {
		messages[i].Value = []byte(strings.Repeat("x", 1000))
		messages[i].Key = nil
	}
	messages[77].Value = []byte(strings.Repeat("y", 30_000))
	results := p.Produce(within(t, patience), messages)
	for i, r := range results {
		if i == 77 && (r.Err == nil || r.Err.Class != Permanent || r.Err.Code != kafka.MessageSizeTooLarge) || i != 77 && r.Err != nil {
			t.Errorf("message %d: %v", i, r.Err)
		}
	}
	// The lane has learned: the next batches fit.
	refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Observe: true, Count: -1})
	written(t, p.Produce(within(t, patience), messages[:50]))
	if n := refused.Hits(); n > 20 {
		t.Errorf("%d requests for 50 messages", n)
	}
}

// What is too large for the producer's own limit is not sent, and only it fails. Compression counts.
func TestTooLargeHere(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	big := message("orders", "b", strings.Repeat("z", 50_000))
	for _, compression := range []kafka.Compression{0, kafka.Gzip} {
		p := opened(t, c.ListenAddrs(), func(c *Config) { c.MaxBatchBytes, c.Compression = 10_000, compression })
		results := p.Produce(within(t, patience), []*Message{message("orders", "a", "1"), big, message("orders", "b", "2"), message("orders", "c", "3")})
		if compression == kafka.Gzip {
			written(t, results)
			continue
		}
		if results[0].Err != nil || results[3].Err != nil || !results[2].NotSent {
			t.Errorf("%+v", results)
		}
		if e := results[1].Err; e == nil || e.Class != Permanent || !strings.Contains(e.Text, "10000") {
			t.Errorf("the large one: %v", e)
		}
	}
}
