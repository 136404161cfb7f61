package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/connectd/connectd/core"
)

// explanation says why a row is where it is, in JSON.
type explanation struct {
	Connector string   `json:"connector,omitempty"`
	ID        string   `json:"id"`
	State     string   `json:"state"`
	Why       []string `json:"why"`
	Do        string   `json:"do,omitempty"` // what a person can do, if anything
}

// rowsExplain explains each row.
func rowsExplain(ctx context.Context, p *program, tables []table, req rowsRequest) error {
	list := []explanation{}
	var failed error
	for _, id := range req.ids {
		e, err := explain(ctx, tables, id, time.Now())
		if err != nil {
			fmt.Fprintf(p.stderr, "connectd: %v\n", err)
			failed = errReported
			continue
		}
		if e.State == notFound {
			failed = errReported
		}
		list = append(list, e)
	}
	if req.json {
		if err := printJSON(p.stdout, list); err != nil {
			return err
		}
		return failed
	}
	for _, e := range list {
		where := ""
		if e.Connector != "" {
			where = " (" + e.Connector + ")"
		}
		fmt.Fprintf(p.stdout, "%s%s: %s\n", line(e.ID, 512), where, e.State)
		for _, why := range e.Why {
			fmt.Fprintf(p.stdout, "  %s\n", why)
		}
		if e.Do != "" {
			fmt.Fprintf(p.stdout, "  what to do: %s\n", e.Do)
		}
	}
	return failed
}

const notFound = "not found"

// explain looks at the row, and where it waits at what it waits for.
func explain(ctx context.Context, tables []table, id string, now time.Time) (explanation, error) {
	f, err := lookup(ctx, tables, id)
	if errors.Is(err, core.ErrNoRow) {
		return explanation{ID: id, State: notFound, Why: []string{
			"No row has this id in the table of " + connectorNames(tables) + ".",
			"Its transaction was rolled back or is still open, or it was published and cleaned up after the retention time.",
		}}, nil
	}
	if err != nil {
		return explanation{}, err
	}
	e := explanation{Connector: f.table.connector, ID: id, State: stateText(f.row)}
	switch f.row.State {
	case core.Published:
		e.Why = []string{fmt.Sprintf("The sink confirmed it%s; %s.", at(f.row.PublishedAt), sends(sendCount(f.row)))}
	case core.Skipped:
		e.Why = []string{"It was given up" + byWhom(f.history) + " and will not be sent."}
	case core.Dead:
		e.Why, e.Do = explainDead(f)
	case core.Held:
		e.Why, e.Do = explainHeld(f)
	case core.Pending:
		e.Why, err = explainPending(ctx, f, now)
	default:
		e.Why = []string{"connectd knows no such state, so it never looks at the row: something else wrote it."}
		e.Do = "set its state to 'pending' to have it sent within a minute or two, or to 'skipped' to be done with it"
	}
	return e, err
}

func explainDead(f found) (why []string, do string) {
	switch n := len(f.history); {
	case n > 0 && f.history[n-1].Refused() && sendCount(f.row) == 0:
		why = []string{"It was refused without ever being sent" + reason(f) + "."}
	case n > 0 && f.history[n-1].Refused():
		why = []string{fmt.Sprintf("It was refused without being sent again after %s%s.", sends(sendCount(f.row)), reason(f))}
	default:
		why = []string{fmt.Sprintf("It failed for good after %s%s.", sends(sendCount(f.row)), reason(f))}
	}
	if f.row.Keyed && f.table.policy.Ordered {
		if f.table.policy.BlockOnDead {
			why = append(why, "Later rows of its key wait until it is retried or skipped (on_dead: block).")
		} else {
			why = append(why, "Later rows of its key go on without it (on_dead: continue).")
		}
	}
	id := argument(f.row.ID)
	return why, fmt.Sprintf("mend the cause, then connectd rows retry %s; or give it up: connectd rows skip %s", id, id)
}

func explainHeld(f found) (why []string, do string) {
	why = []string{
		"It may have been sent before, and on_uncertain: hold sends such rows only when a person says so" + reason(f) + ".",
	}
	if f.row.Keyed && f.table.policy.Ordered {
		why = append(why, "Later rows of its key wait for it.")
	}
	id := argument(f.row.ID)
	return why, fmt.Sprintf("look whether the destination has id %s; if not, connectd rows release %s; if so, connectd rows skip %s", id, id, id)
}

// argument writes an id as a word of a command that may be copied into a shell.
func argument(id string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@+="
	printable := line(id, len(id)+1) == id
	switch {
	case id != "" && strings.Trim(id, plain) == "":
		return id
	case printable:
		return "'" + strings.ReplaceAll(id, "'", `'\''`) + "'"
	default:
		return "- (and its id on standard input)"
	}
}

