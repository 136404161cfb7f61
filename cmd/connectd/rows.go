package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/settings"
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

func rowsCommand() *command {
	return &command{
		name: "rows", short: "list, show, explain, retry, skip and release rows",
		long: "A row that failed for good is dead; one that may have been sent already and must not be sent\n" +
			"again unasked is held. Both wait here for a person.",
		subs: []*command{
			rowsCmd("list", "", "list rows in the order of their table",
				"Without --state the rows of every state are listed. When there are more than --limit, the last line\nsays how to go on.", rowsList),
			rowsCmd("show", "ID...", "show rows with payload, headers and history", "", rowsShow),
			rowsCmd("explain", "ID...", "say why a row is where it is, and what can be done", "", rowsExplain),
			rowsCmd("retry", "ID...", "send dead rows again",
				"The rows are retried in the order of their table, whatever the order of the IDs. \"-\" reads IDs from\n"+
					"stdin, one a line; --seq names dead rows by their seq. A row keeps its id, so the consumer can still tell a repeat. A running daemon notices within\n"+
					"a third of its lease.", change("retry")),
			rowsCmd("skip", "ID...", "give up dead or held rows",
				"A skipped row is settled without being sent; later rows of its key no longer wait for it. \"-\" reads IDs from\nstdin, one a line; --seq names dead and held rows by their seq.", change("skip")),
			rowsCmd("release", "ID...", "send held rows, which may have been sent before",
				"Look first whether the destination has the row's id. \"-\" reads IDs from stdin, one a line; --seq\nnames held rows by their seq.", change("release")),
		},
	}
}

// rowsRequest is a parsed `connectd rows` command line.
type rowsRequest struct {
	state core.State
	limit int
	after int64
	json  bool
	ids   []string
	seqs  *seqRange // of retry, skip and release: these rows too, of one connector
}

// seqRange is rows by their seq, both ends included.
type seqRange struct{ from, to int64 }

func parseRange(text string) (*seqRange, error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	var r seqRange
	var err error
	if r.from, err = strconv.ParseInt(from, 10, 64); err == nil {
		r.to, err = strconv.ParseInt(to, 10, 64)
	}
	if err != nil || r.from < 1 || r.to < r.from {
		return nil, usagef("--seq is %q, must be a number or FROM-TO", text)
	}
	return &r, nil
}

type rowsAction func(ctx context.Context, p *program, tables []table, req rowsRequest) error

// rowsCmd makes one of the commands below `rows`; those with operands need at least one ID.
func rowsCmd(name, args, short, long string, do rowsAction) *command {
	return &command{name: name, args: args, short: short, long: long,
		bind: func(p *program, fs *flag.FlagSet) func(context.Context, []string) error {
			sel := p.selection(fs)
			var req rowsRequest
			fs.BoolVar(&req.json, "json", false, "print JSON")
			state, seqs := new(string), new(string)
			changes := slices.Contains([]string{"retry", "skip", "release"}, name)
			if changes {
				fs.StringVar(seqs, "seq", "", "all such rows with a seq in `FROM-TO`, of one connector")
			}
			if name == "list" {
				fs.StringVar(state, "state", "", "only rows in this `STATE`: "+strings.Join(stateNames(), ", "))
				fs.IntVar(&req.limit, "limit", 100, "list at most `N` rows of a connector")
				fs.Int64Var(&req.after, "after", 0, "list rows whose seq is above `SEQ`")
			}
			return func(ctx context.Context, operands []string) error {
				if req.state = core.State(*state); *state != "" && !slices.Contains(stateNames(), *state) {
					return usagef("no state %q%s", *state, settings.DidYouMean(*state, stateNames()))
				}
				if name == "list" && (req.limit < 1 || req.limit > maxListed) {
					return usagef("--limit is %d, must be 1 to %d", req.limit, maxListed)
				}
				ids, err := p.ids(operands)
				if err != nil {
					return err
				}
				if *seqs != "" {
					if req.seqs, err = parseRange(*seqs); err != nil {
						return err
					}
				}
				if req.ids = ids; (len(ids) > 0 || req.seqs != nil) != (args != "") {
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

func stateNames() []string {
	return []string{string(core.Pending), string(core.Published), string(core.Dead), string(core.Held), string(core.Skipped)}
}

// ids returns the operands, with "-" replaced by the lines of stdin.
func (p *program) ids(operands []string) ([]string, error) {
	var list []string
	for _, o := range operands {
		if o != "-" {
			list = append(list, o)
			continue
		}
		lines := bufio.NewScanner(p.stdin)
		for lines.Scan() {
			if id := strings.TrimSpace(lines.Text()); id != "" {
				list = append(list, id)
			}
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("read IDs from stdin: %w", err)
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
			return found{}, fmt.Errorf("%s: show row %s: %w", t.connector, id, err)
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
