package kafka

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
)

// onBroker is a sink for a topic of its own on the real broker, with settings more.
func onBroker(t testing.TB, configs map[string]string, others string) (*Sink, *topic) {
	t.Helper()
	brokers := services.Kafka(t)
	k := newTopic(t, brokers, 3, configs)
	return opened(t, fmt.Appendf(nil, `{"brokers": [%q], "topic": %q%s}`, brokers[0], k.name, others)), k
}

// Messages come byte for byte, whatever the compression: keys and values that are none and that are empty, headers that
// repeat, in their order.
func TestBytes(t *testing.T) {
	noise := make([]byte, 100_000)
	rand.NewChaCha8([32]byte{1}).Read(noise)
	created := time.Now().Truncate(time.Microsecond)
	record := func(id string, key []byte, value []byte, headers ...core.Header) core.Record {
		return core.Record{ID: id, Key: string(key), Keyed: key != nil, Payload: value, Headers: headers, CreatedAt: created, Deliveries: 1, Epoch: 7}
	}
	batch := []core.Record{
		record("a", []byte("k"), []byte(`{"b":1.0, "a":2}`), core.Header{Name: "x", Value: "1"}, core.Header{Name: "ü", Value: "grün 😀"}, core.Header{Name: "x", Value: ""}),
		record("b", nil, []byte{}),
		record("c", []byte{}, nil),
		record("d", []byte("\x00\xff key"), noise),
	}
	for _, compression := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(compression, func(t *testing.T) {
			s, k := onBroker(t, nil, fmt.Sprintf(`, "compression": %q`, compression))
			if got := delivered(t, soon(t), s, batch); got != "delivered , delivered , delivered , delivered " {
				t.Fatal(got)
			}
			byID := map[string]*kgo.Record{}
			for _, m := range k.read(t) {
				byID[string(m.Headers[0].Value)] = m
			}
			for i := range batch {
				r := &batch[i]
				var key []byte
				if r.Keyed {
					key = []byte(r.Key)
				}
				headers := []string{"connectd-id: " + r.ID, "connectd-delivery: 1", "connectd-epoch: 7",
					"connectd-created-at: " + created.UTC().Format("2006-01-02T15:04:05.000000Z07:00")}
				for _, h := range r.Headers {
					headers = append(headers, h.Name+": "+h.Value)
				}
				m := byID[r.ID]
				if m == nil {
					t.Fatalf("record %s is not there", r.ID)
				}
				wantMessage(t, m, key, r.Payload, headers...)
				if want := map[string]uint8{"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[compression]; m.Attrs.CompressionType() != want {
					t.Errorf("compression %d, want %d", m.Attrs.CompressionType(), want)
				}
			}
		})
	}
}

// One record that is too large fails alone, whoever finds it, and its key waits behind it.
// A key that goes on without it: https://github.com/thomhurst/Dekaf/pull/3054
// What is too large stays so, and is not tried for ever: https://github.com/JasperFx/wolverine/issues/3926
func TestTooLarge(t *testing.T) {
	for name, test := range map[string]struct {
		configs map[string]string
		others  string
	}{
		"for the sink":   {nil, `, "max_batch_bytes": "100KiB"`},
		"for the broker": {map[string]string{"max.message.bytes": "100000"}, ""},
		"compressed":     {nil, `, "max_batch_bytes": "100KiB", "compression": "zstd"`},
	} {
		t.Run(name, func(t *testing.T) {
			s, k := onBroker(t, test.configs, test.others)
			batch := rows("a1", "b1", "a2", "1", "b2", "a3", "2", "c1")
			for i := range batch {
				batch[i].CreatedAt = time.Now()
				batch[i].Payload = append(batch[i].Payload, bytes.Repeat([]byte(" "), 30_000)...) // several batches
			}
			noise := make([]byte, 200_000)
			rand.NewChaCha8([32]byte{2}).Read(noise)
			batch[2].Payload = noise
			want := "delivered , delivered , permanent too_large, delivered , delivered , not_attempted behind, delivered , delivered "
			if got := delivered(t, soon(t), s, batch); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			var ids []string
			for _, r := range k.records(t) {
				ids = append(ids, r.ID)
			}
			if len(ids) != 6 || strings.Contains(strings.Join(ids, " "), "a2") || strings.Contains(strings.Join(ids, " "), "a3") {
				t.Errorf("in the topic: %v", ids)
			}
		})
	}
}

