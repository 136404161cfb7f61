package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker for releases: -ldflags "-X main.version=1.2.3".
var version string

// build says which program this is: the release, else what the Go toolchain recorded.
func build() (release, revision string) {
	release, revision = version, "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return release, revision
	}
	if release == "" {
		release = info.Main.Version
	}
	if release == "" || release == "(devel)" {
		release = "dev"
	}
	modified := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+changes"
		}
	}
	return release, revision + modified
}

func versionCommand() *command {
	return &command{
		name: "version", short: "print the version of this program",
		bind: func(p *program, _ *flag.FlagSet) func(context.Context, []string) error {
			return func(_ context.Context, args []string) error {
				if len(args) > 0 {
					return usagef("version takes no arguments")
				}
				release, revision := build()
				_, err := fmt.Fprintf(p.stdout, "connectd %s (%s, %s, %s/%s)\n", release, revision, runtime.Version(),
					runtime.GOOS, runtime.GOARCH)
				return err
			}
		},
	}
}
