package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/connectd/connectd/core/config"
)

func schemaCommand() *command {
	return &command{
		name: "schema", short: "print the JSON Schema of the configuration, for editors",
		long: "The settings of the bundled sinks and of those in the plugin directory are in it. An editor with a YAML\n" +
			"language server uses it by a first line such as\n\n  # yaml-language-server: $schema=./connectd.schema.json",
		bind: func(p *program, fs *flag.FlagSet) func(context.Context, []string) error {
			sel := p.configFlag(fs)
			return func(ctx context.Context, args []string) error {
				if len(args) > 0 {
					return usagef("schema takes no arguments")
				}
				list, err := sinks(ctx, sel.daemonOr(""))
				if err != nil {
					return err
				}
				schemas := map[string][]byte{}
				for _, v := range list {
					if v.Error != "" {
						fmt.Fprintf(p.stderr, "connectd: sink %s is left out: %s\n", v.Name, v.Error)
						continue
					}
					schemas[v.Name] = v.schema
				}
				_, err = fmt.Fprintf(p.stdout, "%s\n", config.Schema(schemas))
				return err
			}
		},
	}
}
