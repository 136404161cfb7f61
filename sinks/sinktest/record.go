package sinktest

import (
	"bytes"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/connectd/connectd/core"
)

// record returns the next record of the trial, with the key if it is not empty.
func (c *trial) record(key string) core.Record {
	c.seq++
	return core.Record{
		ID:  fmt.Sprintf("sinktest-%06d", c.seq),
		Key: key, Keyed: key != "",
		Route: "orders", Type: "OrderPlaced",
		Payload:   fmt.Appendf(nil, `{"n":%d}`, c.seq),
		Headers:   []core.Header{{Name: "trace", Value: fmt.Sprintf("t-%d", c.seq)}},
		CreatedAt: time.Date(2026, 3, 29, 1, 30, 0, 123_456_000, time.UTC),
		Seq:       c.seq, Deliveries: 1, Epoch: 1,
	}
}

// records returns n records, with the keys in turn; no keys: none has one.
func (c *trial) records(n int, keys ...string) []core.Record {
	batch := make([]core.Record, n)
	for i := range batch {
		key := ""
		if len(keys) > 0 {
			key = keys[i%len(keys)]
		}
		batch[i] = c.record(key)
	}
	return batch
}

// text is a JSON string of exactly n bytes.
func text(n int) []byte {
	payload := bytes.Repeat([]byte{'x'}, n)
	payload[0], payload[n-1] = '"', '"'
	return payload
}

// loan is a batch that is taken back after the call, the way a batch that came over the wire is: everything in it,
// strings too, lies in memory that is used again for something else.
type loan struct {
	records []core.Record
	memory  []byte
}

func lend(batch []core.Record) *loan {
	size := 0
	for i := range batch {
		size += batch[i].Size()
	}
	l := &loan{records: slices.Clone(batch), memory: make([]byte, 0, size)}
	for i := range l.records {
		r := &l.records[i]
		r.ID, r.Key, r.Route, r.Type = l.text(r.ID), l.text(r.Key), l.text(r.Route), l.text(r.Type)
		if r.Payload != nil {
			r.Payload = l.bytes(r.Payload)
		}
		r.Headers = slices.Clone(r.Headers)
		for j, h := range r.Headers {
			r.Headers[j] = core.Header{Name: l.text(h.Name), Value: l.text(h.Value)}
		}
	}
	return l
}

func (l *loan) bytes(b []byte) []byte {
	start := len(l.memory)
	l.memory = append(l.memory, b...) // within its capacity: Size counts all of it
	return l.memory[start:len(l.memory):len(l.memory)]
}

func (l *loan) text(s string) string {
	if s == "" {
		return ""
	}
	b := l.bytes([]byte(s))
	return unsafe.String(&b[0], len(b))
}

// unchanged compares the batch with what was lent.
func (l *loan) unchanged(batch []core.Record) error {
	for i := range batch {
		if err := same(batch[i], l.records[i]); err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
		if batch[i].Seq != l.records[i].Seq {
			return fmt.Errorf("record %d: seq", i)
		}
	}
	return nil
}

// poison is what memory holds that was lent and taken back.
const poison = '#'

func (l *loan) takeBack() {
	for i := range l.memory {
		l.memory[i] = poison
	}
	for i := range l.records {
		clear(l.records[i].Headers)
	}
	clear(l.records)
}

// same says how got differs from want, Seq aside.
func same(want, got core.Record) error {
	switch {
	case got.ID != want.ID:
		return fmt.Errorf("the id is %.80q, not %.80q", got.ID, want.ID)
	case got.Keyed != want.Keyed:
		return fmt.Errorf("the record has a key: %v, want %v", got.Keyed, want.Keyed)
	case got.Key != want.Key:
		return fmt.Errorf("the key is %.80q, not %.80q", got.Key, want.Key)
	case got.Route != want.Route:
		return fmt.Errorf("the route is %.80q, not %.80q", got.Route, want.Route)
	case got.Type != want.Type:
		return fmt.Errorf("the type is %.80q, not %.80q", got.Type, want.Type)
	case !bytes.Equal(got.Payload, want.Payload):
		return fmt.Errorf("the payload is %.80q (%d bytes), not %.80q (%d bytes)", got.Payload, len(got.Payload), want.Payload, len(want.Payload))
	case !slices.Equal(got.Headers, want.Headers):
		return fmt.Errorf("the headers are %.200q, not %.200q", fmt.Sprint(got.Headers), fmt.Sprint(want.Headers))
	case !got.CreatedAt.Equal(want.CreatedAt):
		return fmt.Errorf("the creation time is %v, not %v", got.CreatedAt, want.CreatedAt)
	case got.Deliveries != want.Deliveries:
		return fmt.Errorf("the number of the delivery is %d, not %d", got.Deliveries, want.Deliveries)
	case got.Epoch != want.Epoch:
		return fmt.Errorf("the epoch is %d, not %d", got.Epoch, want.Epoch)
	}
	return nil
}
