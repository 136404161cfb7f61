package plugins

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/plugins/proto"
)

// What a sink may say of itself, in bytes.
const (
	maxName        = 128
	maxSchema      = 1 << 20
	maxPointer     = 1024
	maxDiagnostics = 1000
)

// Client is a core.Sink on the other side of a gRPC connection: the host's side. It adds no state and is safe for
// concurrent use. Its errors say whether anything can have happened: see Deliver.
type Client struct {
	conn grpc.ClientConnInterface
	rpc  proto.SinkClient
}

var _ core.Sink = (*Client)(nil)

// NewClient returns a client over conn, which must have been dialled with DialOptions. Closing conn is the caller's.
func NewClient(conn grpc.ClientConnInterface) *Client {
	return &Client{conn: conn, rpc: proto.NewSinkClient(conn)}
}

// Describe asks the sink what it is. The texts are made printable and bounded.
func (c *Client) Describe(ctx context.Context) (core.Description, error) {
	d, err := c.rpc.Describe(ctx, &proto.DescribeRequest{})
	if err != nil {
		return core.Description{}, fromStatus("describe", err)
	}
	if len(d.GetSettingsSchema()) > maxSchema {
		return core.Description{}, fmt.Errorf("describe: the settings schema has %d bytes, at most %d are allowed",
			len(d.GetSettingsSchema()), maxSchema)
	}
	l := d.GetLimits()
	const most = 1 << 30 // larger limits mean none
	return core.Description{
		Name:    Printable(d.GetName(), maxName),
		Version: Printable(d.GetVersion(), maxName),
		Schema:  d.GetSettingsSchema(),
		Limits: core.Limits{
			MaxRecords:     int(min(l.GetMaxRecords(), most)),
			MaxBytes:       int64(min(l.GetMaxBytes(), most)),
			MaxRecordBytes: int64(min(l.GetMaxRecordBytes(), most)),
			MaxInFlight:    int(min(l.GetMaxInFlight(), most)),
		},
		Prefers: core.Preferences{
			MaxRecords: int(min(d.GetPrefers().GetMaxRecords(), most)),
			InFlight:   int(min(d.GetPrefers().GetInFlight(), most)),
		},
	}, nil
}

// Configure hands the settings over.
func (c *Client) Configure(ctx context.Context, settings []byte) ([]core.Diagnostic, error) {
	return c.configure(ctx, &proto.ConfigureRequest{Settings: settings})
}

// Check is Configure for a process that will be stopped after it.
func (c *Client) Check(ctx context.Context, settings []byte) ([]core.Diagnostic, error) {
	return c.configure(ctx, &proto.ConfigureRequest{Settings: settings, DryRun: true})
}

func (c *Client) configure(ctx context.Context, req *proto.ConfigureRequest) ([]core.Diagnostic, error) {
	resp, err := c.rpc.Configure(ctx, req)
	if err != nil {
		return nil, fromStatus("configure", err)
	}
	if len(resp.GetDiagnostics()) > maxDiagnostics {
		return nil, fmt.Errorf("configure: the sink answered with %d diagnostics, at most %d are allowed",
			len(resp.GetDiagnostics()), maxDiagnostics)
	}
	var diagnostics []core.Diagnostic
	for _, d := range resp.GetDiagnostics() {
		diagnostics = append(diagnostics, core.Diagnostic{
			Pointer: Printable(d.GetPointer(), maxPointer),
			Message: Printable(d.GetMessage(), maxMessage),
			Warning: d.GetWarning(),
		})
	}
	return diagnostics, nil
}

// Open asks the sink to connect.
func (c *Client) Open(ctx context.Context) error {
	_, err := c.rpc.Open(ctx, &proto.OpenRequest{})
	return optional(fromStatus("open", err))
}

// Health asks the sink whether its destination can be reached. A sink that leaves the method out has not said that it can:
// the error wraps core.ErrNoHealth.
func (c *Client) Health(ctx context.Context) error {
	_, err := c.rpc.Health(ctx, &proto.HealthRequest{})
	if status.Code(err) == codes.Unimplemented {
		return fmt.Errorf("health: the method is left out: %w", core.ErrNoHealth)
	}
	return fromStatus("health", err)
}

