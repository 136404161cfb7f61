package plugins

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/plugins/proto"
)

// server serves a core.Sink over gRPC: the plugin's side.
type server struct {
	proto.UnimplementedSinkServer
	sink core.Sink
}

func (s *server) Describe(ctx context.Context, _ *proto.DescribeRequest) (*proto.DescribeResponse, error) {
	d, err := s.sink.Describe(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	return &proto.DescribeResponse{
		Name: d.Name, Version: d.Version, SettingsSchema: d.Schema, Sdk: "go",
		Limits: &proto.Limits{
			MaxRecords:     uint32(d.Limits.MaxRecords),
			MaxBytes:       uint64(d.Limits.MaxBytes),
			MaxRecordBytes: uint64(d.Limits.MaxRecordBytes),
			MaxInFlight:    uint32(d.Limits.MaxInFlight),
		},
		Prefers: &proto.Preferences{MaxRecords: uint32(d.Prefers.MaxRecords), InFlight: uint32(d.Prefers.InFlight)},
	}, nil
}

// Configure treats a dry run like any other: Configure does no I/O, and the process ends after a dry run.
func (s *server) Configure(ctx context.Context, req *proto.ConfigureRequest) (*proto.ConfigureResponse, error) {
	diagnostics, err := s.sink.Configure(ctx, req.GetSettings())
	if err != nil {
		return nil, toStatus(err)
	}
	resp := &proto.ConfigureResponse{}
	for _, d := range diagnostics {
		resp.Diagnostics = append(resp.Diagnostics,
			&proto.Diagnostic{Pointer: d.Pointer, Message: d.Message, Warning: d.Warning})
	}
	return resp, nil
}

func (s *server) Open(ctx context.Context, _ *proto.OpenRequest) (*proto.OpenResponse, error) {
	return &proto.OpenResponse{}, toStatus(s.sink.Open(ctx))
}

func (s *server) Health(ctx context.Context, _ *proto.HealthRequest) (*proto.HealthResponse, error) {
	return &proto.HealthResponse{}, toStatus(s.sink.Health(ctx))
}

func (s *server) Close(ctx context.Context, _ *proto.CloseRequest) (*proto.CloseResponse, error) {
	return &proto.CloseResponse{}, toStatus(s.sink.Close(ctx))
}

func (s *server) deliver(ctx context.Context, batch []core.Record) (*proto.DeliverResponse, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	outcomes, err := s.sink.Deliver(ctx, batch)
	if err != nil {
		return nil, toStatus(err)
	}
	resp, err := toResponse(len(batch), outcomes)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return resp, nil
}

// inTime ends a little before the call's deadline. What a sink answers after that deadline is lost, and with it the news
// of what was delivered: the records would be taken for ones that make it hang.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/10, time.Second)))
}

// toStatus carries an error over the wire; what the host must be able to tell apart is in the code.
func toStatus(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, core.ErrNotSent):
		return status.Error(codes.FailedPrecondition, Printable(err.Error(), maxMessage))
	case errors.Is(err, core.ErrInUse):
		return status.Error(codes.Aborted, Printable(err.Error(), maxMessage))
	case errors.Is(err, core.ErrNoHealth):
		return status.Error(codes.Unimplemented, Printable(err.Error(), maxMessage))
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, Printable(err.Error(), maxMessage))
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, Printable(err.Error(), maxMessage))
	default:
		return status.Error(codes.Unknown, Printable(err.Error(), maxMessage))
	}
}
