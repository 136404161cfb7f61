package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/plugins"
	"github.com/connectd/connectd/plugins/proto"
)

// torture is a plugin's main. Modes act at the start, or in Deliver on the record whose type names what to do.
func torture(args []string) {
	switch args[0] {
	case "prints-then-serves":
		fmt.Println("hello from an init function")
		plugins.Serve(&tortured{})
	case "prints-then-hangs":
		fmt.Println("usage: please configure me")
		select {}
	case "hangs-at-start":
		select {}
	case "exits-at-start":
		fmt.Fprintln(os.Stderr, "no licence found")
		os.Exit(3)
	case "panics-at-start":
		panic("bad build")
	case "other-version":
		plugin.Serve(&plugin.ServeConfig{
			HandshakeConfig: plugins.Handshake(),
			VersionedPlugins: map[int]plugin.PluginSet{
				7: {plugins.PluginName: &plugins.Plugin{Sink: &tortured{}}},
				9: {plugins.PluginName: &plugins.Plugin{Sink: &tortured{}}},
			},
			GRPCServer: plugin.DefaultGRPCServer,
		})
	case "tcp":
		fmt.Println("1|1|tcp|127.0.0.1:1|grpc|")
		select {}
	case "foreign-socket":
		fmt.Println("1|1|unix|/tmp/elsewhere|grpc|")
		select {}
	case "deaf": // speaks the protocol and never answers a call
		plugin.Serve(&plugin.ServeConfig{
			HandshakeConfig:  plugins.Handshake(),
			VersionedPlugins: map[int]plugin.PluginSet{1: {plugins.PluginName: &plugins.Plugin{Sink: &tortured{}}}},
			GRPCServer: func(o []grpc.ServerOption) *grpc.Server {
				return grpc.NewServer(append(o, grpc.UnaryInterceptor(
					func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) { select {} }))...)
			},
		})
	case "generated": // uses generated code alone, as a plugin in another language does, and answers what it is told
		plugin.Serve(&plugin.ServeConfig{
			HandshakeConfig:  plugins.Handshake(),
			VersionedPlugins: map[int]plugin.PluginSet{1: {plugins.PluginName: &generatedPlugin{answer: args[1]}}},
			GRPCServer:       plugin.DefaultGRPCServer,
		})
	case "no-shutdown": // survives the end of the server
		signal.Ignore(syscall.SIGQUIT)
		plugins.Serve(&tortured{})
		select {}
	default:
		plugins.Serve(&tortured{mode: args[0], args: args[1:]})
	}
}

// generatedPlugin serves proto.SinkServer without the SDK.
type generatedPlugin struct {
	plugin.NetRPCUnsupportedPlugin
	proto.UnimplementedSinkServer
	answer string
}

func (g *generatedPlugin) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("not a host")
}

func (g *generatedPlugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	proto.RegisterSinkServer(s, g)
	return nil
}

func (g *generatedPlugin) Describe(context.Context, *proto.DescribeRequest) (*proto.DescribeResponse, error) {
	return &proto.DescribeResponse{Name: "generated"}, nil
}

func (g *generatedPlugin) Configure(context.Context, *proto.ConfigureRequest) (*proto.ConfigureResponse, error) {
	return &proto.ConfigureResponse{}, nil
}

func (g *generatedPlugin) Open(context.Context, *proto.OpenRequest) (*proto.OpenResponse, error) {
	return &proto.OpenResponse{}, nil
}

func (g *generatedPlugin) Deliver(_ context.Context, req *proto.DeliverRequest) (*proto.DeliverResponse, error) {
	n := uint32(len(req.GetRecords()))
	switch g.answer {
	case "long-line": // on the descriptor itself, which nothing diverts here
		for range 32 {
			if _, err := syscall.Write(1, []byte(strings.Repeat("y", 32<<10))); err != nil {
				return nil, err
			}
		}
		return &proto.DeliverResponse{Delivered: n}, nil
	case "unavailable": // the sink's own word on its destination
		return nil, status.Error(codes.Unavailable, "broker is away")
	case "too-few":
		return &proto.DeliverResponse{Delivered: n - 1}, nil
	case "out-of-range":
		return &proto.DeliverResponse{Delivered: n - 1, Exceptions: []*proto.Exception{{Index: n}}}, nil
	case "twice":
		return &proto.DeliverResponse{Delivered: n - 2, Exceptions: []*proto.Exception{{Index: 1}, {Index: 1}}}, nil
	default:
		return &proto.DeliverResponse{Delivered: n}, nil
	}
}

// tortured is the sink of the torture plugin.
type tortured struct {
	mode       string
	args       []string
	configured bool
}

func (s *tortured) Describe(context.Context) (core.Description, error) {
	d := core.Description{Name: "torture", Version: "1.2.3", Schema: []byte(`{"type":"object"}`),
		Limits: core.Limits{MaxRecords: 500, MaxInFlight: 4}}
	if s.configured {
		d.Limits.MaxInFlight, d.Prefers.MaxRecords, d.Prefers.InFlight = 3, 2, 1
	}
	if s.mode == "environment" {
		var names []string
		for _, e := range os.Environ() {
			name, _, _ := strings.Cut(e, "=")
			names = append(names, name)
		}
		slices.Sort(names)
		wd, _ := os.Getwd()
		d.Schema = fmt.Appendf(nil, "%s\n%s\n%s", strings.Join(names, " "), wd, strings.Join(os.Args, " "))
	}
	return d, nil
}

