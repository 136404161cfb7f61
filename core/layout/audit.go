package layout

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/connectd/connectd/core"
)

// AuditSQL is what an audit reads, in the words of one database. Those called entries are queries of two columns: an id as
// text that is compared byte by byte, and a number that says what has that id, one of the constants below.
type AuditSQL struct {
	Rows     string   // entries: RowEntry or LateEntry
	Cleaned  string   // entries: CleanedEntry
	Receipts string   // entries: ReceiptEntry or DoneEntry
	Events   string   // entries: EventEntry; "" without a rule
	Links    string   // entries: RowEntry with the key of the row's event instead of its id; "" unless the rule joins
	Others   []string // entries of the other outbox tables that share the receipts: OtherEntry
	Big      string   // hint after SELECT that many groups are expected

	States string // state, count of rows
	Ledger string // count of rows that were cleaned or deleted when they were published

	Strange   string // ids of rows in no state that there is
	Abandoned string // leases that nobody alive holds, for people
	Stray     string // inflight rows of no lease, for people

	Unread []Unread // other outbox tables that are not among Others
}

// Fill completes the names in the queries that are the relay's own, and leaves the operator's SQL as it is. now is the
// database's clock when the snapshot was taken, as a value in SQL: what is read may be minutes old when it is compared.
func (q AuditSQL) Fill(fill func(string) string, now string) AuditSQL {
	for _, text := range []*string{&q.Rows, &q.Cleaned, &q.Receipts, &q.States, &q.Ledger, &q.Strange, &q.Abandoned, &q.Stray} {
		*text = fill(strings.ReplaceAll(*text, "{now}", now))
	}
	return q
}

// Owes is the condition that a receipt is owed for a row, by which cleaners and audits go: it is published, and connectd has
// sent it. A row that was published before connectd knew the table has no deliveries; each that connectd publishes has one.
const Owes = `{state} = 'published' AND {deliveries} > 0`

// What has an id.
const (
	EventEntry = 1 + iota
	RowEntry
	LateEntry // a row that should have a receipt by now
	CleanedEntry
	ReceiptEntry
	DoneEntry
	OtherEntry // a row of another outbox table, or one that it cleaned
)

// Ask runs a query in the audit's snapshot and calls row for each row of the answer.
type Ask func(ctx context.Context, query string, row func(scan func(dest ...any) error) error) error

