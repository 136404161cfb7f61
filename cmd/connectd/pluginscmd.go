package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/config"
	"github.com/connectd/connectd/plugins/host"
)

func pluginsCommand() *command {
	return &command{name: "plugins", short: "list the sinks there are", subs: []*command{{
		name: "list", short: "list the bundled sinks and those in the plugin directory",
		bind: func(p *program, fs *flag.FlagSet) func(context.Context, []string) error {
			sel := p.configFlag(fs)
			dir := fs.String("dir", "", "look in this `DIR` instead of daemon.plugin_dir")
			asJSON := fs.Bool("json", false, "print JSON")
			return func(ctx context.Context, args []string) error {
				if len(args) > 0 {
					return usagef("plugins list takes no arguments")
				}
				return p.listPlugins(ctx, sel.daemonOr(*dir), *asJSON)
			}
		},
	}}}
}

// pluginView is one sink in `plugins list --json`.
type pluginView struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Path    string `json:"path"` // "" for a bundled one
	Error   string `json:"error,omitempty"`
	schema  []byte
}

func (p *program) listPlugins(ctx context.Context, d config.Daemon, asJSON bool) error {
	list, err := sinks(ctx, d)
	if err != nil {
		return err
	}
	var failed error
	rows := make([][]string, len(list))
	for i, v := range list {
		path := v.Path
		if path == "" {
			path = "(bundled)"
		}
		if v.Error != "" {
			failed = errReported
		}
		rows[i] = []string{v.Name, line(v.Version, 40), path, line(v.Error, 400)}
	}
	if asJSON {
		err = printJSON(p.stdout, list)
	} else {
		err = printTable(p.stdout, []string{"NAME", "VERSION", "PROGRAM", "PROBLEM"}, rows)
	}
	if err == nil {
		err = failed
	}
	return err
}

// daemonOr returns the daemon section, with another plugin directory if one is given. What is wrong with a connector does
// not matter here, and without a configuration the defaults hold: the bundled sinks are there in any case.
func (s *selection) daemonOr(dir string) config.Daemon {
	var d config.Daemon
	if _, err := os.Stat(defaultFile); len(s.files) > 0 || !errors.Is(err, fs.ErrNotExist) {
		cfg, err := config.Load(s.paths(), s.p.env)
		if cfg != nil {
			d = cfg.Daemon
		}
		if problems, ok := errors.AsType[config.Problems](err); ok {
			for _, problem := range problems {
				if problem.Connector == "" {
					fmt.Fprintf(s.p.stderr, "connectd: %v\n", problem)
				}
			}
		}
	}
	if dir != "" {
		d.PluginDir = dir
	}
	return d
}

// sinks describes every sink: the bundled ones, then those in the plugin directory, whose programs are started and
// asked.
func sinks(ctx context.Context, d config.Daemon) ([]pluginView, error) {
	var list []pluginView
	own := bundled()
	for _, name := range slices.Sorted(maps.Keys(own)) {
		description, err := own[name](slog.New(slog.DiscardHandler), "").Describe(ctx)
		if err != nil {
			return nil, fmt.Errorf("ask sink %s to describe itself: %w", name, err)
		}
		release, _ := build()
		list = append(list, pluginView{Name: name, Version: release, schema: description.Schema})
	}
	entries, err := os.ReadDir(d.PluginDir)
	if err != nil && d.PluginDir != "" && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("plugin_dir: %w", err)
	}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), host.Prefix)
		if _, taken := own[name]; !ok || taken {
			continue
		}
		list = append(list, describe(ctx, d, name))
	}
	return list, nil
}

// describe starts the program of a sink and asks it to describe itself.
func describe(ctx context.Context, d config.Daemon, name string) pluginView {
	v := pluginView{Name: name, Path: filepath.Join(d.PluginDir, host.Prefix+name)}
	description, err := func() (core.Description, error) {
		dir, err := os.Getwd()
		if err != nil {
			return core.Description{}, fmt.Errorf("find the working directory: %w", err)
		}
		path, args, err := sinkProgram(dir, d.PluginDir, name)
		if err != nil {
			return core.Description{}, err
		}
		v.Path = path
		spec := host.Spec{Plugin: name, Path: path, Args: args, RuntimeDir: d.RuntimeDir}
		description, _, err := host.Check(ctx, spec, slog.New(slog.DiscardHandler))
		return description, err
	}()
	v.Version, v.schema = description.Version, description.Schema
	if err != nil {
		v.Error = err.Error()
	}
	return v
}
