package plugins

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/plugins/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// funcSink is a sink whose Deliver is a function.
type funcSink struct {
	deliver func(ctx context.Context, batch []core.Record) ([]core.Outcome, error)
	opened  error
	health  error
}

func (s *funcSink) Describe(context.Context) (core.Description, error) {
	return core.Description{Name: "func", Version: "0.1", Schema: []byte(`{"type":"object"}`),
		Limits:  core.Limits{MaxRecords: 10, MaxBytes: 1 << 20, MaxRecordBytes: 1 << 10, MaxInFlight: 2},
		Prefers: core.Preferences{MaxRecords: 3, InFlight: 4}}, nil
}
func (s *funcSink) Configure(_ context.Context, settings []byte) ([]core.Diagnostic, error) {
	if !bytes.Equal(settings, []byte(`{}`)) {
		return []core.Diagnostic{{Pointer: "/a~1b/0", Message: "is wrong\n"}, {Message: "is old", Warning: true}}, nil
	}
	return nil, nil
}
func (s *funcSink) Open(context.Context) error   { return s.opened }
func (s *funcSink) Health(context.Context) error { return s.health }
func (s *funcSink) Close(context.Context) error  { return nil }
func (s *funcSink) Deliver(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
	return s.deliver(ctx, batch)
}

