package plugins

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	gproto "google.golang.org/protobuf/proto"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/plugins/proto"
)

// generated is what the generated code makes of records.
func generated(records []core.Record) *proto.DeliverRequest {
	req := &proto.DeliverRequest{}
	for _, r := range records {
		m := &proto.Record{Id: []byte(r.ID), Key: []byte(r.Key), Keyed: r.Keyed, Route: r.Route, Type: r.Type, Payload: r.Payload,
			CreatedUs: r.CreatedAt.UnixMicro(), Seq: r.Seq, Deliveries: uint32(r.Deliveries), Epoch: r.Epoch}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, &proto.Header{Name: h.Name, Value: h.Value})
		}
		req.Records = append(req.Records, m)
	}
	return req
}

// records is the other direction.
func records(req *proto.DeliverRequest) []core.Record {
	out := make([]core.Record, 0, len(req.GetRecords()))
	for _, m := range req.GetRecords() {
		r := core.Record{ID: string(m.GetId()), Key: string(m.GetKey()), Keyed: m.GetKeyed(), Route: m.GetRoute(), Type: m.GetType(),
			Payload: m.GetPayload(), CreatedAt: time.UnixMicro(m.GetCreatedUs()).UTC(), Seq: m.GetSeq(),
			Deliveries: int(m.GetDeliveries()), Epoch: m.GetEpoch()}
		for _, h := range m.GetHeaders() {
			r.Headers = append(r.Headers, core.Header{Name: h.GetName(), Value: h.GetValue()})
		}
		out = append(out, r)
	}
	return out
}

func encode(t testing.TB, batch []core.Record) []byte {
	t.Helper()
	req, refusal := fit(batch)
	if len(req.records) != len(batch) {
		t.Fatalf("refused: %+v", refusal)
	}
	data, err := newCodec().Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Free()
	return data.Materialize()
}

func decode(b []byte) ([]core.Record, error) {
	req := new(deliverRequest)
	err := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, req)
	return req.records, err
}

// same compares records; a payload that is nil is not the same as an empty one.
func same(a, b []core.Record) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i], b[i]
		if !bytes.Equal(x.Payload, y.Payload) || (x.Payload == nil) != (y.Payload == nil) {
			return false
		}
		x.Payload, y.Payload = nil, nil
		if !reflect.DeepEqual(x, y) {
			return false
		}
	}
	return true
}

// randomRecords makes records with fields of every kind present and absent.
func randomRecords(seed uint64) []core.Record {
	r := rand.New(rand.NewPCG(seed, 1))
	word := func(max int) string {
		if r.IntN(4) == 0 {
			return ""
		}
		return strings.Repeat("ä€x", r.IntN(max)+1)
	}
	number := func() int64 {
		if r.IntN(4) == 0 {
			return 0
		}
		return int64(r.Uint64() >> r.IntN(64))
	}
	out := make([]core.Record, r.IntN(6))
	for i := range out {
		out[i] = core.Record{ID: word(20) + "\xff", Key: word(3), Keyed: r.IntN(2) == 0, Route: word(5), Type: word(50),
			CreatedAt: time.UnixMicro(number() % (1 << 55)).UTC(), Seq: number(), Deliveries: int(uint32(number())), Epoch: -number()}
		if r.IntN(3) > 0 {
			out[i].Payload = bytes.Repeat([]byte{0, 0xfe}, r.IntN(300))
		}
		for range r.IntN(4) {
			out[i].Headers = append(out[i].Headers, core.Header{Name: word(4), Value: word(90)})
		}
	}
	return out
}

// FuzzEncode: what is written by hand is, byte for byte, what generated code writes.
func FuzzEncode(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		batch := randomRecords(seed)
		got := encode(t, batch)
		want, err := gproto.MarshalOptions{Deterministic: true}.Marshal(generated(batch))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("by hand   %x\ngenerated %x", got, want)
		}
		again, err := decode(got)
		if err != nil || !same(again, batch) {
			t.Errorf("read back %+v (%v), wrote %+v", again, err, batch)
		}
	})
}

// FuzzDecode: any bytes are accepted or refused, and understood, as generated code does it.
func FuzzDecode(f *testing.F) {
	for seed := range uint64(50) {
		b := encode(f, randomRecords(seed))
		f.Add(b)
		f.Add(withUnknownFields(b))
		if len(b) > 3 {
			f.Add(b[:len(b)-1])
			f.Add(append(bytes.Clone(b[:len(b)/2]), b[len(b)/2+1:]...))
		}
	}
	f.Add([]byte{0x0a, 0x02, 0x22, 0x00})             // an empty string
	f.Add([]byte{0x0a, 0x03, 0x22, 0x01, 0xff})       // a string that is no UTF-8
	f.Add([]byte{0x0a, 0x04, 0x50, 0xff, 0xff, 0x7f}) // a long varint
	f.Add([]byte{0x0b, 0x0c})                         // a group
	f.Add([]byte{0x0a, 0x02, 0x08, 0x01})             // a known field of another type
	f.Fuzz(func(t *testing.T, b []byte) {
		want := &proto.DeliverRequest{}
		wantErr := gproto.Unmarshal(b, want)
		got, err := decode(bytes.Clone(b))
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%x: by hand %v, generated %v", b, err, wantErr)
		}
		if err == nil && !same(got, records(want)) {
			t.Errorf("%x\nby hand   %+v\ngenerated %+v", b, got, records(want))
		}
	})
}