// RunAudit asks what an audit must know and judges it.
func RunAudit(ctx context.Context, req core.AuditRequest, q AuditSQL, ask Ask) (core.Audit, error) {
	a := auditor{req: req, q: q, ask: ask, vouched: q.Events != "" && q.Links == ""}
	audit := core.Audit{At: time.Now()}
	for _, q := range a.queries() {
		if err := ask(ctx, `SELECT * FROM (`+q.text+"\n"+`) x LIMIT 0`, func(func(...any) error) error { return nil }); err != nil {
			return core.Audit{}, fmt.Errorf("%s: %w", q.about, err)
		}
	}
	if req.Dry {
		return audit, nil
	}
	for _, step := range []struct {
		what string
		run  func(context.Context) error
	}{
		{"rows by state, and how many there are of everything", a.count},
		{"events (audit.events), rows and receipts by id", a.matchIDs},
		{"rows by their events (audit.events)", a.matchLinks},
		{"leases and inflight rows", a.readLeases},
	} {
		if req.Progress != nil {
			req.Progress(step.what)
		}
		if err := step.run(ctx); err != nil {
			return core.Audit{}, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	audit.Took = time.Since(audit.At)
	audit.Laws = a.judge()
	return audit, nil
}

// query is what is asked, and what about.
type query struct{ about, text string }

// queries are all that an audit rests on. Each is tried before anything is read, so that the error says which is wrong: in those
// that follow they are together.
func (a *auditor) queries() []query {
	list := []query{
		{"the events (audit.events)", a.q.Events}, {"the rows' events (audit.events.join)", a.q.Links},
		{"rows", a.q.Rows}, {"rows by state", a.q.States}, {"rows in an unknown state", a.q.Strange}, {"connectd_cleaned", a.q.Cleaned},
		{"connectd_receipt", a.q.Receipts}, {"connectd_ledger", a.q.Ledger}, {"leases and heartbeats", a.q.Abandoned}, {"inflight rows", a.q.Stray},
	}
	for _, text := range a.q.Others {
		list = append(list, query{"another outbox table that shares the receipts", text})
	}
	return slices.DeleteFunc(list, func(q query) bool { return q.text == "" })
}

// found is how many there are of something, and some of their ids.
type found struct {
	total int64
	ids   []string
}

// auditor knows what has been counted so far.
type auditor struct {
	req core.AuditRequest
	q   AuditSQL
	ask Ask
	// vouched: events name commands, so that a receipt is known by its event too.
	vouched bool

	states                                    map[core.State]int64
	rows, gone                                int64
	events, cleaned, receipts                 int64
	missing, shared, orphans, double, back    found
	late, surplus, strange, abandoned, strays found
	unknown                                   found
}

// states are those that a row may have.
var states = []core.State{core.Pending, core.Held, core.Dead, core.Skipped, core.Published}

func (a *auditor) count(ctx context.Context) error {
	a.states = map[core.State]int64{}
	err := a.ask(ctx, a.q.States, func(scan func(...any) error) error {
		var state Text
		var n int64
		if err := scan(&state, &n); err != nil {
			return err
		}
		a.rows += n
		if slices.Contains(states, core.State(state.String)) {
			a.states[core.State(state.String)] = n
		} else {
			a.strange.total += n
		}
		return nil
	})
	if err != nil {
		return err
	}
	if a.strange.total > 0 {
		if a.strange, err = a.list(ctx, a.q.Strange); err != nil {
			return err
		}
	}
	for _, n := range []struct {
		about, query string
		into         *int64
	}{
		{"connectd_ledger", a.q.Ledger, &a.gone}, {"connectd_cleaned", size(a.q.Cleaned), &a.cleaned},
		{"connectd_receipt", size(a.q.Receipts), &a.receipts}, {"the events (audit.events)", size(a.q.Events), &a.events},
	} {
		if n.query == "" {
			continue
		}
		if err := a.ask(ctx, n.query, func(scan func(...any) error) error { return scan(n.into) }); err != nil {
			return fmt.Errorf("%s: %w", n.about, err)
		}
	}
	return nil
}

// tallies are what is counted of each id.
var tallies = []struct{ name, count string }{
	{"events_n", "count(CASE WHEN k = 1 THEN 1 END)"},
	{"rows_n", "count(CASE WHEN k IN (2, 3) THEN 1 END)"},
	{"late_n", "count(CASE WHEN k = 3 THEN 1 END)"},
	{"cleaned_n", "count(CASE WHEN k = 4 THEN 1 END)"},
	{"receipts_n", "count(CASE WHEN k IN (5, 6) THEN 1 END)"},
	{"done_n", "count(CASE WHEN k = 6 THEN 1 END)"},
	{"others_n", "count(CASE WHEN k = 7 THEN 1 END)"},
}

// suspects groups the entries by id and leaves the ids that are in one of the classes, which are few when the books
// balance: some servers store what a subquery gives.
func (a *auditor) suspects(entries []string, classes []class) string {
	var columns, pairs, either []string
	for _, t := range tallies {
		columns, pairs = append(columns, t.count+" AS "+t.name), append(pairs, t.name, t.count)
	}
	for _, c := range classes {
		either = append(either, "("+strings.NewReplacer(pairs...).Replace(c.when)+")")
	}
	return fmt.Sprintf(`SELECT %s v, %s FROM (%s) u GROUP BY v HAVING %s`,
		a.q.Big, strings.Join(columns, ", "), strings.Join(entries, "\nUNION ALL "), strings.Join(either, " OR "))
}

// class is a way in which the entries of one id can be wrong.
type class struct {
	when string
	into *found
}

func (a *auditor) matchIDs(ctx context.Context) error {
	entries := append([]string{a.q.Rows, a.q.Cleaned, a.q.Receipts}, a.q.Others...)
	unknown := class{`receipts_n > 0 AND rows_n = 0 AND cleaned_n = 0 AND others_n = 0`, &a.unknown}
	classes := []class{{`rows_n > 1`, &a.double}, {`rows_n > 0 AND cleaned_n > 0`, &a.back}, {`late_n > 0 AND done_n = 0`, &a.late}}
	if a.vouched {
		entries = append(entries, a.q.Events)
		unknown.when += ` AND events_n = 0`
		classes = append(classes, class{`events_n > 0 AND rows_n = 0 AND cleaned_n = 0`, &a.missing}, class{`events_n > 1`, &a.shared},
			class{`events_n > 0 AND rows_n + cleaned_n > 1`, &a.surplus}, class{`rows_n > 0 AND events_n = 0`, &a.orphans})
	}
	return a.match(ctx, entries, append(classes, unknown))
}

// matchLinks compares events with the rows that hold their keys.
func (a *auditor) matchLinks(ctx context.Context) error {
	if a.q.Links == "" {
		return nil
	}
	return a.match(ctx, []string{a.q.Events, a.q.Links}, []class{
		{`events_n > 0 AND rows_n = 0`, &a.missing}, {`events_n > 1`, &a.shared}, {`events_n > 0 AND rows_n > 1`, &a.surplus}, {`rows_n > 0 AND events_n = 0`, &a.orphans},
	})
}

// match counts the ids of each class, and looks up some of those of the classes that have any. That reads everything once
// more, which only books that do not balance must pay.
func (a *auditor) match(ctx context.Context, entries []string, classes []class) error {
	suspects := a.suspects(entries, classes)
	var columns []string
	var dest []any
	for _, c := range classes {
		columns, dest = append(columns, `count(CASE WHEN `+c.when+` THEN 1 END)`), append(dest, &c.into.total)
	}
	query := `SELECT ` + strings.Join(columns, ", ") + ` FROM (` + suspects + `) g`
	if err := a.ask(ctx, query, func(scan func(...any) error) error { return scan(dest...) }); err != nil {
		return err
	}
	for _, c := range classes {
		if c.into.total == 0 || c.into == &a.missing && c.into.total <= a.anonymous() {
			continue
		}
		some, err := a.list(ctx, fmt.Sprintf(`SELECT v FROM (%s) g WHERE %s LIMIT %d`, suspects, c.when, core.MaxAuditIDs))
		if err != nil {
			return err
		}
		c.into.ids = some.ids
	}
	return nil
}

func (a *auditor) readLeases(ctx context.Context) (err error) {
	if a.abandoned, err = a.list(ctx, a.q.Abandoned); err != nil {
		return err
	}
	a.strays, err = a.list(ctx, a.q.Stray)
	return err
}

// list counts the answers of a query, and keeps some.
func (a *auditor) list(ctx context.Context, query string) (f found, err error) {
	err = a.ask(ctx, query, func(scan func(...any) error) error {
		var id Text
		if err := scan(&id); err != nil {
			return err
		}
		if f.total++; len(f.ids) < core.MaxAuditIDs {
			f.ids = append(f.ids, whole(id.String))
		}
		return nil
	})
	slices.Sort(f.ids)
	return f, err
}

// whole is an id as it is, for whoever shows it knows where; it is bounded, since the operator's SQL may give anything.
func whole(id string) string {
	return strings.ToValidUTF8(id[:min(len(id), core.MaxErrorText)], "\uFFFD")
}

// size counts entries; there is no query for none.
func size(entries string) string {
	if entries == "" {
		return ""
	}
	return `SELECT count(*) FROM (` + entries + `) x`
}

// anonymous is how many rows are gone of which no id tells what event they were of.
func (a *auditor) anonymous() int64 {
	if !a.vouched {
		return a.gone
	}
	return max(a.gone-a.cleaned, 0)
}