func (s *tortured) Configure(_ context.Context, settings []byte) ([]core.Diagnostic, error) {
	if s.mode == "refuses" || strings.Contains(string(settings), "bad") {
		return []core.Diagnostic{
			{Pointer: "/topic", Message: "is missing"},
			{Pointer: "", Message: "old style", Warning: true},
		}, nil
	}
	s.configured = true
	return nil, nil
}

func (s *tortured) Open(context.Context) error {
	switch s.mode {
	case "open-fails-twice", "open-fails-in-two-ways":
		name := s.args[0]
		f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.WriteString("x"); err != nil {
			return err
		}
		info, err := f.Stat()
		switch {
		case err != nil:
			return err
		case info.Size() <= 2:
			return errors.New("broker is away")
		case info.Size() <= 4 && s.mode == "open-fails-in-two-ways":
			return errors.New("the password is wrong")
		}
	case "open-wedges": // the first time
		f, err := os.OpenFile(s.args[0], os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return nil
		}
		_ = f.Close()
		if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
			return err
		}
		time.Sleep(time.Minute) // it may take a moment to stop
	case "dies-at-open":
		os.Exit(4)
	}
	return nil
}

func (s *tortured) Health(context.Context) error {
	if s.mode == "unhealthy" {
		return errors.New("broker is away")
	}
	return nil
}

func (s *tortured) Close(ctx context.Context) error {
	switch s.mode {
	case "close-hangs":
		select {}
	case "close-flushes":
		time.Sleep(100 * time.Millisecond) // it has something to flush
		return os.WriteFile(s.args[0], []byte("flushed"), 0o600)
	}
	return nil
}

func (s *tortured) Deliver(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
	out := make([]core.Outcome, len(batch))
	if s.mode == "null" {
		n := 0
		for i := range batch {
			r := &batch[i]
			out[i].Kind = core.Delivered
			n += r.Size() + r.Deliveries + len(r.Payload[:1])
		}
		if n == 0 {
			return nil, errors.New("nothing to read")
		}
		return out, nil
	}
	for i := range batch {
		out[i].Kind = core.Delivered
		switch batch[i].Type {
		case "crash":
			go func() { panic("poison record " + batch[i].ID) }()
			time.Sleep(time.Minute)
		case "exit":
			os.Exit(0)
		case "hang":
			<-ctx.Done()
			return nil, ctx.Err()
		case "hang-forever":
			select {}
		case "panic":
			panic("handler is broken")
		case "one-short":
			out = out[:len(out)-1]
			return out, nil
		case "not-sent":
			return nil, fmt.Errorf("no connection: %w", core.ErrNotSent)
		case "error":
			return nil, errors.New("something \x1b[31mred")
		case "retry":
			out[i] = core.Outcome{Kind: core.Retryable, Scope: core.ScopeKey, Unknown: true, RetryAfter: 1500 * time.Millisecond,
				Code: "nack", Message: strings.Repeat("é", 1000)}
		case "unspecified":
			out[i] = core.Outcome{}
		case "long-line":
			_, _ = syscall.Write(1, []byte(strings.Repeat("x", 1<<20)))
		case "flood":
			for n := range 50_000 {
				fmt.Fprintln(os.Stderr, "flood", n)
			}
			slog.Warn("structured words", "answer", 42, "evil", "a\x1b[2Jb\nc")
		case "stdout":
			fmt.Println("printed by the sink")
		case "grandchild": // holds our stdout and stderr and outlives us
			cmd := exec.Command("/bin/sleep", "300")
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			if err := cmd.Start(); err != nil {
				return nil, err
			}
			out[i] = core.Outcome{Kind: core.Permanent, Message: fmt.Sprint(cmd.Process.Pid)}
		case "escaped-grandchild": // the same, out of our process group
			cmd := exec.Command("/bin/sleep", "3")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			if err := cmd.Start(); err != nil {
				return nil, err
			}
		case "busy": // uses all processors
			end := time.Now().Add(1500 * time.Millisecond)
			var spinners sync.WaitGroup
			for range runtime.GOMAXPROCS(0) {
				spinners.Go(func() {
					for time.Now().Before(end) {
					}
				})
			}
			spinners.Wait()
		case "size":
			out[i] = core.Outcome{Kind: core.Permanent, Message: fmt.Sprint(len(batch[i].Payload))}
		}
	}
	return out, nil
}

// daemon is a host's main: it starts a sink with the runtime directory given, prints the plugin's process number and
// delivers for ever.
func daemon(args []string) {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	s := Start(Spec{Connector: "test", Plugin: "torture", Path: exe, Args: []string{"torture", "plain"},
		RuntimeDir: args[0], Settings: []byte(`{}`)}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Ready(ctx); err != nil {
		panic(err)
	}
	fmt.Println(s.Status().PID)
	for {
		if _, err := s.Deliver(ctx, batchOf(100)); err != nil {
			panic(err)
		}
	}
}
