//go:build linux

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestRabbitReceiverKnowsWhatItTook: what the server gives again because a connection was lost did not arrive twice. What
// was sent again did, and so did what was given again and had not been seen.
func TestRabbitReceiverKnowsWhatItTook(t *testing.T) {
	message := func(n, delivery int, again bool) *amqp.Delivery {
		headers := amqp.Table{"connectd-delivery": int64(delivery), "connectd-epoch": int64(1)}
		if delivery > 1 {
			headers["connectd-possible-duplicate"] = true
		}
		return &amqp.Delivery{MessageId: fmt.Sprint("k-", n), Redelivered: again, Headers: headers, Body: fmt.Appendf(nil, `{"key":"k","n":%d}`, n)}
	}
	r := &rabbitReceiver{done: make(chan struct{})}
	var none []reception
	for _, m := range []*amqp.Delivery{message(1, 1, false), message(2, 1, false), message(2, 2, false)} {
		r.take(m, &none)
	}
	again := slices.Clone(r.unsure) // the connection is lost
	for _, m := range []*amqp.Delivery{message(2, 1, true), message(2, 2, true), message(3, 1, true), message(2, 2, true), message(3, 1, false)} {
		r.take(m, &again)
	}
	var got []string
	for _, one := range r.list {
		got = append(got, fmt.Sprintf("%s/%d/%t", one.ID, one.Delivery, one.Marked))
	}
	if want := "k-1/1/false k-2/1/false k-2/2/true k-3/1/false k-2/2/true k-3/1/false"; strings.Join(got, " ") != want || r.err != nil {
		t.Errorf("received %v, %v; want %s", got, r.err, want)
	}
	r.take(&amqp.Delivery{Body: []byte("no JSON")}, &none)
	if r.err == nil {
		t.Error("a broken message is no error")
	}
}

// TestKafkaReceiverTrustsNothing: a gap in a partition, a key in two of them, and a message of another record are found.
func TestKafkaReceiverTrustsNothing(t *testing.T) {
	record := func(partition int32, offset int64, key string) *kgo.Record {
		return &kgo.Record{Partition: partition, Offset: offset, Key: []byte(key), Value: []byte(`{"key":"k","n":1}`), Headers: []kgo.RecordHeader{
			{Key: "connectd-id", Value: []byte("k-1")}, {Key: "connectd-delivery", Value: []byte("2")},
			{Key: "connectd-epoch", Value: []byte("7")}, {Key: "connectd-possible-duplicate", Value: []byte("true")},
		}}
	}
	for name, tt := range map[string]struct {
		records []*kgo.Record
		says    string
	}{
		"a record":              {[]*kgo.Record{record(0, 0, "k"), record(0, 1, "k")}, ""},
		"a gap":                 {[]*kgo.Record{record(0, 0, "k"), record(0, 2, "k")}, "offset 2 instead of 1"},
		"one of two partitions": {[]*kgo.Record{record(0, 0, "k"), record(1, 0, "k")}, "partitions 1 and 0"},
		"another key":           {[]*kgo.Record{record(0, 0, "j")}, `key "j"`},
	} {
		t.Run(name, func(t *testing.T) {
			k := &kafkaReceiver{home: map[string]int32{}}
			var err error
			for _, r := range tt.records {
				err = k.take(r)
			}
			switch {
			case tt.says == "" && err != nil, tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)):
				t.Errorf("%v, want %q", err, tt.says)
			}
			if one := k.list[:min(1, len(k.list))]; tt.says == "" && (one[0].ID != "k-1" || one[0].Delivery != 2 || one[0].Epoch != 7 || !one[0].Marked || one[0].N != 1) {
				t.Errorf("received %+v", one)
			}
		})
	}
}
