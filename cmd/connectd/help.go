package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

const intro = `connectd carries outbox rows from a database to where they must go.

Usage: connectd COMMAND [FLAGS]

`

const outro = `
connectd help COMMAND says more. The configuration is ./connectd.yaml unless -c names another file or a directory.
Data goes to stdout, words to stderr. Exit code 0: done, 1: failed, 2: wrong usage.
`

// helpFor prints the help of the command that args name.
func (p *program) helpFor(args []string) error {
	if len(args) == 0 {
		p.help(p.stdout, nil)
		return nil
	}
	path, _, rest, err := find(append(args, "help"))
	if err != nil {
		return err
	}
	if len(rest) > 1 {
		return usagef("no command %q", strings.Join(args, " "))
	}
	p.help(p.stdout, path)
	return nil
}

// help prints the help of the command at path, or of the program.
func (p *program) help(w io.Writer, path []string) {
	if len(path) == 0 {
		fmt.Fprint(w, intro)
		printCommands(w, "", commands())
		fmt.Fprint(w, outro)
		return
	}
	_, cmd, _, err := find(append(append([]string{}, path...), "help"))
	if err != nil {
		return
	}
	fmt.Fprintf(w, "%s\n\nUsage: connectd %s", upperFirst(cmd.short)+".", strings.Join(path, " "))
	if cmd.subs != nil {
		fmt.Fprint(w, " COMMAND\n\n")
		printCommands(w, "", cmd.subs)
	} else {
		fmt.Fprintf(w, " %s\n", strings.TrimSpace("[FLAGS] "+cmd.args))
	}
	if cmd.long != "" {
		fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(cmd.long))
	}
	if cmd.subs == nil {
		printFlags(w, p, cmd)
	}
}

func printCommands(w io.Writer, prefix string, level []*command) {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, c := range level {
		if !c.hidden {
			fmt.Fprintf(tw, "  %s%s\t%s\n", prefix, c.name, c.short)
		}
	}
	_ = tw.Flush()
}

func printFlags(w io.Writer, p *program, cmd *command) {
	fs := flag.NewFlagSet(cmd.name, flag.ContinueOnError)
	cmd.bind(p, fs)
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	first := true
	fs.VisitAll(func(f *flag.Flag) {
		if first {
			fmt.Fprint(tw, "\nFlags:\n")
			first = false
		}
		value, text := flag.UnquoteUsage(f)
		fmt.Fprintf(tw, "  %s\t%s\n", strings.TrimSpace(dashed(f.Name)+" "+value), text)
	})
	_ = tw.Flush()
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
