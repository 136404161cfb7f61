package main

import (
	"context"
	"flag"
	"log/slog"
	"maps"
	"slices"

	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/plugins"
)

// serveSinkCommand is what the daemon starts as the process of a bundled sink.
func serveSinkCommand() *command {
	return &command{
		name: "serve-sink", args: "NAME", short: "serve a bundled sink; started by the daemon", hidden: true,
		bind: func(_ *program, fs *flag.FlagSet) func(context.Context, []string) error {
			dir := fs.String("dir", "", "paths in the settings are relative to this `DIR`")
			return func(_ context.Context, args []string) error {
				if len(args) != 1 {
					return usagef("serve-sink needs a sink's name")
				}
				sink, ok := bundled()[args[0]]
				if !ok {
					return usagef("no bundled sink %q%s", args[0], settings.DidYouMean(args[0], slices.Collect(maps.Keys(bundled()))))
				}
				// net/http tells the log package what a server sent unasked, word for word; a server may repeat
				// what it was sent, tokens included. The daemon does not log what is below info.
				slog.SetLogLoggerLevel(slog.LevelDebug)
				plugins.Serve(sink(plugins.Logger(), *dir))
				return nil
			}
		},
	}
}