// What a broker's validation refuses is buried alone and with the broker's words.
func TestRefused(t *testing.T) {
	s, _ := onBroker(t, map[string]string{"cleanup.policy": "compact"}, "")
	batch := rows("a1", "1", "b1")
	for i := range batch {
		batch[i].CreatedAt = time.Now()
	}
	if got := delivered(t, soon(t), s, batch); got != "delivered , permanent refused, delivered " {
		t.Error(got)
	}
	old, _ := onBroker(t, map[string]string{"message.timestamp.before.max.ms": "86400000"}, "")
	batch[2].CreatedAt = time.Now().Add(-48 * time.Hour)
	// While the topic is new, a broker may not know of it yet; then an earlier try makes the answer uncertain.
	eventually(t, "delivered , delivered , permanent refused", func() string { return delivered(t, soon(t), old, batch) })
	now, _ := onBroker(t, map[string]string{"message.timestamp.before.max.ms": "86400000"}, `, "timestamp": "now"`)
	if got := delivered(t, soon(t), now, batch); got != "delivered , delivered , delivered " {
		t.Error(got)
	}
}

// A client above its quota is slower, and no record is charged for that.
func TestQuota(t *testing.T) {
	client := "quota-" + strings.ToLower(t.Name()) + fmt.Sprint(time.Now().UnixNano())
	s, k := onBroker(t, nil, fmt.Sprintf(`, "client_id": %q`, client))
	setQuota(t, k, client, 50_000)
	t.Cleanup(func() { setQuota(t, k, client, 0) })
	throttled := 0
	for n := range 8 {
		batch := rows(fmt.Sprintf("a%d", n))
		batch[0].CreatedAt, batch[0].Payload = time.Now(), make([]byte, 100_000)
		for got := ""; got != "delivered "; {
			o, err := s.Deliver(soon(t), batch)
			if err != nil {
				t.Fatal(err)
			}
			switch got = verdict(o[0]); o[0].Kind {
			case core.Delivered:
			case core.Throttled:
				if throttled++; o[0].RetryAfter <= 0 || o[0].Scope != core.ScopeDefault {
					t.Errorf("%+v", o[0])
				}
				time.Sleep(o[0].RetryAfter) // as the engine does
			default:
				t.Fatalf("%s: %s", got, o[0].Message)
			}
		}
	}
	if throttled == 0 {
		t.Error("nothing was throttled")
	}
	if n := len(k.read(t)); n != 8 {
		t.Errorf("%d messages, want 8", n)
	}
}

// setQuota bounds the bytes in a second that a client may write; 0 ends that.
func setQuota(t testing.TB, k *topic, client string, rate float64) {
	t.Helper()
	admin := k.connected(t)
	defer admin.Close()
	request := kmsg.NewPtrAlterClientQuotasRequest()
	entry := kmsg.NewAlterClientQuotasRequestEntry()
	entity := kmsg.NewAlterClientQuotasRequestEntryEntity()
	entity.Type, entity.Name = "client-id", &client
	op := kmsg.NewAlterClientQuotasRequestEntryOp()
	op.Key, op.Value, op.Remove = "producer_byte_rate", rate, rate == 0
	entry.Entity, entry.Ops = append(entry.Entity, entity), append(entry.Ops, op)
	request.Entries = append(request.Entries, entry)
	response, err := request.RequestWith(within(t, 10*time.Second), admin)
	if err != nil || response.Entries[0].ErrorCode != 0 {
		t.Fatalf("set a quota: %v, %+v", err, response)
	}
}
