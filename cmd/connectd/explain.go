package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/connectd/connectd/cmd/connectd/rowwork"
	"github.com/connectd/connectd/core"
)

// rowsExplain explains each row.
func rowsExplain(ctx context.Context, p *program, tables []table, req rowsRequest) error {
	list := []explanation{}
	var failed error
	for _, id := range req.ids {
		e, err := explain(ctx, tables, id)
		if err != nil {
			p.complain(err)
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
		for _, r := range e.Because {
			fmt.Fprintf(p.stdout, "  %s\n", r.Say)
		}
		if e.Do != "" {
			fmt.Fprintf(p.stdout, "  what to do: %s\n", e.Do)
		}
	}
	return failed
}

const notFound = "not found"

// explain looks at the row, and where it waits at what it waits for.
func explain(ctx context.Context, tables []table, id string) (explanation, error) {
	var f found
	var s surroundings
	for range 3 { // the row and what is around it are read apart: it may move in between
		var err error
		f, err = lookup(ctx, tables, id)
		if errors.Is(err, core.ErrNoRow) {
			return explainMissing(ctx, tables, id)
		}
		if err != nil {
			return explanation{}, err
		}
		if f.row.State != core.Pending {
			break
		}
		if s, err = surround(ctx, f); err != nil {
			return explanation{}, fmt.Errorf("%s: look at what is around row %s: %w", f.table.connector, line(id, 128), err)
		}
		if s.agree() {
			break
		}
	}
	e := explanation{Connector: f.table.connector, ID: f.row.ID, Seq: f.row.Seq, Partition: &f.row.Part, State: stateText(f.row)}
	trace, failed := f.table.ops.Trace(ctx, f.row.ID)
	if c, done := rowwork.Done(trace.Receipts); done && slices.Contains(rowwork.Skip.From(), f.row.State) {
		explainReceipts(trace, failed, &e)
		e.Do = fmt.Sprintf("do not send it again, for %s has done it: connectd rows skip %s", c, argument(f.row.ID))
	}
	told := len(e.Because) > 0
	switch f.row.State {
	case core.Published:
		explainPublished(f, trace, failed, &e)
		told = true
	case core.Skipped:
		explainSkipped(f, &e)
	case core.Dead:
		explainDead(f, &e)
	case core.Held:
		explainHeld(f, &e)
	case core.Pending:
		s.explainPending(&e)
	default:
		e.add(reason{Code: "unknown_state", Say: "connectd knows no such state, so it never looks at the row: something else wrote it."},
			"set its state to 'pending' to have it sent within a minute or two, or to 'skipped' to be done with it")
	}
	if !told {
		explainReceipts(trace, failed, &e)
	}
	return e, nil
}

// holdsBack are the states, besides pending, in which a row holds back the later ones of its key; none without order.
func (t table) holdsBack() []core.State {
	switch {
	case !t.policy.Ordered:
		return nil
	case t.policy.BlockOnDead:
		return []core.State{core.Held, core.Dead}
	default:
		return []core.State{core.Held}
	}
}

// explainMissing says what can be known of an id that no row has.
func explainMissing(ctx context.Context, tables []table, id string) (explanation, error) {
	e := explanation{ID: id, State: notFound}
	var cleaned int64
	var receipts []reason
	told := map[receiptFact]bool{} // tables of one database share its receipts
	done, elsewhere := false, false
	for _, t := range tables {
		trace, err := t.ops.Trace(ctx, id)
		if err != nil {
			return e, fmt.Errorf("%s: look for traces of row %s: %w", t.connector, line(id, 128), err)
		}
		cleaned += trace.Cleaned
		for _, r := range trace.Receipts {
			switch r.Row {
			case core.RowCleaned:
				e.Connector = t.connector
			case core.RowElsewhere:
				elsewhere = true
			}
			done = done || r.Status == core.ReceiptDone
			if r := receipt(r); !told[*r.Receipt] {
				told[*r.Receipt] = true
				receipts = append(receipts, r)
			}
		}
	}
	names := connectorNames(tables)
	const log = "look into the application's log for the transaction that was to write it"
	switch {
	case e.Connector != "":
		do := "if its work is still to be done, let the application write it again, under another id"
		if done {
			do = "nothing: a consumer has done it"
		}
		e.add(reason{Code: "cleaned", Say: "Its row was there and was cleaned up since; whether it had been published or skipped is not known any more."}, do)
	case elsewhere:
		e.add(reason{Code: "elsewhere", Say: "No row has this id in the table of " + names + "; another outbox table of the database has it or has cleaned it, or may have it and cannot be read."},
			"look into the other tables that connectd_outbox lists, with the configuration of their connectors")
	case cleaned == 0:
		e.add(reason{Code: "never_committed", Say: "No row has this id in the table of " + names + ", and connectd has never removed one there: " +
			"its transaction was rolled back or is still open, or the id is another."}, log)
	default:
		before := ""
		if len(receipts) > 0 {
			before = " before a receipt came"
		}
		e.add(reason{Code: "unknown_id", Rows: cleaned, Say: fmt.Sprintf("No row has this id in the table of %s. Its transaction was rolled back or is still open, the id is another, "+
			"or it was published or skipped and cleaned up%s, as %s were.", names, before, counted(int(cleaned), "row"))}, log)
	}
	if len(receipts) > 0 && e.Connector == "" && !elsewhere {
		e.Do = "compare the id that the consumer reports with the one that it was sent (connectd-id, message-id, webhook-id); if that is the same, " + log
	}
	e.Because = append(e.Because, receipts...)
	return e, nil
}

func receipt(r core.Receipt) reason {
	who := "A consumer"
	if r.Consumer != "" {
		who = "Consumer " + line(r.Consumer, 64)
	}
	say := fmt.Sprintf("%s reported it %s%s", who, line(string(r.Status), 64), at(r.At))
	if r.ResultRef != "" {
		say += ", with result " + line(r.ResultRef, 200)
	}
	switch r.Status {
	case core.ReceiptDone:
	case core.ReceiptFailed:
		say += "; that is no completion"
	case "started": // by core/inbox
		say += ": its effect ended the transaction that it was to work in, so what it has done is not known, and it is not run again until a person has looked"
	default:
		say += "; connectd knows no such status, so it counts for nothing: only done does"
	}
	return reason{Code: "receipt", Say: say + ".", Receipt: &receiptFact{r.Consumer, string(r.Status), r.ResultRef, stamp(r.At)}}
}

// explainReceipts says what consumers reported of a row, whatever its state.
func explainReceipts(trace core.Trace, failed error, e *explanation) {
	if failed != nil {
		// The user may lack the right to read the receipts; the row is where it is all the same.
		e.add(reason{Code: "receipts_unreadable", Say: "Whether a consumer reported it cannot be read: " + line(failed.Error(), 400) + "."}, "")
		return
	}
	for _, r := range trace.Receipts {
		e.add(receipt(r), "")
	}
}

func explainPublished(f found, trace core.Trace, failed error, e *explanation) {
	n := rowwork.Sends(f.row)
	r := reason{Code: "published", Since: stamp(f.row.PublishedAt), Send: n, Say: fmt.Sprintf("The sink confirmed it%s; %s.", at(f.row.PublishedAt), sends(n))}
	if f.row.Deliveries == 0 {
		r.Say = "It is published, and connectd has not sent it: it was so when connectd took the table over (init --existing published), or something else wrote it."
	}
	e.add(r, "")
	explainChange(f, e)
	explainReceipts(trace, failed, e)
	if _, done := rowwork.Done(trace.Receipts); failed != nil || done || f.row.Deliveries == 0 && len(trace.Receipts) == 0 {
		return // the message of a row that was taken over is nobody's to report
	}
	kept := "."
	if f.table.requireReceipt && f.row.Deliveries > 0 {
		kept = ", and until one does its row is kept (retention.require_receipt)."
	}
	const once = " connectd does not send a published row again."
	do := "see at the consumer, and in what it reads from, what became of the message, and let it be carried out from there; if it is lost, write the command again under another id"
	switch {
	case len(trace.Receipts) > 0:
		e.add(reason{Code: "not_done", Say: "No consumer has reported it done" + kept + once}, do)
	case f.table.requireReceipt:
		e.add(reason{Code: "no_receipt", Say: "No consumer has reported it" + kept + once}, do)
	}
}

// explainChange says who changed the row last, if a person did and nothing has happened since.
func explainChange(f found, e *explanation) {
	a, ok := lastEntry(f.history)
	if !ok || !rowwork.ByPerson(a) {
		return
	}
	code := rowwork.Verb(a.Code).Past()
	verb, why := code, ""
	if a.Code == string(rowwork.Skip) {
		verb = "given up"
	}
	if a.Message != "" {
		why = ": " + line(a.Message, core.MaxErrorText)
	}
	e.add(reason{Code: code, Since: stamp(a.At), By: a.By, Say: fmt.Sprintf("It was %s by %s%s%s.", verb, line(a.By, 128), at(a.At), why)}, "")
}

func explainSkipped(f found, e *explanation) {
	if explainChange(f, e); len(e.Because) == 0 {
		e.add(reason{Code: "skipped", Say: "It was given up; who did that is not known."}, "")
	}
	if failure := lastError(f); failure != nil {
		e.add(reason{Code: "failed_before", Error: failure, Say: "What had happened before" + failure.String() + "."}, "")
	}
}

func explainDead(f found, e *explanation) {
	n, failure := rowwork.Sends(f.row), lastError(f)
	a, _ := lastEntry(f.history)
	r := reason{Code: "dead", Since: stamp(a.At), Send: n, Crashes: f.row.Crashes, Error: failure}
	switch {
	case a.Refused() && n == 0:
		r.Say = "It was refused without ever being sent" + failure.String() + "."
	case a.Refused():
		r.Say = fmt.Sprintf("It was refused without being sent again after %s%s.", sends(n), failure)
	case f.row.Crashes >= core.MaxCrashes:
		r.Say = fmt.Sprintf("It was on its way in %d crashes or hangs, the last ones alone, so it is taken to be their cause%s.", f.row.Crashes, failure)
	default:
		r.Say = fmt.Sprintf("It failed for good after %s%s.", sends(n), failure)
	}
	id := argument(f.row.ID)
	e.add(r, fmt.Sprintf("mend the cause, then connectd rows retry %s; or give it up: connectd rows skip %s", id, id))
	switch {
	case !f.row.Keyed || !f.table.policy.Ordered:
	case f.table.policy.BlockOnDead:
		e.add(reason{Code: "blocks_key", Say: "Later rows of its key wait until it is retried or skipped (on_dead: block)."}, "")
	default:
		e.add(reason{Code: "key_goes_on", Say: "Later rows of its key go on without it (on_dead: continue)."}, "")
	}
}

func explainHeld(f found, e *explanation) {
	a, known := lastEntry(f.history)
	r := reason{Code: "held", Send: rowwork.Sends(f.row), Crashes: f.row.Crashes, Error: lastError(f)}
	r.Say = "It may have been sent, and on_uncertain: hold sends such a row again only when a person says so"
	switch {
	case !known:
		r.Say += r.Error.String() + "."
	case a.Duration > 0: // the worker lived to tell
		r.Since, r.Worker = stamp(a.At.Add(-a.Duration)), &workerFact{Owner: a.By}
		r.Say += fmt.Sprintf(": send %d, in a call of worker %s from %s on, ended without an answer after %s%s.", a.Deliveries, line(a.By, 64), r.Since, span(a.Duration), r.Error)
	default:
		r.Since = stamp(a.At)
		r.Say += fmt.Sprintf(": in send %d, %s (found at %s by worker %s, which took over).", a.Deliveries, line(a.Message, core.MaxErrorText), r.Since, line(a.By, 64))
	}
	id := argument(f.row.ID)
	e.add(r, fmt.Sprintf("look whether the destination has id %s; if not, connectd rows release %s; if so, connectd rows skip %s", line(f.row.ID, 512), id, id))
	if f.row.Keyed && f.table.policy.Ordered {
		e.add(reason{Code: "blocks_key", Say: "Later rows of its key wait for it."}, "")
	}
}
