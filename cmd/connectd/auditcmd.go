package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/connectd/connectd/cmd/connectd/daemon"
	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/config"
)

// auditShown is how many ids of a finding people see; JSON has all that there are.
const auditShown = 10

func auditCommand() *command {
	return &command{
		name: "audit", short: "prove that every command is accounted for",
		long: `Checks, for each connector, that each event has exactly one command and each row its event, that receipts name commands
and come in time, that what was inserted is all there or was counted when it was cleaned, that no id is there twice,
and that leases have live workers. What there must be is said by the audit section of the configuration.

Everything is read in one snapshot, without a lock. It may be run beside daemons and applications.

Exit code 0: the books balance. 1: they do not, or a connector could not be audited.`,
		bind: func(p *program, fs *flag.FlagSet) func(context.Context, []string) error {
			sel := p.selection(fs)
			asJSON := fs.Bool("json", false, "print JSON")
			return func(ctx context.Context, args []string) error {
				if len(args) > 0 {
					return usagef("audit takes no arguments; one connector: connectd audit --connector %s", args[0])
				}
				return p.audit(ctx, sel, *asJSON)
			}
		},
	}
}

// audit audits the connectors, one after the other: each reads a whole table.
func (p *program) audit(ctx context.Context, sel *selection, asJSON bool) error {
	list, whole, err := sel.connectors()
	if err != nil {
		return err
	}
	all := make([]daemon.AuditView, len(list))
	for i, c := range list {
		a, figures, err := p.auditOne(ctx, c)
		if err != nil {
			fmt.Fprintf(p.stderr, "connectd: %s: %v\n", c.Name, err)
			all[i] = daemon.AuditView{Connector: c.Name, Laws: []daemon.LawView{}, Error: err.Error()}
			continue
		}
		all[i] = a
		if asJSON {
			continue
		}
		if i > 0 {
			fmt.Fprintln(p.stdout)
		}
		if err := printAudit(p.stdout, a, figures); err != nil {
			return err
		}
	}
	if asJSON {
		if err := printJSON(p.stdout, map[string]any{"connectors": all}); err != nil {
			return err
		}
	}
	if !whole || slices.ContainsFunc(all, func(a daemon.AuditView) bool { return !a.OK }) {
		return errReported
	}
	return nil
}

// auditOne audits one connector. figures are those of each law, in order, for people.
func (p *program) auditOne(ctx context.Context, c config.Connector) (view daemon.AuditView, figures []string, err error) {
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	source, err := openToAudit(opening, c, slog.New(slog.DiscardHandler))
	if err != nil {
		return view, nil, err
	}
	defer func() { _ = source.Close() }()
	req := audited(c)
	req.Progress = func(what string) { fmt.Fprintf(p.stderr, "%s: reading %s\n", c.Name, what) }
	a, err := source.Audit(ctx, req)
	if err != nil {
		return view, nil, err
	}
	for _, law := range a.Laws {
		figures = append(figures, counts(law.Figures))
	}
	return daemon.ViewAudit(c.Name, a), figures, nil
}

func counts(list []core.Figure) string {
	parts := make([]string, len(list))
	for i, f := range list {
		parts[i] = strconv.FormatInt(f.Count, 10) + " " + f.Name
	}
	return strings.Join(parts, ", ")
}

// printAudit writes a table for people, with the findings and what to do below each law.
func printAudit(w io.Writer, a daemon.AuditView, figures []string) error {
	var text bytes.Buffer
	verdict := "the books balance"
	if !a.OK {
		verdict = "the books do not balance"
	}
	checked := 0
	for _, law := range a.Laws {
		if law.Checked {
			checked++
		}
	}
	fmt.Fprintf(&text, "%s: %s (%d of %d laws checked, %s, %d ms)\n", a.Connector, verdict, checked, len(a.Laws), a.At.Format("2006-01-02 15:04:05Z"), a.TookMS)
	for i, law := range a.Laws {
		word := "ok"
		switch {
		case !law.OK:
			word = "BROKEN"
		case !law.Checked:
			word = "-"
		}
		fmt.Fprintf(&text, "  %-6s  %-12s  %s\n", word, law.Law, line(law.Say, maxSay))
		if figures[i] != "" {
			fmt.Fprintf(&text, "  %24s%s\n", "", figures[i])
		}
		for _, f := range law.Findings {
			fmt.Fprintf(&text, "  %24s%d %s\n", "", f.Total, line(f.Say, maxSay))
			if len(f.IDs) > 0 {
				fmt.Fprintf(&text, "  %24s%s\n", "", someIDs(f))
			}
			fmt.Fprintf(&text, "  %24sto do: %s\n", "", line(f.Do, maxSay))
		}
	}
	if _, err := w.Write(text.Bytes()); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// someIDs writes some ids of a finding.
func someIDs(f daemon.BreachView) string {
	some := f.IDs[:min(len(f.IDs), auditShown)]
	text := make([]string, len(some))
	for i, id := range some {
		text[i] = idText(id, 100)
	}
	if int64(len(some)) < f.Total {
		text = append(text, "…")
	}
	return strings.Join(text, ", ")
}
