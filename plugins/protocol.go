package plugins

import (
	"context"
	"fmt"
	"os"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/plugins/proto"
)

// ProtocolVersion is the version of the sink protocol. A new one is a new proto package; everything else is additive.
const ProtocolVersion = 1

// PluginName is the name under which a process serves its sink.
const PluginName = "sink"

// MaxMessage is the largest message either side takes, in bytes: the largest batch (64 MiB) and what the wire adds.
const MaxMessage = 65 << 20

// The flow-control windows and buffers of both sides. A window set on one side only would leave the other at 64 KiB.
const (
	window  = 1 << 20
	ioBytes = 128 << 10
)

// ConnectorVariable is the environment variable that tells a plugin's process which connector it works for.
const ConnectorVariable = "CONNECTD_CONNECTOR"

// Connector returns the name of the connector that this process works for, for texts that name it ({connector} in
// templates); "" when nobody said so. Known from the start, before Configure.
func Connector() string { return os.Getenv(ConnectorVariable) }

// Handshake returns what host and plugin must agree on before they speak gRPC. The cookie only tells a plugin that it
// was started by connectd and not by hand; it is no secret and never changes.
func Handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{
		ProtocolVersion:  ProtocolVersion,
		MagicCookieKey:   "CONNECTD_SINK_PLUGIN",
		MagicCookieValue: "1f2d7a5c-sink",
	}
}

// Plugin is both halves of the gRPC boundary as go-plugin wants them: the host leaves Sink nil and dispenses a
// *Client; a plugin's process serves Sink.
type Plugin struct {
	plugin.NetRPCUnsupportedPlugin
	Sink core.Sink
}

var _ plugin.GRPCPlugin = (*Plugin)(nil)

// GRPCClient returns a *Client.
func (p *Plugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return NewClient(conn), nil
}

// GRPCServer registers Sink.
func (p *Plugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	if p.Sink == nil {
		return fmt.Errorf("no sink to serve")
	}
	s.RegisterService(serviceDesc(), &server{sink: p.Sink})
	return nil
}

// DialOptions are the host's half of the transport: the codec, limits and windows.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(newCodec()),
			grpc.MaxCallRecvMsgSize(MaxMessage),
			grpc.MaxCallSendMsgSize(MaxMessage)),
		grpc.WithInitialWindowSize(window),
		grpc.WithInitialConnWindowSize(window),
		grpc.WithReadBufferSize(ioBytes),
		grpc.WithWriteBufferSize(ioBytes),
		grpc.WithIdleTimeout(0), // an idle connection is not closed: its socket file may be gone when it is wanted again
		grpc.WithDisableRetry(),
	}
}

// serverOptions are the plugin's half.
func serverOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.MaxSendMsgSize(MaxMessage),
		grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(window),
		grpc.ReadBufferSize(ioBytes),
		grpc.WriteBufferSize(ioBytes),
	}
}

// deliverMethod goes through the hand-written codec, on both sides.
const deliverMethod = proto.Sink_Deliver_FullMethodName

// serviceDesc is the generated service with one change: Deliver decodes into a deliverRequest.
func serviceDesc() *grpc.ServiceDesc {
	desc := proto.Sink_ServiceDesc
	desc.Methods = append([]grpc.MethodDesc(nil), desc.Methods...)
	for i := range desc.Methods {
		if desc.Methods[i].MethodName == "Deliver" {
			desc.Methods[i].Handler = deliverHandler
		}
	}
	return &desc
}

func deliverHandler(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
	req := new(deliverRequest)
	if err := decode(req); err != nil {
		return nil, err
	}
	handle := func(ctx context.Context, req any) (any, error) {
		return srv.(*server).deliver(ctx, req.(*deliverRequest).records)
	}
	if intercept == nil {
		return handle(ctx, req)
	}
	info := &grpc.UnaryServerInfo{Server: srv, FullMethod: deliverMethod}
	return intercept(ctx, req, info, handle)
}
