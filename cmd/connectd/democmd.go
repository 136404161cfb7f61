package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/connectd/connectd/cmd/connectd/demo"
)

func demoCommand() *command {
	return &command{
		name: "demo", short: "show all of it on a temporary SQLite file",
		long: "A shop commits orders with their commands, a daemon relays them as signed webhooks to a receiver, and both the\n" +
			"sink's process and the daemon are killed once. At the end what was committed is compared with what arrived. Exit\n" +
			"code 1 if anything was lost, invented, reordered, or repeated without its mark.",
		bind: func(p *program, fs *flag.FlagSet) func(context.Context, []string) error {
			seconds := fs.Int("seconds", 12, "keep the shop open for `N` seconds")
			return func(ctx context.Context, args []string) error {
				switch {
				case len(args) > 0:
					return usagef("demo takes no arguments")
				case *seconds < 3 || *seconds > 600:
					return usagef("--seconds is %d, must be 3 to 600", *seconds)
				}
				self, err := os.Executable()
				if err != nil {
					return fmt.Errorf("find this program: %w", err)
				}
				ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
				defer stop()
				_, plain := p.env("NO_COLOR")
				d := &demo.Demo{
					Program: self, Length: time.Duration(*seconds) * time.Second, Out: p.stdout, Colour: isTerminal(p.stdout) && !plain,
				}
				return d.Run(ctx)
			}
		},
	}
}
