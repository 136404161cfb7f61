package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/config"
)

// doctorTimeout bounds what is asked about one connector. Each question has a shorter bound of its own.
const doctorTimeout = time.Minute

func doctorCommand() *command {
	return &command{
		name: "doctor", short: "prove the set-up and say what to do about each finding",
		long: `Looks, for each connector, at everything a daemon relies on: the database and its version, the table and what init
made, the plan of the very fetch that a daemon runs, rights, clocks, NOTIFY, long transactions, workers and leases;
whether an audit can run; and
the sink: its program, its settings, and whether it can be opened and reaches its destination.

It changes nothing in the database, sends no record, and may be run beside daemons. Where a daemon of this machine has the
sink open, that is taken for an answer; else doctor opens it for a moment as a daemon would, so a file sink makes its file,
and a rabbitmq sink with declare: active what its topology lists.

Exit code 0: no problem; there may be warnings. 1: problems.`,
		bind: func(p *program, fs *flag.FlagSet) func(context.Context, []string) error {
			sel := p.selection(fs)
			asJSON := fs.Bool("json", false, "print JSON")
			return func(ctx context.Context, args []string) error {
				if len(args) > 0 {
					return usagef("doctor takes no arguments; one connector: connectd doctor --connector %s", args[0])
				}
				return p.doctor(ctx, sel, *asJSON)
			}
		},
	}
}

// connectorFindings is one connector in `doctor --json`.
type connectorFindings struct {
	Connector string        `json:"connector"`
	Findings  []findingJSON `json:"findings"`
}

// findingJSON is a core.Finding in JSON.
type findingJSON struct {
	Level core.Level `json:"level"`
	What  string     `json:"what"`
	Say   string     `json:"say"`
	Do    string     `json:"do,omitempty"`
}

// doctor examines the connectors, several at a time. One that hangs or fails does not stop the others.
func (p *program) doctor(ctx context.Context, sel *selection, asJSON bool) error {
	cfg, list, whole, err := sel.chosen()
	if err != nil {
		return err
	}
	all := make([]connectorFindings, len(list))
	slots := make(chan struct{}, 4)
	var wg sync.WaitGroup
	for i, c := range list {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
			defer cancel()
			all[i] = connectorFindings{c.Name, toJSON(examine(ctx, cfg.Daemon, c))}
		})
	}
	wg.Wait()
	if asJSON {
		err = printJSON(p.stdout, map[string]any{"connectors": all})
	} else {
		err = printFindings(p.stdout, all)
	}
	if err != nil {
		return err
	}
	if !whole || slices.ContainsFunc(all, connectorFindings.ill) {
		return errReported
	}
	return nil
}

// ill says whether there is a problem.
func (c connectorFindings) ill() bool {
	return slices.ContainsFunc(c.Findings, func(f findingJSON) bool { return f.Level == core.Problem })
}

func toJSON(findings []core.Finding) []findingJSON {
	list := make([]findingJSON, len(findings))
	for i, f := range findings {
		list[i] = findingJSON(f)
	}
	return list
}

// examine asks about one connector: its delivery section, its source, and its sink.
func examine(ctx context.Context, daemon config.Daemon, c config.Connector) []core.Finding {
	d := diagnoseSource(ctx, c)
	if err := policy(c).Validate(); err != nil {
		d.Fault("delivery", err.Error(), fmt.Sprintf("correct the delivery section, %s", c.Pos))
	}
	if d.Looked {
		judgeWorkers(&d, c)
		judgeReceipts(&d, c)
		if !d.Faulty("rights") && !d.Faulty("plan") {
			judgeAudit(ctx, &d, c)
		}
	}
	examineSink(ctx, &d, daemon, c)
	return d.Findings
}

// maxSay bounds a text from elsewhere in the table.
const maxSay = 1000

// printFindings writes a table for people. What to do stands below what was found, since both are sentences.
func printFindings(w io.Writer, all []connectorFindings) error {
	for i, c := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		count := map[core.Level]int{}
		wide := 0
		for _, f := range c.Findings {
			count[f.Level]++
			wide = max(wide, len(f.What))
		}
		fmt.Fprintf(w, "%s: %d ok, %s, %s\n", c.Connector, count[core.Fine], counted(count[core.Warning], "warning"), counted(count[core.Problem], "problem"))
		for _, f := range c.Findings {
			fmt.Fprintf(w, "  %-7s  %-*s  %s\n", f.Level, wide, f.What, line(f.Say, maxSay))
			if f.Do != "" {
				if _, err := fmt.Fprintf(w, "  %s  to do: %s\n", strings.Repeat(" ", 7+2+wide), line(f.Do, maxSay)); err != nil {
					return fmt.Errorf("write the answer: %w", err)
				}
			}
		}
	}
	return nil
}

// counted writes a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
