package plugins

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/connectd/connectd/core"
)

// Serve serves the sink to the daemon that started this process and returns when the daemon has said goodbye; main
// should then return. When the process was started by hand it explains itself and exits: with --describe it prints
// what the sink says of itself, its settings' schema included, as JSON.
//
// SIGINT, SIGTERM and SIGHUP are ignored: they are often sent to the daemon's whole group, and the daemon still needs
// its sinks to finish what they are sending. The process ends when the daemon says so, and when the daemon is gone.
//
// Serve takes over stdin, stdout and the default slog logger, which becomes Logger.
func Serve(sink core.Sink) {
	cookie := Handshake()
	if os.Getenv(cookie.MagicCookieKey) != cookie.MagicCookieValue {
		os.Exit(byHand(sink, os.Args[1:], os.Stdout, os.Stderr))
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP) // caught, so not deadly; nobody listens
	go exitWithDaemon(os.Stdin)

	stderr := os.Stderr
	log := Logger()
	slog.SetDefault(log)
	if err := restrict(); err != nil {
		log.Warn("cannot restrict the process", "error", err)
	}
	handshake, err := divertStdout()
	if err != nil {
		log.Error("cannot divert stdout", "error", err)
		os.Exit(1)
	}
	os.Stdout = handshake // go-plugin prints its one line here

	// go-plugin then points os.Stdout and os.Stderr at pipes of its own, which lose the last words of a process that
	// crashes and block when nobody reads. Undone before the sink sees its first call.
	var undo sync.Once
	restoreOutput := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		undo.Do(func() { os.Stdout, os.Stderr = stderr, stderr })
		return handle(ctx, req)
	}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: cookie,
		Plugins:         plugin.PluginSet{PluginName: &Plugin{Sink: sink}},
		Logger:          hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: stderr, JSONFormat: true}),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			opts = append(opts, serverOptions()...)
			return grpc.NewServer(append(opts, grpc.UnaryInterceptor(restoreOutput))...)
		},
	})
}

// Logger returns a logger whose records keep their level and attributes in the daemon's log: JSON on stderr, every
// level, since the daemon decides what it logs. It is for sinks that are handed a logger before Serve.
func Logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// exitWithDaemon ends the process when stdin does: the daemon holds the other end and writes nothing, so the end of
// the stream means that it has died.
func exitWithDaemon(stdin io.Reader) {
	_, _ = io.Copy(io.Discard, stdin)
	os.Exit(1)
}

// byHand is what a person sees who starts the plugin in a shell. It returns the exit code.
func byHand(sink core.Sink, args []string, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	d, err := sink.Describe(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "this sink cannot describe itself: %v\n", err)
		return 1
	}
	if len(args) == 1 && args[0] == "--describe" {
		out := json.NewEncoder(stdout)
		out.SetIndent("", "  ")
		err := out.Encode(map[string]any{
			"name": d.Name, "version": d.Version, "protocol": ProtocolVersion, "settings": json.RawMessage(d.Schema),
			"limits": map[string]any{
				"max_records": d.Limits.MaxRecords, "max_bytes": d.Limits.MaxBytes,
				"max_record_bytes": d.Limits.MaxRecordBytes, "max_in_flight": d.Limits.MaxInFlight,
			},
			"prefers": map[string]any{"max_records": d.Prefers.MaxRecords, "in_flight": d.Prefers.InFlight},
		})
		if err != nil {
			fmt.Fprintf(stderr, "this sink's description is not valid: %v\n", err)
			return 1
		}
		return 0
	}
	name, ok := strings.CutPrefix(filepath.Base(os.Args[0]), "connectd-sink-")
	if !ok {
		name = d.Name
	}
	fmt.Fprintf(stderr, `%s %s is a sink for connectd, which starts it by itself; it does nothing on its own.
Put it into the daemon's plugin_dir as connectd-sink-%s and write "plugin: %s" into a connector's sink.
Its settings: %s --describe
`, d.Name, d.Version, name, name, os.Args[0])
	return 2
}
