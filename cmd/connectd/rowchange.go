package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/connectd/connectd/cmd/connectd/rowwork"
	"github.com/connectd/connectd/core"
)

// changeRequest is a parsed command line of `connectd rows retry`, `skip` or `release`.
type changeRequest struct {
	verb    rowwork.Verb
	json    bool
	ids     []string
	filter  *core.Filter // these rows too, of one connector; nil: none
	why, by string
	dryRun  bool
	edit    core.Edit
}

// changeFlags are the flags of such a command line.
type changeFlags struct {
	sel              *selection
	filter           func() (core.Filter, error)
	json, all        bool
	seqs, why        string
	dryRun           bool
	payload, headers string // files
}

// choosing is said of all of them.
const choosing = `

Rows are named by their IDs ("-" reads them from stdin, one a line, as they are or as JSON strings), by --seq, or
chosen by the other flags, which must all hold; --all takes all that the command is for. They are changed in the
order of their table, one by one, and one that cannot be changed does not stop the others: the exit code is then 1.
--dry-run shows which rows it would be.`

// changeCmd makes one of the commands that change rows.
func changeCmd(verb rowwork.Verb, short, long string) *command {
	return &command{name: string(verb), args: "[ID...]", short: short, long: long + choosing,
		bind: func(p *program, fs *flag.FlagSet) func(context.Context, []string) error {
			f := changeFlags{sel: p.selection(fs)}
			var states []string
			for _, state := range verb.From() {
				states = append(states, string(state))
			}
			f.filter = filterFlags(fs, states)
			fs.BoolVar(&f.json, "json", false, "print JSON")
			fs.StringVar(&f.seqs, "seq", "", "only rows with a seq in `FROM-TO`")
			fs.BoolVar(&f.all, "all", false, "all rows that are "+strings.Join(states, " or "))
			fs.StringVar(&f.why, "why", "", "`TEXT` for the rows' history, beside who and when")
			fs.BoolVar(&f.dryRun, "dry-run", false, "show which rows would be changed, and change nothing")
			if verb == rowwork.Retry {
				fs.StringVar(&f.payload, "payload", "", "send one row with the bytes of this `FILE|-` as its payload")
				fs.StringVar(&f.headers, "headers", "", "send one row with this `FILE|-`, a JSON object, as its headers")
			}
			return func(ctx context.Context, operands []string) error {
				req, err := f.request(p, verb, fs, operands)
				if err != nil {
					return err
				}
				return f.sel.withTables(ctx, func(tables []table) error { return change(ctx, p, tables, req) })
			}
		},
	}
}

// request reads the flags and what they name.
func (f *changeFlags) request(p *program, verb rowwork.Verb, fs *flag.FlagSet, operands []string) (req changeRequest, err error) {
	req = changeRequest{verb: verb, json: f.json, why: f.why, dryRun: f.dryRun, by: operator(p.env)}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	filter, err := f.filter()
	if err != nil {
		return req, err
	}
	if filter.State != "" && !slices.Contains(verb.From(), filter.State) {
		return req, usagef("no row that is %s can be %s", filter.State, verb.Past())
	}
	if given["seq"] {
		r, err := parseRange(f.seqs)
		if err != nil {
			return req, err
		}
		filter.After, filter.UpTo = r.from-1, r.to
	}
	choosing := given["seq"] || slices.ContainsFunc(rowwork.FilterNames(), func(name string) bool { return given[name] })
	switch {
	case f.all && (choosing || len(operands) > 0):
		return req, usagef("--all is all of them: give no IDs, no --seq and no filter with it")
	case !f.all && !choosing && len(operands) == 0:
		return req, usagef("rows %s needs at least one ID, a filter or --all; the IDs: connectd rows list", verb)
	case f.all || choosing:
		req.filter = &filter
		f.sel.single = "all rows of a kind are those of one table"
	}
	if given["payload"] || given["headers"] {
		if err := f.readEdit(p, given, operands, &req); err != nil {
			return req, err
		}
	}
	if req.ids, err = p.ids(operands); err != nil {
		return req, err
	}
	if !req.edit.Empty() && len(req.ids) != 1 {
		return req, usagef("--payload and --headers are for one row, and there are %d IDs", len(req.ids))
	}
	return req, nil
}

