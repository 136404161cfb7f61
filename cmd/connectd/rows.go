package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/connectd/connectd/cmd/connectd/rowwork"
	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
)

// table is one connector's outbox table as the commands see it.
type table struct {
	connector string
	ops       core.Operator
	policy    engine.Policy
	// requireReceipt says that a published row is kept until a consumer has reported it.
	requireReceipt bool
}

// openedTable is a connector's table that was opened.
func openedTable(o opened) table {
	return table{o.Name, o.source, policy(o.Connector), o.Retention.RequireReceipt}
}

// maxListed bounds --limit.
const maxListed = 10_000

const leftDone = "One that a consumer has reported done is sent only if its ID is given, here or on standard input; a filter, --seq or --all leaves it."

func rowsCommand() *command {
	return &command{
		name: "rows", short: "list, show, explain, retry, skip and release rows",
		long: "A row that failed for good is dead; one that may have been sent already and must not be sent\n" +
			"again unasked is held. Both wait here for a person.",
		subs: []*command{
			rowsCmd("list", "", "list rows in the order of their table",
				"Without --state the rows of every state are listed. When there are more than --limit, the last line\nsays how to go on.", rowsList),
			rowsCmd("show", "ID...", "show rows with payload, headers, history and what they were before edits", "", rowsShow),
			rowsCmd("explain", "ID...", "say why a row is where it is, and what can be done", "", rowsExplain),
			changeCmd(rowwork.Retry, "send dead rows again",
				"The rows are retried in the order of their table, whatever the order of the IDs. A row keeps its id, so the\n"+
					"consumer can still tell a repeat. A running daemon notices within a third of its lease.\n"+
					leftDone+"\n\n"+
					"With --payload or --headers one row is sent with other content. The file is taken byte for byte, with the\n"+
					"newline at its end if it has one. What the row was is kept, and rows show shows it."),
			changeCmd(rowwork.Skip, "give up dead or held rows",
				"A skipped row is settled without being sent; later rows of its key no longer wait for it."),
			changeCmd(rowwork.Release, "send held rows, which may have been sent before",
				"Look first whether the destination has the row's id.\n"+leftDone),
		},
	}
}

// rowsRequest is a parsed `connectd rows` command line.
type rowsRequest struct {
	filter core.Filter
	limit  int
	json   bool
	ids    []string
}

type rowsAction func(ctx context.Context, p *program, tables []table, req rowsRequest) error

// rowsCmd makes one of the commands below `rows` that only read; those with operands need at least one ID.
func rowsCmd(name, args, short, long string, do rowsAction) *command {
	return &command{name: name, args: args, short: short, long: long,
		bind: func(p *program, fs *flag.FlagSet) func(context.Context, []string) error {
			sel := p.selection(fs)
			var req rowsRequest
			fs.BoolVar(&req.json, "json", false, "print JSON")
			filter := func() (core.Filter, error) { return core.Filter{}, nil }
			after := int64(math.MinInt64) // a number below 1 is a row too, though it is not sent
			if name == "list" {
				filter = filterFlags(fs, rowwork.States())
				fs.IntVar(&req.limit, "limit", 100, "list at most `N` rows of a connector")
				fs.Func("after", "list rows whose seq is above `SEQ`", func(value string) (err error) {
					if after, err = strconv.ParseInt(value, 10, 64); err != nil {
						return errors.New("must be a number")
					}
					return nil
				})
			}
			return func(ctx context.Context, operands []string) (err error) {
				if req.filter, err = filter(); err != nil {
					return err
				}
				if name == "list" && (req.limit < 1 || req.limit > maxListed) {
					return usagef("--limit is %d, must be 1 to %d", req.limit, maxListed)
				}
				req.filter.After, req.filter.Limit = after, req.limit
				if req.ids, err = p.ids(operands); err != nil {
					return err
				}
				if len(req.ids) > 0 != (args != "") {
					if args == "" {
						return usagef("rows list takes no IDs; one row: connectd rows show %s", operands[0])
					}
					return usagef("rows %s needs at least one ID; the IDs: connectd rows list", name)
				}
				return sel.withTables(ctx, func(tables []table) error { return do(ctx, p, tables, req) })
			}
		},
	}
}

// filterFlags declares the flags that choose rows. The function it returns reads them; a flag that is there and empty is
// wrong.
func filterFlags(fs *flag.FlagSet, states []string) func() (core.Filter, error) {
	fields := map[string]string{}
	usages := map[string]string{
		"state": "only rows in this `STATE`: " + strings.Join(states, ", "), "key": "only rows of this ordering `KEY`", "type": "only rows of this `TYPE`",
		"reason": "only rows whose last error contains `TEXT`, to the letter", "older": "only rows that were created this `DURATION` ago or earlier, as 90m or 7d",
		"newer": "only rows that were created within this `DURATION`",
	}
	for _, name := range rowwork.FilterNames() {
		fs.Func(name, usages[name], func(value string) error {
			fields[name] = value
			return nil
		})
	}
	return func() (core.Filter, error) {
		f, err := rowwork.ParseFilter(fields)
		if err != nil {
			return f, usagef("--%v", err)
		}
		return f, nil
	}
}

// maxID bounds a line of stdin, in bytes. Databases take long ids where these compress well.
const maxID = 16 << 20

// idOf reads a line of stdin: a JSON string, which is taken to the letter, or an id as it is, without blanks around it.
// Only the string can be trusted with any id: one with a newline would else be taken for two, and name rows of others.
func idOf(text string) (id string, there bool) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, `"`) && json.Unmarshal([]byte(text), &id) == nil {
		return id, true
	}
	return text, text != ""
}

// ids returns the operands, with "-" replaced by the lines of stdin.
func (p *program) ids(operands []string) ([]string, error) {
	var list []string
	for _, o := range operands {
		if o != "-" {
			list = append(list, o)
			continue
		}
		before := len(list)
		lines := bufio.NewScanner(p.stdin)
		lines.Buffer(nil, maxID)
		for lines.Scan() {
			if id, there := idOf(lines.Text()); there {
				list = append(list, id)
			}
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("read IDs from stdin: line %d: %w", len(list)+1, err)
		}
		if len(list) == before {
			fmt.Fprintln(p.stderr, "no IDs came on standard input")
		}
	}
	return list, nil
}

// found is a row and the table it is in.
type found struct {
	table   table
	row     core.RowInfo
	history []core.Attempt
}

// lookup finds the row with this id among the tables. An id that is in several tables is an error that says so: the
// right one is for the caller to choose.
func lookup(ctx context.Context, tables []table, id string) (found, error) {
	var all []found
	for _, t := range tables {
		row, history, err := t.ops.Show(ctx, id)
		switch {
		case err == nil:
			all = append(all, found{t, row, history})
		case !errors.Is(err, core.ErrNoRow):
			return found{}, fmt.Errorf("%s: show row %s: %w", t.connector, line(id, 128), err)
		}
	}
	switch len(all) {
	case 0:
		return found{}, fmt.Errorf("%w with id %q in %s", core.ErrNoRow, id, connectorNames(tables))
	case 1:
		return all[0], nil
	default:
		tables = tables[:0:0]
		for _, f := range all {
			tables = append(tables, f.table)
		}
		return found{}, fmt.Errorf("id %q is in the tables of %s; choose with --connector", id, connectorNames(tables))
	}
}

func connectorNames(tables []table) string {
	list := make([]string, len(tables))
	for i, t := range tables {
		list[i] = t.connector
	}
	return strings.Join(list, ", ")
}
