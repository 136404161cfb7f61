package plugins

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/connectd/connectd/core"
)

// The field numbers of sink.proto that the hand-written side of the codec uses.
const (
	fieldRecords = 1 // DeliverRequest

	fieldID         = 1 // Record
	fieldKey        = 2
	fieldKeyed      = 3
	fieldRoute      = 4
	fieldType       = 5
	fieldPayload    = 6
	fieldHeaders    = 7
	fieldCreated    = 8
	fieldSeq        = 9
	fieldDeliveries = 10
	fieldEpoch      = 11

	fieldName  = 1 // Header
	fieldValue = 2
)

// tagSize is the size of a field's tag: all numbers above are below 16.
const tagSize = 1

// deliverRequest is proto.DeliverRequest without an object for each record. The host makes it from records and their
// wire sizes; the plugin's side parses into records that alias the received message.
type deliverRequest struct {
	records []core.Record
	sizes   []int // of each record's message, without tag and length; set by the sender
}

// size is the request's length on the wire.
func (m *deliverRequest) size() int {
	n := 0
	for _, s := range m.sizes {
		n += tagSize + protowire.SizeBytes(s)
	}
	return n
}

// append writes the request to b.
func (m *deliverRequest) append(b []byte) []byte {
	for i := range m.records {
		b = appendTag(b, fieldRecords, protowire.BytesType)
		b = appendLength(b, m.sizes[i])
		b = appendRecord(b, &m.records[i])
	}
	return b
}

// recordSize is the length of appendRecord's output. Fields that are zero are left out, as protobuf does, but for a payload
// that is empty and not nil.
func recordSize(r *core.Record) int {
	n := sizeText(r.ID) + sizeText(r.Key) + sizeText(r.Route) + sizeText(r.Type)
	if r.Payload != nil {
		n += tagSize + protowire.SizeBytes(len(r.Payload))
	}
	for i := range r.Headers {
		n += tagSize + protowire.SizeBytes(headerSize(&r.Headers[i]))
	}
	if r.Keyed {
		n += tagSize + 1
	}
	return n + sizeInt(r.CreatedAt.UnixMicro()) + sizeInt(r.Seq) + sizeInt(int64(uint32(r.Deliveries))) + sizeInt(r.Epoch)
}

func appendRecord(b []byte, r *core.Record) []byte {
	b = appendText(b, fieldID, r.ID)
	b = appendText(b, fieldKey, r.Key)
	if r.Keyed {
		b = appendTag(b, fieldKeyed, protowire.VarintType)
		b = append(b, 1)
	}
	b = appendText(b, fieldRoute, r.Route)
	b = appendText(b, fieldType, r.Type)
	if r.Payload != nil {
		b = appendTag(b, fieldPayload, protowire.BytesType)
		b = append(appendLength(b, len(r.Payload)), r.Payload...)
	}
	for i := range r.Headers {
		h := &r.Headers[i]
		b = appendTag(b, fieldHeaders, protowire.BytesType)
		b = appendLength(b, headerSize(h))
		b = appendText(b, fieldName, h.Name)
		b = appendText(b, fieldValue, h.Value)
	}
	b = appendInt(b, fieldCreated, r.CreatedAt.UnixMicro())
	b = appendInt(b, fieldSeq, r.Seq)
	b = appendInt(b, fieldDeliveries, int64(uint32(r.Deliveries)))
	return appendInt(b, fieldEpoch, r.Epoch)
}

// appendTag writes a tag of one byte: see tagSize.
func appendTag(b []byte, num protowire.Number, typ protowire.Type) []byte {
	return append(b, byte(protowire.EncodeTag(num, typ)))
}

// appendLength writes a length; most take one byte and are written without a call.
func appendLength(b []byte, n int) []byte {
	if n < 0x80 {
		return append(b, byte(n))
	}
	return protowire.AppendVarint(b, uint64(n))
}

func headerSize(h *core.Header) int { return sizeText(h.Name) + sizeText(h.Value) }

func sizeText(s string) int {
	if s == "" {
		return 0
	}
	return tagSize + protowire.SizeBytes(len(s))
}

func appendText(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	b = appendTag(b, num, protowire.BytesType)
	return append(appendLength(b, len(s)), s...)
}

func sizeInt(v int64) int {
	if v == 0 {
		return 0
	}
	return tagSize + protowire.SizeVarint(uint64(v))
}

func appendInt(b []byte, num protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	b = appendTag(b, num, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(v))
}
