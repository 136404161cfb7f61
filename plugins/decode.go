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
		f, n := nextField(b)
		if n < 0 {
			return fmt.Errorf("reading the request: %w", parseError(n))
		}
		b = b[n:]
		if !f.isBytes(fieldRecords) {
			continue
		}
		m.records = append(m.records, core.Record{})
		var err error
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
		f, n := nextField(b)
		if n < 0 {
			return count
		}
		if f.isBytes(fieldRecords) {
			count++
		}
		b = b[n:]
	}
	return count
}

// parseRecord fills r and appends its headers to the array, which it returns.
func parseRecord(b []byte, r *core.Record, headers []core.Header) ([]core.Header, error) {
	first := len(headers)
	var created int64
	for len(b) > 0 {
		f, n := nextField(b)
		if n < 0 {
			return nil, parseError(n)
		}
		b = b[n:]
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
		f, n := nextField(b)
		if n < 0 {
			return h, parseError(n)
		}
		b = b[n:]
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

// field is one field of a message: varint is its value or the length of bytes; values of other types are skipped.
type field struct {
	num    int32
	typ    protowire.Type
	varint uint64
	bytes  []byte
}

func (f *field) isBytes(num int32) bool { return f.num == num && f.typ == protowire.BytesType }

// badNumber is the one error of nextField that is not protowire's.
const badNumber = -100

func parseError(n int) error {
	if n == badNumber {
		return errors.New("a field number is out of range")
	}
	return protowire.ParseError(n)
}

// truncated is protowire's error for a message that ends too early.
const truncated = -1

// nextField reads the first field of a message and answers its length, or a negative number for parseError. Most
// numbers are below 128 and take one byte; they are read here, without a call.
func nextField(b []byte) (f field, n int) {
	if len(b) < 2 { // no field is shorter
		return f, truncated
	}
	tag, n := uint64(b[0]), 1
	if tag >= 0x80 {
		if tag, n = protowire.ConsumeVarint(b); n < 0 {
			return f, n
		}
	}
	if tag>>3 < uint64(protowire.MinValidNumber) || tag>>3 > uint64(protowire.MaxValidNumber) {
		return f, badNumber
	}
	f.num, f.typ = int32(tag>>3), protowire.Type(tag&7)
	if f.typ != protowire.VarintType && f.typ != protowire.BytesType {
		m := protowire.ConsumeFieldValue(protowire.Number(f.num), f.typ, b[n:])
		if m < 0 {
			return f, m
		}
		return f, n + m
	}
	if n < len(b) && b[n] < 0x80 {
		f.varint = uint64(b[n])
		n++
	} else {
		v, m := protowire.ConsumeVarint(b[n:])
		if m < 0 {
			return f, m
		}
		f.varint, n = v, n+m
	}
	if f.typ == protowire.BytesType {
		if f.varint > uint64(len(b)-n) {
			return f, truncated
		}
		end := n + int(f.varint)
		f.bytes = b[n:end:end] // so that an append by the sink can't reach the next field
		n = end
	}
	return f, n
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