// withUnknownFields adds fields that a later version might have, to the request, its records and their headers.
func withUnknownFields(b []byte) []byte {
	unknown := protowire.AppendTag(nil, 100, protowire.VarintType)
	unknown = protowire.AppendVarint(unknown, 7)
	unknown = protowire.AppendTag(unknown, 101, protowire.BytesType)
	unknown = protowire.AppendString(unknown, "later")
	unknown = protowire.AppendTag(unknown, 102, protowire.Fixed64Type)
	unknown = protowire.AppendFixed64(unknown, 9)
	out := bytes.Clone(unknown)
	for len(b) > 0 {
		f, n := nextField(b)
		if n < 0 {
			return append(out, b...)
		}
		out = protowire.AppendTag(out, protowire.Number(f.num), f.typ)
		out = protowire.AppendBytes(out, append(bytes.Clone(unknown), f.bytes...))
		b = b[n:]
	}
	return append(out, unknown...)
}

func TestUnknownFieldsAreSkipped(t *testing.T) {
	batch := randomRecords(4)
	got, err := decode(withUnknownFields(encode(t, batch)))
	if err != nil || len(batch) == 0 || !same(got, batch) {
		t.Errorf("%+v (%v), expected %+v", got, err, batch)
	}
}

// TestASinkCannotReachTheNextField: payloads and headers share one array with their neighbours.
func TestASinkCannotReachTheNextField(t *testing.T) {
	batch := []core.Record{
		{ID: "a", Payload: []byte("one"), Headers: []core.Header{{Name: "h", Value: "1"}}},
		{ID: "b", Payload: []byte("two"), Headers: []core.Header{{Name: "h", Value: "2"}}},
	}
	got, err := decode(encode(t, batch))
	if err != nil {
		t.Fatal(err)
	}
	_ = append(got[0].Payload, "overwritten!"...) // few enough to fit before the end of the message
	_ = append(got[0].Headers, core.Header{Name: "x", Value: "y"})
	if !same(got, batch) {
		t.Errorf("%+v", got)
	}
}

func TestTheZeroTimeSurvives(t *testing.T) {
	got, err := decode(encode(t, []core.Record{{ID: "a"}}))
	if err != nil || !got[0].CreatedAt.IsZero() {
		t.Errorf("%v %v", got, err)
	}
}

// TestAllocationBudget: what a batch costs must not grow with its records.
func TestAllocationBudget(t *testing.T) {
	batch := make([]core.Record, 500)
	for i := range batch {
		batch[i] = core.Record{ID: "id", Key: "key", Payload: make([]byte, 200), Headers: make([]core.Header, 2)}
	}
	codec, wire := newCodec(), mem.BufferSlice{mem.SliceBuffer(encode(t, batch))}
	encoding := testing.AllocsPerRun(20, func() {
		req, _ := fit(batch)
		data, err := codec.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		data.Free()
	})
	decoding := testing.AllocsPerRun(20, func() {
		if err := codec.Unmarshal(wire, new(deliverRequest)); err != nil {
			t.Fatal(err)
		}
	})
	if encoding > 10 || decoding > 10 {
		t.Errorf("%v allocations to encode 500 records, %v to decode them", encoding, decoding)
	}
}

func BenchmarkCodec(b *testing.B) {
	batch := make([]core.Record, 500)
	for i := range batch {
		batch[i] = core.Record{ID: fmt.Sprintf("0198c9a0-7e1b-7000-8000-%012d", i), Key: fmt.Sprintf("customer-%05d", i), Keyed: true,
			Route: "orders", Type: "OrderPlaced", Payload: bytes.Repeat([]byte{'x'}, 200),
			Headers: []core.Header{{Name: "traceparent", Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
				{Name: "content-type", Value: "application/json"}},
			CreatedAt: time.UnixMicro(1764000000000000).UTC(), Seq: int64(i) + 1_000_000, Deliveries: 1, Epoch: 7}
	}
	wire := mem.BufferSlice{mem.SliceBuffer(encode(b, batch))}
	codec := newCodec()
	measure := func(name string, work func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			begin := cpuTime(b)
			for b.Loop() {
				if err := work(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-begin)/float64(b.N*len(batch)), "cpu-ns/row")
		})
	}
	measure("encode", func() error {
		req, _ := fit(batch)
		data, err := codec.Marshal(req)
		data.Free()
		return err
	})
	measure("decode", func() error { return codec.Unmarshal(wire, new(deliverRequest)) })
	measure("generated-encode", func() error {
		data, err := codec.Marshal(generated(batch))
		data.Free()
		return err
	})
	measure("generated-decode", func() error { return codec.Unmarshal(wire, new(proto.DeliverRequest)) })
}

// cpuTime is the processor time this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