// connect serves with register and dials with the options, in memory.
func connect(t *testing.T, register func(*grpc.Server), server []grpc.ServerOption, dial []grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	s := grpc.NewServer(server...)
	register(s)
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient("passthrough:memory", append(dial,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// serve puts a sink behind the SDK's server.
func serve(t *testing.T, sink core.Sink, dial []grpc.DialOption) *grpc.ClientConn {
	options := serverOptions()
	return connect(t, func(s *grpc.Server) {
		if err := (&Plugin{Sink: sink}).GRPCServer(nil, s); err != nil {
			t.Fatal(err)
		}
	}, options, dial)
}

func timeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestAnswersComeBeforeTheDeadline: a sink that uses all its time, and says then what it knows, is heard.
func TestAnswersComeBeforeTheDeadline(t *testing.T) {
	sink := &funcSink{deliver: func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
		<-ctx.Done()
		return []core.Outcome{{Kind: core.Delivered}, {Kind: core.Retryable, Unknown: true, Code: "timeout"}}, nil
	}}
	client := NewClient(serve(t, sink, DialOptions()))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	got, err := client.Deliver(ctx, randomRecords(1)[:2])
	if err != nil || got[0].Kind != core.Delivered || got[1].Code != "timeout" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestABatchCrossesTheBoundary: every field of every record, and every kind of outcome, arrives as it was.
func TestABatchCrossesTheBoundary(t *testing.T) {
	answer := []core.Outcome{
		{Kind: core.Delivered},
		{Kind: core.Retryable, Scope: core.ScopeRecord, Unknown: true, RetryAfter: 1500 * time.Millisecond, Code: "nack", Message: "refused"},
		{Kind: core.Permanent, Scope: core.ScopeKey, Code: "bad", Message: "400"},
		{Kind: core.Throttled, Scope: core.ScopeSink, RetryAfter: time.Minute},
		{Kind: core.NotAttempted},
		{},
		{Kind: core.Delivered, Completed: true},
		{Kind: core.Delivered},
		{Kind: core.Delivered, Completed: true},
	}
	var batch []core.Record
	for seed := uint64(0); len(batch) < len(answer); seed++ {
		batch = append(batch, randomRecords(seed)...)
	}
	batch = batch[:len(answer)]
	sink := &funcSink{deliver: func(_ context.Context, got []core.Record) ([]core.Outcome, error) {
		if !same(got, batch) {
			t.Errorf("got  %+v\nsent %+v", got, batch)
		}
		return answer, nil
	}}
	got, err := NewClient(serve(t, sink, DialOptions())).Deliver(timeout(t), batch)
	if err != nil {
		t.Fatal(err)
	}
	for i := range answer {
		if got[i] != answer[i] {
			t.Errorf("outcome %d: %+v, answered %+v", i, got[i], answer[i])
		}
	}
}

// TestTheGoServerServesGeneratedClients, as a host in another language or of another version would be one.
func TestTheGoServerServesGeneratedClients(t *testing.T) {
	var got []core.Record
	sink := &funcSink{deliver: func(_ context.Context, batch []core.Record) ([]core.Outcome, error) {
		got = batch
		return make([]core.Outcome, len(batch)), nil
	}}
	batch := randomRecords(4)
	resp, err := proto.NewSinkClient(serve(t, sink, nil)).Deliver(timeout(t), generated(batch))
	if err != nil || len(resp.GetExceptions()) != len(batch) || !same(got, batch) {
		t.Errorf("%v %v", resp, err)
	}
}

// foreign is a plugin that uses the generated code alone, as one in another language does.
type foreign struct {
	proto.UnimplementedSinkServer
	got  *proto.DeliverRequest
	resp *proto.DeliverResponse
	err  error
}

func (f *foreign) Deliver(_ context.Context, req *proto.DeliverRequest) (*proto.DeliverResponse, error) {
	f.got = req
	return f.resp, f.err
}

func (f *foreign) client(t *testing.T) *Client {
	return NewClient(connect(t, func(s *grpc.Server) { proto.RegisterSinkServer(s, f) }, nil, DialOptions()))
}

func TestTheHostSpeaksToGeneratedServers(t *testing.T) {
	batch := randomRecords(4)
	f := &foreign{resp: &proto.DeliverResponse{Delivered: uint32(len(batch))}}
	outcomes, err := f.client(t).Deliver(timeout(t), batch)
	if err != nil || len(outcomes) != len(batch) || outcomes[0].Kind != core.Delivered || !same(records(f.got), batch) {
		t.Errorf("%v %v", outcomes, err)
	}
}

// TestAnAnswerMustAddUp: anything else leaves the whole batch unknown, for at worst a record would count as delivered
// that was not.
func TestAnAnswerMustAddUp(t *testing.T) {
	batch := make([]core.Record, 3)
	exception := func(i uint32) *proto.Exception {
		return &proto.Exception{Index: i, Outcome: proto.Outcome_OUTCOME_RETRYABLE}
	}
	for name, resp := range map[string]*proto.DeliverResponse{
		"empty":             {},
		"too few":           {Delivered: 2},
		"too many":          {Delivered: 4},
		"overflow":          {Delivered: 1<<32 - 1, Exceptions: []*proto.Exception{exception(0), exception(1), exception(2), exception(0)}},
		"exception uncount": {Delivered: 3, Exceptions: []*proto.Exception{exception(0)}},
		"out of range":      {Delivered: 2, Exceptions: []*proto.Exception{exception(3)}},
		"twice":             {Delivered: 1, Exceptions: []*proto.Exception{exception(1), exception(1)}},
		"twice unspecified": {Delivered: 1, Exceptions: []*proto.Exception{{Index: 1}, {Index: 1}}},
		"none so completed": {Delivered: 3, Completed: []uint32{3}},
		"failed, completed": {Delivered: 2, Exceptions: []*proto.Exception{exception(1)}, Completed: []uint32{0, 1}},
		"unknown completed": {Delivered: 2, Exceptions: []*proto.Exception{{Index: 1}}, Completed: []uint32{1}},
		"completed twice":   {Delivered: 3, Completed: []uint32{1, 1}},
	} {
		outcomes, err := (&foreign{resp: resp}).client(t).Deliver(timeout(t), batch)
		if err == nil || outcomes != nil || errors.Is(err, core.ErrNotSent) || errors.Is(err, core.ErrSinkDied) {
			t.Errorf("%s: %v %v", name, outcomes, err)
		}
	}
	later := &proto.DeliverResponse{Delivered: 2, Exceptions: []*proto.Exception{{Index: 1, Outcome: 77, Scope: 88, RetryAfterMs: 1 << 63}}}
	outcomes, err := (&foreign{resp: later}).client(t).Deliver(timeout(t), batch)
	if err != nil || outcomes[1].Kind != core.Unspecified || outcomes[1].Scope != core.ScopeDefault || outcomes[1].RetryAfter != maxRetryAfter {
		t.Errorf("values of a later version: %+v %v", outcomes, err)
	}
}

// TestOnlyASinkThatSaysSoCompletes: one that was built before there was the field does not.
func TestOnlyASinkThatSaysSoCompletes(t *testing.T) {
	batch := make([]core.Record, 2)
	for _, completed := range [][]uint32{nil, {1}, {1, 0}} {
		f := &foreign{resp: &proto.DeliverResponse{Delivered: 2, Completed: completed}}
		outcomes, err := f.client(t).Deliver(timeout(t), batch)
		if err != nil {
			t.Fatal(err)
		}
		for i, o := range outcomes {
			if o.Completed != slices.Contains(completed, uint32(i)) {
				t.Errorf("completed %v: outcome %d is %+v", completed, i, o)
			}
		}
	}
	resp, err := toResponse(2, []core.Outcome{{Kind: core.Retryable, Completed: true}, {Completed: true}})
	if err != nil || len(resp.GetCompleted()) != 0 {
		t.Errorf("%v, %v", resp, err)
	}
}

// An error that is not known by its wrapping: https://github.com/JasperFx/wolverine/issues/3766
func TestErrorsKeepTheirMeaning(t *testing.T) {
	for _, c := range []struct {
		err  error
		want error
		not  []error
	}{
		{errors.New("boom"), nil, []error{core.ErrNotSent, core.ErrSinkDied, context.Canceled, context.DeadlineExceeded}},
		{core.ErrNotSent, core.ErrNotSent, []error{core.ErrSinkDied}},
		{context.DeadlineExceeded, context.DeadlineExceeded, []error{core.ErrNotSent}},
		{context.Canceled, context.Canceled, []error{core.ErrNotSent}},
		{fmt.Errorf("broker 7: %w", fmt.Errorf("no connection: %w", core.ErrNotSent)), core.ErrNotSent, []error{core.ErrSinkDied}},
		{fmt.Errorf("broker 7: %w", context.DeadlineExceeded), context.DeadlineExceeded, []error{core.ErrNotSent}},
		// Not even a plugin that says so can make us believe that it died or was never asked.
		{core.ErrSinkDied, nil, []error{core.ErrNotSent, core.ErrSinkDied}},
	} {
		sink := &funcSink{deliver: func(context.Context, []core.Record) ([]core.Outcome, error) { return nil, c.err }}
		_, err := NewClient(serve(t, sink, DialOptions())).Deliver(timeout(t), make([]core.Record, 1))
		if err == nil || !strings.Contains(err.Error(), c.err.Error()) || (c.want != nil && !errors.Is(err, c.want)) {
			t.Errorf("%v became %v", c.err, err)
		}
		for _, not := range c.not {
			if errors.Is(err, not) {
				t.Errorf("%v became %v, which is %v", c.err, err, not)
			}
		}
	}
	f := &foreign{err: status.Error(codes.ResourceExhausted, "grpc: received message larger than max")}
	if _, err := f.client(t).Deliver(timeout(t), make([]core.Record, 1)); err == nil || errors.Is(err, core.ErrNotSent) {
		t.Errorf("%v", err)
	}
}

// TestWhatCannotBeSentIsNotTried: one record that the wire cannot carry must neither fail the batch again and again nor
// be overtaken by a later record of its key.
func TestWhatCannotBeSentIsNotTried(t *testing.T) {
	var got int
	sink := &funcSink{deliver: func(_ context.Context, batch []core.Record) ([]core.Outcome, error) {
		got = len(batch)
		out := make([]core.Outcome, len(batch))
		for i := range out {
			out[i].Kind = core.Delivered
		}
		return out, nil
	}}
	c := NewClient(serve(t, sink, DialOptions()))
	good, bad := core.Record{ID: "a"}, core.Record{ID: "b", Headers: []core.Header{{Name: "x", Value: "\xff"}}}
	huge := core.Record{ID: "c", Payload: make([]byte, MaxMessage)}
	for name, c2 := range map[string]struct {
		batch []core.Record
		sent  int
		want  []core.OutcomeKind
	}{
		"no UTF-8 behind others": {[]core.Record{good, good, bad, good}, 2,
			[]core.OutcomeKind{core.Delivered, core.Delivered, core.NotAttempted, core.NotAttempted}},
		"no UTF-8 in front":    {[]core.Record{bad, good}, 0, []core.OutcomeKind{core.Permanent, core.NotAttempted}},
		"too large behind":     {[]core.Record{good, huge, good}, 1, []core.OutcomeKind{core.Delivered, core.NotAttempted, core.NotAttempted}},
		"too large in front":   {[]core.Record{huge, good}, 0, []core.OutcomeKind{core.Permanent, core.NotAttempted}},
		"nothing in the batch": {nil, 0, nil},
	} {
		got = 0
		outcomes, err := c.Deliver(timeout(t), c2.batch)
		if err != nil || got != c2.sent || len(outcomes) != len(c2.want) {
			t.Errorf("%s: sent %d, %v %v", name, got, outcomes, err)
			continue
		}
		for i := range outcomes {
			if outcomes[i].Kind != c2.want[i] {
				t.Errorf("%s: record %d is %v", name, i, outcomes[i].Kind)
			}
		}
	}
}

func TestTheRestOfTheInterfaceCrossesToo(t *testing.T) {
	c := NewClient(serve(t, &funcSink{opened: errors.New("no broker")}, DialOptions()))
	d, err := c.Describe(timeout(t))
	want, _ := (&funcSink{}).Describe(timeout(t))
	if err != nil || d.Name != want.Name || d.Version != want.Version || string(d.Schema) != string(want.Schema) || d.Limits != want.Limits || d.Prefers != want.Prefers {
		t.Errorf("%+v %v", d, err)
	}
	if diagnostics, err := c.Configure(timeout(t), []byte(`{}`)); err != nil || len(diagnostics) != 0 {
		t.Errorf("%v %v", diagnostics, err)
	}
	diagnostics, err := c.Check(timeout(t), []byte(`{"x":1}`))
	if err != nil || len(diagnostics) != 2 || diagnostics[0] != (core.Diagnostic{Pointer: "/a~1b/0", Message: `is wrong\n`}) || !diagnostics[1].Warning {
		t.Errorf("%+v %v", diagnostics, err)
	}
	if err := c.Open(timeout(t)); err == nil || err.Error() != "open: no broker" {
		t.Errorf("%v", err)
	}
	if err := errors.Join(c.Health(timeout(t)), c.Close(timeout(t))); err != nil {
		t.Error(err)
	}
}

// TestASinkWithoutHealthIsNotHealthy: a method that is left out says nothing about the destination, while Open and Close
// may be left out because there is nothing to do.
// Plugins built before a method was there: https://github.com/ConduitIO/conduit/issues/1999
func TestASinkWithoutHealthIsNotHealthy(t *testing.T) {
	bare := NewClient(connect(t, func(s *grpc.Server) {
		proto.RegisterSinkServer(s, proto.UnimplementedSinkServer{})
	}, nil, DialOptions()))
	if err := errors.Join(bare.Open(timeout(t)), bare.Close(timeout(t))); err != nil {
		t.Error(err)
	}
	says := NewClient(serve(t, &funcSink{health: fmt.Errorf("a log: %w", core.ErrNoHealth)}, DialOptions()))
	for _, c := range []*Client{bare, says} {
		if err := c.Health(timeout(t)); !errors.Is(err, core.ErrNoHealth) {
			t.Errorf("Health: %v", err)
		}
	}
}

// TestADestinationInUseIsKnownAsSuch: the word is for Open alone.
func TestADestinationInUseIsKnownAsSuch(t *testing.T) {
	taken := fmt.Errorf("lock out.jsonl: %w (process 4711)", core.ErrInUse)
	c := NewClient(serve(t, &funcSink{opened: taken, health: taken}, DialOptions()))
	if err := c.Open(timeout(t)); !errors.Is(err, core.ErrInUse) || !strings.Contains(err.Error(), "process 4711") {
		t.Errorf("Open: %v", err)
	}
	if err := c.Health(timeout(t)); err == nil || errors.Is(err, core.ErrInUse) {
		t.Errorf("Health: %v", err)
	}
}

func TestByHand(t *testing.T) {
	var out, words bytes.Buffer
	if code := byHand(&funcSink{}, nil, &out, &words); code != 2 || out.Len() != 0 {
		t.Errorf("code %d, stdout %q", code, &out)
	}
	for _, w := range []string{"func 0.1 is a sink for connectd", "plugin_dir as connectd-sink-func", `"plugin: func"`, "--describe"} {
		if !strings.Contains(words.String(), w) {
			t.Errorf("no %q in %s", w, &words)
		}
	}
	if code := byHand(&funcSink{}, []string{"--describe"}, &out, &words); code != 0 || !strings.Contains(out.String(), `"name": "func"`) ||
		!strings.Contains(out.String(), `"type": "object"`) {
		t.Errorf("code %d: %s", code, &out)
	}
}

func TestPrintable(t *testing.T) {
	for _, c := range []struct {
		in   string
		max  int
		want string
	}{
		{"plain", 10, "plain"},
		{"größe", 10, "größe"},
		{"a\x1b[31mb\nc\x00", 100, `a\x1b[31mb\nc\x00`},
		{"bad \xff\xfe", 100, `bad \xff\xfe`},
		{"\u202egnp.exe", 100, `\u202egnp.exe`},
		{"1234567890", 9, "123456…"},
		{"ääääää", 9, "äää…"},
		{strings.Repeat("\n", 100), 9, `\n\n\n…`},
	} {
		if got := Printable(c.in, c.max); got != c.want || len(got) > c.max {
			t.Errorf("Printable(%q, %d) is %q (%d bytes), expected %q", c.in, c.max, got, len(got), c.want)
		}
	}
}
