package plugins

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/connectd/connectd/core"
)

var errNotUTF8 = errors.New("a string field contains invalid UTF-8")

// parse reads a DeliverRequest as generated code would: unknown fields are skipped and of a repeated scalar the last
// value wins. The records alias b, which nobody may change or reuse after this: a sink that keeps a string against the
// rules then holds memory for longer, but can never read another batch's bytes through it.
func (m *deliverRequest) parse(b []byte) error {
	count := countRecords(b)
	m.records = make([]core.Record, 0, count)
	headers := make([]core.Header, 0, 2*count) // one array for all records
	for len(b) > 0 {
		f, rest, err := nextField(b)
		if err != nil {
			return fmt.Errorf("reading the request: %w", err)
		}
		b = rest
		if !f.isBytes(fieldRecords) {
			continue
		}
		m.records = append(m.records, core.Record{})
		if headers, err = parseRecord(f.bytes, &m.records[len(m.records)-1], headers); err != nil {
			return fmt.Errorf("reading record %d: %w", len(m.records)-1, err)
		}
	}
	return nil
}

// countRecords is the number of records in a request, as far as it can be read.
func countRecords(b []byte) int {
	count := 0
	for len(b) > 0 {
		f, rest, err := nextField(b)
		if err != nil {
			return count
		}
		if f.isBytes(fieldRecords) {
			count++
		}
		b = rest
	}
	return count
}

// parseRecord fills r and appends its headers to the array, which it returns.
func parseRecord(b []byte, r *core.Record, headers []core.Header) ([]core.Header, error) {
	first := len(headers)
	var created int64
	for len(b) > 0 {
		f, rest, err := nextField(b)
		if err != nil {
			return nil, err
		}
		b = rest
		switch f.typ {
		case protowire.BytesType:
			if f.num == fieldHeaders {
				h, err := parseHeader(f.bytes)
				if err != nil {
					return nil, err
				}
				headers = append(headers, h)
				continue
			}
			if err := setBytes(r, f); err != nil {
				return nil, err
			}
		case protowire.VarintType:
			switch f.num {
			case fieldKeyed:
				r.Keyed = f.varint != 0
			case fieldCreated:
				created = int64(f.varint)
			case fieldSeq:
				r.Seq = int64(f.varint)
			case fieldDeliveries:
				r.Deliveries = int(uint32(f.varint))
			case fieldEpoch:
				r.Epoch = int64(f.varint)
			}
		}
	}
	r.CreatedAt = time.UnixMicro(created).UTC()
	if len(headers) > first {
		r.Headers = headers[first:len(headers):len(headers)]
	}
	return headers, nil
}

func setBytes(r *core.Record, f field) (err error) {
	switch f.num {
	case fieldID:
		r.ID = alias(f.bytes)
	case fieldKey:
		r.Key = alias(f.bytes)
	case fieldRoute:
		r.Route, err = text(f.bytes)
	case fieldType:
		r.Type, err = text(f.bytes)
	case fieldPayload:
		r.Payload = f.bytes
	}
	return err
}

func parseHeader(b []byte) (h core.Header, err error) {
	for len(b) > 0 {
		f, rest, err := nextField(b)
		if err != nil {
			return h, err
		}
		b = rest
		switch {
		case f.isBytes(fieldName):
			h.Name, err = text(f.bytes)
		case f.isBytes(fieldValue):
			h.Value, err = text(f.bytes)
		}
		if err != nil {
			return h, err
		}
	}
	return h, nil
}

// field is one field of a message: bytes or varint is set, by its type; values of the other types are skipped.
type field struct {
	num    protowire.Number
	typ    protowire.Type
	varint uint64
	bytes  []byte
}

func (f *field) isBytes(num protowire.Number) bool {
	return f.num == num && f.typ == protowire.BytesType
}

// nextField cuts the first field off a message.
func nextField(b []byte) (f field, rest []byte, err error) {
	var n int
	f.num, f.typ, n = protowire.ConsumeTag(b)
	if n < 0 {
		return f, nil, protowire.ParseError(n)
	}
	if f.num > protowire.MaxValidNumber {
		return f, nil, fmt.Errorf("field number %d is out of range", f.num)
	}
	b = b[n:]
	switch f.typ {
	case protowire.VarintType:
		f.varint, n = protowire.ConsumeVarint(b)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(b)
		f.bytes = f.bytes[:len(f.bytes):len(f.bytes)] // so that an append by the sink can't reach the next field
	default:
		n = protowire.ConsumeFieldValue(f.num, f.typ, b)
	}
	if n < 0 {
		return f, nil, protowire.ParseError(n)
	}
	return f, b[n:], nil
}

// text is a proto string: it must be UTF-8.
func text(b []byte) (string, error) {
	if !utf8.Valid(b) {
		return "", errNotUTF8
	}
	return alias(b), nil
}

// alias is b as a string without a copy.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
