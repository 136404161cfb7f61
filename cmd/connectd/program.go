package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/connectd/connectd/core/settings"
)

// The exit codes are a contract with scripts.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// program is what a command may touch of the world outside. Data goes to stdout, words to stderr.
type program struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	env    func(string) (string, bool)
}

// command is one word of the command line.
type command struct {
	name   string
	args   string // what follows the name in the usage line
	short  string // one line in the list
	long   string // the rest of its help
	hidden bool
	// subs are the commands below this one, if it is a group; else bind declares the flags and returns what to do
	// with the arguments.
	subs []*command
	bind func(p *program, fs *flag.FlagSet) func(ctx context.Context, args []string) error
}

// usageError is a wrong command line: exit code 2.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// errReported fails a command that has said already what is wrong.
var errReported = errors.New("reported")

// run is the whole program: it returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) (string, bool)) int {
	p := &program{stdin: stdin, stdout: stdout, stderr: stderr, env: env}
	err := p.dispatch(ctx, args)
	var wrong *usageError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &wrong):
		p.complain(wrong)
		return exitUsage
	case errors.Is(err, errReported):
		return exitFailed
	default:
		p.complain(err)
		return exitFailed
	}
}

// complain says on stderr what is wrong. An error may quote what somebody else wrote, such as a row's id.
func (p *program) complain(err error) {
	fmt.Fprintf(p.stderr, "connectd: %s\n", block(err.Error()))
}

func (p *program) dispatch(ctx context.Context, args []string) error {
	if len(args) == 0 {
		p.help(p.stderr, nil)
		return usagef("no command given")
	}
	if isHelp(args[0]) {
		return p.helpFor(args[1:])
	}
	path, cmd, rest, err := find(args)
	if err != nil {
		return err
	}
	if cmd.subs != nil {
		if len(rest) > 0 && isHelp(rest[0]) {
			p.help(p.stdout, path)
			return nil
		}
		p.help(p.stderr, path)
		return usagef("%s needs one of: %s", strings.Join(path, " "), strings.Join(names(cmd.subs), ", "))
	}
	fs := flag.NewFlagSet(strings.Join(path, " "), flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	do := cmd.bind(p, fs)
	operands, err := parse(fs, rest)
	if errors.Is(err, flag.ErrHelp) {
		p.help(p.stdout, path)
		return nil
	}
	if err != nil {
		return err
	}
	return do(ctx, operands)
}

func isHelp(arg string) bool {
	return arg == "help" || arg == "-h" || arg == "-help" || arg == "--help"
}

// find walks down the command table as far as the arguments name commands.
func find(args []string) (path []string, cmd *command, rest []string, err error) {
	level := commands()
	for {
		i := slices.IndexFunc(level, func(c *command) bool { return len(args) > 0 && c.name == args[0] })
		if i < 0 {
			if cmd != nil && (len(args) == 0 || isHelp(args[0])) {
				return path, cmd, args, nil
			}
			what := "command"
			if cmd != nil {
				what = cmd.name + " command"
			}
			return nil, nil, nil, usagef("no %s %q%s (connectd help)", what, args[0], settings.DidYouMean(args[0], names(level)))
		}
		cmd, path, args = level[i], append(path, level[i].name), args[1:]
		if cmd.subs == nil {
			return path, cmd, args, nil
		}
		level = cmd.subs
	}
}

// names lists the commands that are not hidden.
func names(level []*command) []string {
	var list []string
	for _, c := range level {
		if !c.hidden {
			list = append(list, c.name)
		}
	}
	return list
}

// parse reads flags wherever they stand among the operands, as people type them; after "--" all are operands.
func parse(fs *flag.FlagSet, args []string) (operands []string, err error) {
	var tail []string
	if i := slices.Index(args, "--"); i >= 0 {
		args, tail = args[:i], args[i+1:]
	}
	for {
		if err := fs.Parse(args); err != nil {
			return nil, flagError(fs, err)
		}
		if fs.NArg() == 0 {
			return append(operands, tail...), nil
		}
		operands, args = append(operands, fs.Arg(0)), fs.Args()[1:]
	}
}

// flagError puts package flag's error into this program's words.
func flagError(fs *flag.FlagSet, err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	wrong, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	var valid []string
	fs.VisitAll(func(f *flag.Flag) { valid = append(valid, dashed(f.Name)) })
	if !unknown {
		text := err.Error()
		for _, name := range valid {
			text = strings.Replace(text, " -"+strings.TrimLeft(name, "-"), " "+name, 1)
		}
		return usagef("%s: %s (connectd help %s)", fs.Name(), text, fs.Name())
	}
	wrong = dashed(strings.TrimLeft(wrong, "-"))
	return usagef("%s has no flag %q%s (connectd help %s)", fs.Name(), wrong, settings.DidYouMean(wrong, valid), fs.Name())
}

// dashed writes a flag's name as people type it.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}
