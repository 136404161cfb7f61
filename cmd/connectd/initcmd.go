package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/config"
	"github.com/connectd/connectd/core/layout"
)

func initCommand() *command {
	return &command{
		name: "init", short: "create what is missing in the databases",
		long: `Shows what it will do, then does it: creates the outbox table or adds the relay's own columns and index to the
one that is there, and creates the tables beside it. It never drops anything, and a second time it has nothing to do.

A table that has rows already needs to be told what they are: --existing pending sends them, --existing published
takes them as sent.`,
		bind: func(p *program, fs *flag.FlagSet) func(context.Context, []string) error {
			sel := p.selection(fs)
			printOnly := fs.Bool("print", false, "show it and do nothing")
			partitions := fs.Int("partitions", 0, "into how many partitions, `N`, a new table of a server is divided, for good; 0: 16")
			existing := fs.String("existing", "", "what the rows of an adopted table are: `pending|published`")
			return func(ctx context.Context, args []string) error {
				switch {
				case len(args) > 0:
					return usagef("init takes no arguments; one connector: connectd init --connector %s", args[0])
				case *existing != "" && *existing != string(core.Pending) && *existing != string(core.Published):
					return usagef("--existing is %q, must be pending or published", *existing)
				case *partitions < 0:
					return usagef("--partitions is %d, must not be negative", *partitions)
				}
				return p.initialise(ctx, sel, initOptions{existing: *existing, partitions: *partitions}, *printOnly)
			}
		},
	}
}

// initialise prepares the table of each connector. One that fails does not stop the others.
func (p *program) initialise(ctx context.Context, sel *selection, o initOptions, printOnly bool) error {
	list, whole, err := sel.connectors()
	if err != nil {
		return err
	}
	for _, c := range list {
		if err := p.initialiseOne(ctx, c, o, printOnly); err != nil {
			fmt.Fprintf(p.stderr, "connectd: %s: %v\n", c.Name, err)
			whole = false
		}
	}
	if !whole {
		return errReported
	}
	return nil
}

func (p *program) initialiseOne(ctx context.Context, c config.Connector, o initOptions, printOnly bool) error {
	var mu sync.Mutex
	o.tell = func(text string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(p.stderr, "%s: %s\n", c.Name, strings.ReplaceAll(text, "\n", " "))
	}
	var steps core.Plan
	var apply func(context.Context) error
	looking := func(context.Context) string { return "still looking at the table, which is large or locked" }
	err := layout.Watch(ctx, o.tell, looking, func() (err error) {
		steps, apply, err = plan(ctx, c, o)
		return err
	})
	if err != nil {
		return err
	}
	if len(steps.Steps) == 0 {
		fmt.Fprintf(p.stderr, "%s: nothing to do\n", c.Name)
		return nil
	}
	fmt.Fprintf(p.stdout, "-- %s (%s)\n", c.Name, place(c))
	for _, step := range steps.Steps {
		fmt.Fprintf(p.stdout, "-- %s\n%s;\n", strings.ReplaceAll(step.Why, "\n", "\n-- "), strings.TrimRight(step.SQL, "; \n"))
	}
	if printOnly {
		return nil
	}
	if err := apply(ctx); err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "%s: done\n", c.Name)
	return nil
}