// explainPending gives every reason that holds back a pending row.
func explainPending(ctx context.Context, f found, now time.Time) ([]string, error) {
	leases, err := f.table.ops.Leases(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: read the leases: %w", f.table.connector, err)
	}
	workers, err := f.table.ops.Workers(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: read the workers: %w", f.table.connector, err)
	}
	var lease core.LeaseInfo
	if i := slices.IndexFunc(leases, func(l core.LeaseInfo) bool { return l.Part == f.row.Part }); i >= 0 {
		lease = leases[i]
	}
	owned := lease.Owner != "" && lease.Left > 0
	if f.row.Sending {
		if owned {
			return []string{fmt.Sprintf("Worker %s is sending it; its lease ends in %s unless it is renewed (%s).", lease.Owner,
				span(lease.Left), stamp(now.Add(lease.Left)))}, nil
		}
		return []string{"A worker that is gone was sending it. The next worker takes it over and sends it again with the possible-duplicate mark" +
			noWorker(workers, f.table.policy.Lease) + "."}, nil
	}
	var why []string
	if f.row.AvailableAt.After(now) {
		why = append(why, fmt.Sprintf("It is due at %s, in %s: it failed %s%s.", stamp(f.row.AvailableAt), span(f.row.AvailableAt.Sub(now)),
			times(f.row.Attempts), reason(f)))
	}
	switch n := len(f.history); {
	case n > 0 && (f.history[n-1].Code == "retry" || f.history[n-1].Code == "release"):
		why = append(why, "It was put back"+byWhom(f.history)+".")
	case len(why) == 0 && f.row.LastError != "":
		why = append(why, fmt.Sprintf("Its last send failed, after %s%s. It is tried again.", sends(sendCount(f.row)), reason(f)))
	}
	before, err := ahead(ctx, f)
	if err != nil {
		return nil, err
	}
	if before != nil {
		why = append(why, fmt.Sprintf("It waits behind row %d (id %s) of its key, which is %s%s.", before.Seq, line(before.ID, 128),
			stateText(*before), dueText(*before, now)))
	}
	switch {
	case !owned:
		why = append(why, fmt.Sprintf("No worker has its partition (%d)%s.", f.row.Part, noWorker(workers, f.table.policy.Lease)))
	case gateReason(workers, lease.Owner) != "":
		why = append(why, fmt.Sprintf("Worker %s has its partition but cannot send: %s.", lease.Owner, gateReason(workers, lease.Owner)))
	case len(why) == 0 || before == nil && !f.row.AvailableAt.After(now):
		why = append(why, fmt.Sprintf("It is due, and worker %s has its partition (%d): it goes as soon as the rows before it are on their way.",
			lease.Owner, f.row.Part))
	}
	return why, nil
}

// ahead returns the row that the row must wait for: the first unfinished one of its key, if that is an earlier one.
func ahead(ctx context.Context, f found) (*core.RowInfo, error) {
	if !f.row.Keyed || f.row.Key == "" || !f.table.policy.Ordered {
		return nil, nil
	}
	states := []core.State{core.Pending, core.Held}
	if f.table.policy.BlockOnDead {
		states = append(states, core.Dead)
	}
	var first *core.RowInfo
	for _, state := range states {
		rows, err := f.table.ops.List(ctx, core.Filter{State: state, Key: f.row.Key, Limit: 1})
		if err != nil {
			return nil, fmt.Errorf("%s: list the rows of key %q: %w", f.table.connector, f.row.Key, err)
		}
		if len(rows) > 0 && rows[0].Seq < f.row.Seq && (first == nil || rows[0].Seq < first.Seq) {
			first = &rows[0]
		}
	}
	return first, nil
}

// noWorker adds, where it holds, that no worker lives.
func noWorker(workers []core.WorkerInfo, lease time.Duration) string {
	for _, w := range workers {
		if w.Age < lease {
			return ""
		}
	}
	return "; no worker is alive (is connectd run running?)"
}

func reason(f found) string {
	code := ""
	if n := len(f.history); n > 0 {
		code = f.history[n-1].Code
	}
	switch {
	case code == "" && f.row.LastError == "":
		return ""
	case f.row.LastError == "" || strings.HasPrefix(f.row.LastError, code):
		return ": " + line(code+strings.TrimPrefix(f.row.LastError, code), core.MaxErrorText)
	case code == "":
		return ": " + line(f.row.LastError, core.MaxErrorText)
	default:
		return ": " + line(code, 64) + ": " + line(f.row.LastError, core.MaxErrorText)
	}
}

func byWhom(history []core.Attempt) string {
	if n := len(history); n > 0 && history[n-1].By != "" {
		return " by " + line(history[n-1].By, 128) + at(history[n-1].At)
	}
	return ""
}

func at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " at " + stamp(t)
}

func dueText(r core.RowInfo, now time.Time) string {
	if r.State == core.Pending && r.AvailableAt.After(now) {
		return ", due in " + span(r.AvailableAt.Sub(now))
	}
	return ""
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// sendCount is how often a row was or may have been sent. Its deliveries count refusals too, for they number the relay's
// writes to the row.
func sendCount(r core.RowInfo) int { return max(r.Deliveries-r.Refused, 0) }

func sends(n int) string {
	if n == 1 {
		return "1 send"
	}
	return fmt.Sprintf("%d sends known or possible", n)
}