// maxContent bounds what a row is given, in bytes.
const maxContent = 64 << 20

// readEdit reads what the one row is to have.
func (f *changeFlags) readEdit(p *program, given map[string]bool, operands []string, req *changeRequest) error {
	stdin := 0
	for _, name := range append([]string{f.payload, f.headers}, operands...) {
		if name == "-" {
			stdin++
		}
	}
	switch {
	case req.filter != nil || len(operands) != 1:
		return usagef("--payload and --headers are for one row, named by its ID")
	case stdin > 1:
		return usagef("stdin can be only one of the ID, --payload and --headers")
	}
	if given["payload"] {
		data, err := p.readContent(f.payload)
		if err != nil {
			return fmt.Errorf("read the payload: %w", err)
		}
		req.edit.Payload = data
	}
	if given["headers"] {
		data, err := p.readContent(f.headers)
		if err != nil {
			return fmt.Errorf("read the headers: %w", err)
		}
		text := string(data)
		req.edit.Headers = &text
	}
	return nil
}

// readContent reads a file, or stdin for "-", whole. What it returns is not nil.
func (p *program) readContent(name string) ([]byte, error) {
	in := p.stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, maxContent+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxContent:
		return nil, fmt.Errorf("it is larger than %d bytes", maxContent)
	}
	return data, nil
}

// seqRange is rows by their seq, both ends included.
type seqRange struct{ from, to int64 }

func parseRange(text string) (r seqRange, err error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	if r.from, err = strconv.ParseInt(from, 10, 64); err == nil {
		r.to, err = strconv.ParseInt(to, 10, 64)
	}
	if err != nil || r.from < 1 || r.to < r.from {
		return r, usagef("--seq is %q, must be a number or FROM-TO", text)
	}
	return r, nil
}

// change does what a command line asks for: the rows that it names are found first.
func change(ctx context.Context, p *program, tables []table, req changeRequest) error {
	c := &changing{p: p, req: req, out: jsonArray{w: p.stdout}, told: time.Now()}
	picked := map[string][]core.RowInfo{}
	seen := map[string]bool{}
	for _, id := range req.ids {
		if seen[id] {
			continue
		}
		seen[id] = true
		f, err := lookup(ctx, tables, id)
		if err != nil {
			c.fail(rowwork.Changed{ID: id}, err)
			continue
		}
		f.row.Payload = nil // of many rows that would be much
		picked[f.table.connector] = append(picked[f.table.connector], f.row)
	}
	for _, t := range tables {
		if req.filter == nil && len(picked[t.connector]) == 0 {
			continue
		}
		c.table = t
		w := rowwork.Work{
			Connector: t.connector, Rows: t.ops, Verb: req.verb, Picked: picked[t.connector], Filter: req.filter,
			By: req.by, Why: req.why, Edit: req.edit, DryRun: req.dryRun,
		}
		if _, err := w.Do(ctx, c.report); err != nil {
			p.complain(fmt.Errorf("%s: %w", t.connector, err))
			c.failed = errReported
		}
	}
	return c.end()
}

// changing prints what becomes of rows.
type changing struct {
	p         *program
	req       changeRequest
	table     table // of the row that is reported
	out       jsonArray
	lines     [][]string // of a dry run, for people
	done, not int
	told      time.Time // when people were told last how far it is
	failed    error
}

// tellEvery is how often people are told how far it is.
const tellEvery = 2 * time.Second

// report prints what became of a row.
func (c *changing) report(r rowwork.Result) bool {
	view := rowwork.Changed{Connector: c.table.connector, Seq: r.Row.Seq, ID: r.Row.ID, DryRun: c.req.dryRun, Warning: r.Warning}
	if r.Err != nil {
		c.fail(view, c.explained(r))
	} else {
		c.done++
		view.Done = !c.req.dryRun
		switch {
		case c.req.json:
			c.out.add(view)
		case c.req.dryRun:
			if c.lines = append(c.lines, rowLine(c.table.connector, r.Row, time.Now())); len(c.lines) == maxDryLines {
				c.flush()
			}
		default:
			fmt.Fprintf(c.p.stdout, "%s %s\n", c.req.verb.Past(), line(r.Row.ID, 512))
		}
		if r.Warning != "" {
			fmt.Fprintf(c.p.stderr, "row %s: %s\n", line(r.Row.ID, 128), line(r.Warning, 1024))
		}
	}
	if now := time.Now(); now.Sub(c.told) >= tellEvery {
		c.told = now
		fmt.Fprintf(c.p.stderr, "%s: %s; at seq %d\n", c.table.connector, c.soFar(), r.Row.Seq)
	}
	return true
}

