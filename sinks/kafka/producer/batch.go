package producer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
)

// The record batch, magic 2, as https://kafka.apache.org/documentation/#recordbatch has it. Positions are within the
// bytes that are sent, which begin with the length that the produce request puts before a batch.
const (
	atLength        = 4 + 8
	atMagic         = 4 + 16
	atCRC           = 4 + 17
	atAttributes    = 4 + 21
	atLastOffset    = 4 + 23
	atBaseTimestamp = 4 + 27
	atMaxTimestamp  = 4 + 35
	atProducerID    = 4 + 43
	atProducerEpoch = 4 + 51
	atBaseSequence  = 4 + 53
	atCount         = 4 + 57
	atRecords       = 4 + 61
	batchOverhead   = atRecords - 4

	// minBatchBytes leaves room for a batch's overhead and a small message.
	minBatchBytes = 1 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// numbering is what makes a batch known to a broker again: who sent it and its place in what they sent to the partition.
type numbering struct {
	id       int64
	epoch    int16
	sequence int32
}

// unnumbered is what a producer without an id writes.
var unnumbered = numbering{id: -1, epoch: -1, sequence: -1}

// recordBound is at least what a message takes in a batch.
func recordBound(m *Message) int {
	// Six lengths and deltas of five bytes at most, a time of ten, the attributes.
	n := 6*binary.MaxVarintLen32 + binary.MaxVarintLen64 + 1 + len(m.Key) + len(m.Value)
	for i := range m.Headers {
		n += 2*binary.MaxVarintLen32 + len(m.Headers[i].Name) + len(m.Headers[i].Value)
	}
	return n
}

// appendBatch appends the messages as one batch, with the length before it, to the empty buf.
func appendBatch(buf []byte, entries []*entry, n numbering, c kafka.Compression) ([]byte, error) {
	buf = append(buf, make([]byte, atRecords)...)
	base := timestamp(entries[0].message())
	latest := base
	if c == 0 {
		for i, e := range entries {
			m := e.message()
			t := timestamp(m)
			buf, latest = appendRecord(buf, m, i, t-base), max(latest, t)
		}
	} else {
		out := appender(buf)
		zip := c.Codec().NewWriter(&out)
		var record []byte
		for i, e := range entries {
			m := e.message()
			t := timestamp(m)
			record, latest = appendRecord(record[:0], m, i, t-base), max(latest, t)
			if _, err := zip.Write(record); err != nil {
				return nil, errors.Join(fmt.Errorf("compress a batch with %v: %w", c, err), zip.Close())
			}
		}
		if err := zip.Close(); err != nil {
			return nil, fmt.Errorf("compress a batch with %v: %w", c, err)
		}
		buf = out
	}
	be := binary.BigEndian
	be.PutUint32(buf, uint32(len(buf)-4))
	be.PutUint32(buf[atLength:], uint32(len(buf)-atLength-4))
	be.PutUint32(buf[atLength+4:], ^uint32(0)) // the leader's epoch is the broker's to fill in
	buf[atMagic] = 2
	be.PutUint16(buf[atAttributes:], uint16(c))
	be.PutUint32(buf[atLastOffset:], uint32(len(entries)-1))
	be.PutUint64(buf[atBaseTimestamp:], uint64(base))
	be.PutUint64(buf[atMaxTimestamp:], uint64(latest))
	be.PutUint32(buf[atCount:], uint32(len(entries)))
	renumber(buf, n)
	return buf, nil
}

// renumber changes a batch's numbering and nothing else.
func renumber(buf []byte, n numbering) {
	be := binary.BigEndian
	be.PutUint64(buf[atProducerID:], uint64(n.id))
	be.PutUint16(buf[atProducerEpoch:], uint16(n.epoch))
	be.PutUint32(buf[atBaseSequence:], uint32(n.sequence))
	be.PutUint32(buf[atCRC:], crc32.Checksum(buf[atAttributes:], castagnoli))
}

func appendRecord(buf []byte, m *Message, offset int, delta int64) []byte {
	size := 1 + varintLen(delta) + varintLen(int64(offset)) + bytesLen(m.Key) + bytesLen(m.Value) + varintLen(int64(len(m.Headers)))
	for i := range m.Headers {
		h := &m.Headers[i]
		size += varintLen(int64(len(h.Name))) + len(h.Name) + bytesLen(h.Value)
	}
	buf = binary.AppendVarint(buf, int64(size))
	buf = append(buf, 0) // attributes: none are in use
	buf = binary.AppendVarint(buf, delta)
	buf = binary.AppendVarint(buf, int64(offset))
	buf = appendBytes(buf, m.Key)
	buf = appendBytes(buf, m.Value)
	buf = binary.AppendVarint(buf, int64(len(m.Headers)))
	for i := range m.Headers {
		h := &m.Headers[i]
		buf = binary.AppendVarint(buf, int64(len(h.Name)))
		buf = append(buf, h.Name...)
		buf = appendBytes(buf, h.Value)
	}
	return buf
}

// appendBytes writes nil as null, which a reader can tell from nothing.
func appendBytes(buf, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(buf, -1)
	}
	return append(binary.AppendVarint(buf, int64(len(b))), b...)
}

func bytesLen(b []byte) int {
	if b == nil {
		return 1
	}
	return varintLen(int64(len(b))) + len(b)
}

func varintLen(v int64) int {
	n := 1
	for u := uint64(v<<1 ^ v>>63); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}

func timestamp(m *Message) int64 {
	if m.Time.IsZero() {
		return time.Now().UnixMilli()
	}
	return m.Time.UnixMilli()
}

type appender []byte

var _ io.Writer = (*appender)(nil)

func (a *appender) Write(b []byte) (int, error) {
	*a = append(*a, b...)
	return len(b), nil
}
