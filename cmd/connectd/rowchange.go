package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/connectd/connectd/core"
)

// changeView is one changed row in JSON.
type changeView struct {
	Connector string `json:"connector,omitempty"`
	ID        string `json:"id"`
	Done      bool   `json:"done"`
	Error     string `json:"error,omitempty"`
}

// change makes the action of `rows retry`, `rows skip` and `rows release`: all rows are found first and then changed
// in the order of their tables, so that rows of one key are retried in their order. A row that cannot be changed does
// not stop the others.
func change(verb string) rowsAction {
	return func(ctx context.Context, p *program, tables []table, req rowsRequest) error {
		var rows []found
		views := []changeView{}
		var failed error
		fail := func(connector, id string, err error) {
			p.complain(err)
			views = append(views, changeView{connector, id, false, err.Error()})
			failed = errReported
		}
		if req.seqs != nil {
			var err error
			if req.ids, err = inRange(ctx, p, tables, *req.seqs, verb, req.ids); err != nil {
				return err
			}
		}
		for _, id := range unique(req.ids) {
			f, err := lookup(ctx, tables, id)
			if err != nil {
				fail("", id, err)
				continue
			}
			rows = append(rows, f)
		}
		slices.SortStableFunc(rows, func(a, b found) int { return cmp.Compare(a.row.Seq, b.row.Seq) })
		by := operator(p.env)
		for _, f := range rows {
			if err := changeRow(ctx, f, verb, by); err != nil {
				fail(f.table.connector, f.row.ID, err)
				continue
			}
			views = append(views, changeView{Connector: f.table.connector, ID: f.row.ID, Done: true})
			if !req.json {
				fmt.Fprintf(p.stdout, "%s %s\n", past(verb), line(f.row.ID, 512))
			}
		}
		if req.json {
			if err := printJSON(p.stdout, views); err != nil {
				return err
			}
		}
		return failed
	}
}

// inRange adds to the ids those of the rows in a range that the verb is for. It stops after maxListed of them, and says so.
func inRange(ctx context.Context, p *program, tables []table, r seqRange, verb string, ids []string) ([]string, error) {
	if len(tables) != 1 {
		return nil, usagef("--seq needs --connector NAME: each connector's table has its own seqs")
	}
	var rows []core.RowInfo
	for _, state := range map[string][]core.State{"retry": {core.Dead}, "release": {core.Held}, "skip": {core.Dead, core.Held}}[verb] {
		list, err := tables[0].ops.List(ctx, core.Filter{State: state, After: r.from - 1, Limit: maxListed})
		if err != nil {
			return nil, fmt.Errorf("%s: list rows that are %s: %w", tables[0].connector, state, err)
		}
		for _, row := range list {
			if row.Seq <= r.to {
				rows = append(rows, row)
			}
		}
	}
	slices.SortFunc(rows, func(a, b core.RowInfo) int { return cmp.Compare(a.Seq, b.Seq) })
	if len(rows) > maxListed {
		rows = rows[:maxListed]
	}
	if len(rows) == maxListed {
		fmt.Fprintf(p.stderr, "at most %d rows at once; go on with --seq %d-%d\n", maxListed, rows[maxListed-1].Seq+1, r.to)
	}
	if len(rows) == 0 {
		fmt.Fprintln(p.stderr, "no such rows")
	}
	for _, row := range rows {
		ids = append(ids, row.ID)
	}
	return ids, nil
}

func changeRow(ctx context.Context, f found, verb, by string) error {
	var err error
	switch verb {
	case "retry":
		err = f.table.ops.Retry(ctx, core.Act{ID: f.row.ID, By: by})
	case "skip":
		err = f.table.ops.Skip(ctx, core.Act{ID: f.row.ID, By: by})
	case "release":
		err = f.table.ops.ReleaseRow(ctx, core.Act{ID: f.row.ID, By: by})
	}
	var wrong *core.StateError
	switch {
	case errors.As(err, &wrong) && verb == "retry" && wrong.State == core.Held:
		return fmt.Errorf("%s: %w; it may have been sent: connectd rows explain %s", f.table.connector, err, argument(f.row.ID))
	case errors.As(err, &wrong) && verb == "release" && wrong.State == core.Dead:
		return fmt.Errorf("%s: %w; a dead row is sent again by: connectd rows retry %s", f.table.connector, err, argument(f.row.ID))
	case err != nil:
		return fmt.Errorf("%s: %s row %s: %w", f.table.connector, verb, line(f.row.ID, 128), err)
	}
	return nil
}

func past(verb string) string {
	switch verb {
	case "retry":
		return "retried"
	case "skip":
		return "skipped"
	default:
		return "released"
	}
}

func unique(ids []string) []string {
	seen := make(map[string]bool, len(ids))
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		again := seen[id]
		seen[id] = true
		return again
	})
}

// operator names who runs this command, for a row's history.
func operator(env func(string) (string, bool)) string {
	user := "unknown"
	for _, name := range []string{"SUDO_USER", "USER", "LOGNAME"} {
		if v, ok := env(name); ok && v != "" {
			user = v
			break
		}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return core.CleanText("cli:" + user + "@" + host)
}