// Close asks the sink to flush and close. It does not close the connection.
func (c *Client) Close(ctx context.Context) error {
	_, err := c.rpc.Close(ctx, &proto.CloseRequest{})
	return optional(fromStatus("close", err))
}

// Deliver sends the batch in one call. What can't go over the wire is not tried: from the first record that does not
// fit the message any more the rest is NotAttempted, and when that is the very first record, because it alone is too
// large or has text that is no UTF-8, it is Permanent.
func (c *Client) Deliver(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	req, refusal := fit(batch)
	n := len(req.records)
	outcomes := make([]core.Outcome, 0, len(batch))
	if n > 0 {
		resp := new(proto.DeliverResponse)
		if err := c.conn.Invoke(ctx, deliverMethod, req, resp); err != nil {
			return nil, fromStatus("deliver", err)
		}
		answered, err := fromResponse(n, resp)
		if err != nil {
			return nil, fmt.Errorf("deliver: %w", err)
		}
		if n == len(batch) {
			return answered, nil
		}
		outcomes = append(outcomes, answered...)
	} else {
		outcomes = append(outcomes, refusal)
	}
	for len(outcomes) < len(batch) {
		outcomes = append(outcomes, core.Outcome{Kind: core.NotAttempted})
	}
	return outcomes, nil
}

// fit takes as many records from the batch's front as one message can hold, and says why the next one was refused.
func fit(batch []core.Record) (*deliverRequest, core.Outcome) {
	req := &deliverRequest{sizes: make([]int, 0, len(batch))}
	total := 0
	var refusal core.Outcome
	for i := range batch {
		if refusal = refuse(&batch[i]); refusal.Kind != core.Unspecified {
			break
		}
		size := recordSize(&batch[i])
		total += tagSize + protowire.SizeBytes(size)
		if total > MaxMessage {
			refusal = core.Outcome{Kind: core.Permanent, Code: core.ReasonTooLarge,
				Message: fmt.Sprintf("the record has %d bytes on the wire, a message holds at most %d", size, MaxMessage)}
			break
		}
		req.sizes = append(req.sizes, size)
	}
	req.records = batch[:len(req.sizes)]
	return req, refusal
}

// refuse finds text that protobuf cannot carry. Sources let none through; without this check a single such row would
// fail every call it is in, for ever.
func refuse(r *core.Record) core.Outcome {
	if utf8.ValidString(r.Route) && utf8.ValidString(r.Type) {
		bad := false
		for i := range r.Headers {
			bad = bad || !utf8.ValidString(r.Headers[i].Name) || !utf8.ValidString(r.Headers[i].Value)
		}
		if !bad {
			return core.Outcome{}
		}
	}
	return core.Outcome{Kind: core.Permanent, Code: core.ReasonInvalid,
		Message: "the record's route, type or headers are not valid UTF-8"}
}

// CallError is a call that failed. It wraps the matching context error, core.ErrNotSent or core.ErrInUse.
type CallError struct {
	Call string // "deliver"
	Code codes.Code
	// Message is the plugin's text, printable and bounded.
	Message string
	wrapped error
}

func (e *CallError) Error() string {
	if e.Message == "" {
		return e.Call + ": " + e.Code.String()
	}
	return e.Call + ": " + e.Message
}

func (e *CallError) Unwrap() error { return e.wrapped }

func fromStatus(call string, err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	e := &CallError{Call: call, Code: s.Code(), Message: Printable(s.Message(), maxMessage)}
	switch s.Code() {
	case codes.DeadlineExceeded:
		e.wrapped = context.DeadlineExceeded
	case codes.Canceled:
		e.wrapped = context.Canceled
	case codes.FailedPrecondition:
		if call == "deliver" {
			e.wrapped = core.ErrNotSent
		}
	case codes.Aborted:
		if call == "open" {
			e.wrapped = core.ErrInUse
		}
	}
	return e
}

// optional forgives a sink in another language that has nothing to open or to close and leaves the method out.
func optional(err error) error {
	var e *CallError
	if errors.As(err, &e) && e.Code == codes.Unimplemented {
		return nil
	}
	return err
}

// Unavailable says that a call failed because the process could not be reached or the connection broke.
func Unavailable(err error) bool {
	var e *CallError
	return errors.As(err, &e) && e.Code == codes.Unavailable
}