// explained is why a row was not changed, with what to do instead.
func (c *changing) explained(r rowwork.Result) error {
	var wrong *core.StateError
	var done *rowwork.DoneError
	switch {
	case errors.As(r.Err, &done):
		return fmt.Errorf("%s: row %s is left as it is, for %s has done it: connectd rows skip %s; or name it by its id to send it again", c.table.connector,
			line(r.Row.ID, 128), line(done.By, 80), argument(r.Row.ID))
	case errors.As(r.Err, &wrong) && c.req.verb == rowwork.Retry && wrong.State == core.Held:
		return fmt.Errorf("%s: %w; it may have been sent: connectd rows explain %s", c.table.connector, r.Err, argument(r.Row.ID))
	case errors.As(r.Err, &wrong) && c.req.verb == rowwork.Release && wrong.State == core.Dead:
		return fmt.Errorf("%s: %w; a dead row is sent again by: connectd rows retry %s", c.table.connector, r.Err, argument(r.Row.ID))
	default:
		return fmt.Errorf("%s: %s row %s: %w", c.table.connector, c.req.verb, line(r.Row.ID, 128), r.Err)
	}
}

// fail notes a row that was not changed.
func (c *changing) fail(view rowwork.Changed, err error) {
	c.not++
	c.p.complain(err)
	if view.Error = err.Error(); c.req.json {
		c.out.add(view)
	}
	c.failed = errReported
}

// maxDryLines are printed at once: the columns of a table are as wide as its widest line.
const maxDryLines = 1000

// flush prints the lines of a dry run.
func (c *changing) flush() {
	if len(c.lines) > 0 {
		if err := printTable(c.p.stdout, rowHeading(), c.lines); err != nil {
			c.failed = err
		}
	}
	c.lines = c.lines[:0]
}

// soFar says how many rows were changed, or would be, and how many not.
func (c *changing) soFar() string {
	text := counted(c.done, "row") + " " + c.req.verb.Past()
	if c.req.dryRun {
		text = counted(c.done, "row") + " would be " + c.req.verb.Past()
	}
	if c.not > 0 {
		text += ", " + strconv.Itoa(c.not) + " could not be"
	}
	return text
}

// end prints what is left to print, and says how it went where nobody could count that beforehand.
func (c *changing) end() error {
	c.flush()
	if c.req.json {
		if err := c.out.end(); err != nil {
			return err
		}
	}
	switch {
	case c.req.dryRun:
		fmt.Fprintf(c.p.stderr, "dry run: %s; nothing was changed\n", c.soFar())
	case c.req.filter == nil:
	case c.done+c.not == 0 && c.failed == nil:
		fmt.Fprintln(c.p.stderr, "no such rows")
	default:
		fmt.Fprintln(c.p.stderr, c.soFar())
	}
	return c.failed
}

// operator names who runs this command, for a row's history.
func operator(env func(string) (string, bool)) string {
	name := userName(os.Getuid(), env, user.LookupId)
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return core.CleanText("cli:" + name + "@" + host)
}

// userName is the user's name as the session has it or, where it has none (cron, systemd, containers), as the system does.
func userName(uid int, env func(string) (string, bool), lookup func(uid string) (*user.User, error)) string {
	for _, name := range []string{"SUDO_USER", "USER", "LOGNAME"} {
		if v, ok := env(name); ok && v != "" {
			return v
		}
	}
	if uid < 0 { // the system has no such numbers
		return "unknown"
	}
	if u, err := lookup(strconv.Itoa(uid)); err == nil && u.Username != "" {
		return u.Username
	}
	return "uid " + strconv.Itoa(uid)
}
