package layout

import (
	"fmt"
	"strings"

	"github.com/connectd/connectd/core"
)

// judge says of each law whether what was counted obeys it.
func (a *auditor) judge() []core.Law {
	return []core.Law{a.eventsLaw(), a.originLaw(), a.receiptsLaw(), a.completionLaw(), a.conservationLaw(), a.identityLaw(), a.leasesLaw()}
}

// noEvents is why some laws are not checked.
const noEvents = "not checked: nothing says which commands there must be (audit.events)"

// breach adds a breach if there is any.
func breach(law *core.Law, f found, say, do string) {
	if f.total > 0 {
		law.Breaches = append(law.Breaches, core.Breach{Total: f.total, IDs: f.ids, Say: say, Do: do})
	}
}

func (a *auditor) eventsLaw() core.Law {
	law := core.Law{Name: core.LawEvents, Say: "each event that must give a command has exactly one", Checked: true}
	if a.q.Events == "" {
		law.Say, law.Checked = noEvents, false
		return law
	}
	law.Figures = []core.Figure{{Name: "events", Count: a.events}, {Name: "rows", Count: a.rows}, {Name: "cleaned", Count: a.gone}}
	if a.vouched {
		law.Figures = append(law.Figures, core.Figure{Name: "cleaned ids kept", Count: a.cleaned}, core.Figure{Name: "events with neither", Count: a.missing.total})
	} else {
		law.Figures = append(law.Figures, core.Figure{Name: "events without a row", Count: a.missing.total})
	}
	if a.missing.total > a.anonymous() {
		breach(&law, a.missing, a.sayMissing(), a.doMissing())
	}
	breach(&law, a.shared, "ids are given by more than one event: these events share a command", "look at audit.events.command: each event must give an id of its own")
	breach(&law, a.surplus, "events have more than one command", "look for code that decides twice, and see the law of identity; "+remove)
	return law
}

func (a *auditor) sayMissing() string {
	n := a.anonymous()
	switch {
	case n > 0:
		return fmt.Sprintf("events have no row, and %d rows were cleaned whose ids are not kept: as many of these events may well have had their command, and at least %d have none", n, a.missing.total-n)
	case a.vouched:
		return "events have no command: no row, and the id of none that was cleaned"
	default:
		return "events have no command: no row has their key, and none was cleaned"
	}
}

// doMissing never has a command inserted that may have been carried out: once its receipt and its id are gone, nothing would know it for
// a repetition.
func (a *auditor) doMissing() string {
	if a.misruled() {
		return misruled + " Insert nothing before that is sure"
	}
	why := "look for code that writes the event and not the command in one transaction, and for rows that were deleted by hand; "
	if a.anonymous() > 0 {
		return "DO NOT insert commands for all of these: most may have been carried out, cleaned, and their ids forgotten, which is normal, and a second one would be carried out again. " +
			"No row is cleaned before the shortest of retention.published, dead and skipped: an event that is younger has lost its command. For each older one ask the consumer or the destination for its id. " +
			"Insert only the commands that nobody has, with their ids; " + why + "see docs/operating.md, An event without its command"
	}
	return why + "see at one of them that audit.events finds what the application writes; ask the consumer whether it has the command, and if not insert it, with its id"
}

// misruled says that it is likelier that the rule is wrong than that so much is: it finds next to nothing.
func (a *auditor) misruled() bool {
	lost := a.missing.total - a.anonymous()
	return a.orphans.total > 0 && a.orphans.total*10 >= a.rows*9 || lost > 1 && lost*10 >= a.events*9
}

const misruled = "look at audit.events first: nearly nothing of what it gives is there, so it is likely that command (or join, where or table) is wrong, and not the books. " +
	"Compare what it gives for one event with the row that the application inserted."

// remove is how a row goes that should not be there: an operator's command cannot do that, since a skipped row is still one.
const remove = "stop the daemons of this table and delete the rows that are too many, those that were not sent if there are such, as docs/operating.md shows under A row that is too many; those that were sent go by their retention"

func (a *auditor) originLaw() core.Law {
	law := core.Law{Name: core.LawOrigin, Say: "each row of the outbox table comes from an event", Checked: true}
	if a.q.Events == "" {
		law.Say, law.Checked = noEvents, false
		return law
	}
	law.Figures = []core.Figure{{Name: "rows", Count: a.rows}, {Name: "without an event", Count: a.orphans.total}}
	do := "look for code that inserts commands without their event, or widen audit.events"
	if a.misruled() {
		do = misruled
	}
	breach(&law, a.orphans, "rows come from no event that must give a command", do)
	return law
}

func (a *auditor) receiptsLaw() core.Law {
	law := core.Law{Name: core.LawReceipts, Say: "each receipt names a command that is there or was cleaned", Checked: true}
	law.Figures = []core.Figure{{Name: "receipts", Count: a.receipts}, {Name: "of unknown commands", Count: a.unknown.total}}
	if a.unknown.total > 0 && len(a.q.Unread) > 0 {
		law.Say, law.Checked = "not checked: outbox tables that share the receipts, and may have the unknown commands, cannot be read: "+listed(a.q.Unread)+
			". Let this connector's user read their id columns, run `connectd init` for them, or, if one was dropped for good, delete its lines (tbl) in the connectd_ tables", false
		return law
	}
	breach(&law, a.unknown, "commands have a receipt and no row, and were not cleaned with one: there never was such a row, or it was cleaned before its receipt came",
		"look for a consumer with a wrong id, or one that is slower than retention.published (retention.require_receipt waits for it)")
	return law
}

// listed names some tables.
func listed(unread []Unread) string {
	const most = 5
	var names []string
	for _, u := range unread[:min(len(unread), most)] {
		names = append(names, u.Error())
	}
	if more := len(unread) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

func (a *auditor) completionLaw() core.Law {
	law := core.Law{Name: core.LawCompletion, Checked: a.req.ReceiptWithin >= 0}
	if !law.Checked {
		law.Say = "not checked: no receipts are required (audit.receipt_within)"
		return law
	}
	law.Say = fmt.Sprintf("each published command has a receipt that is done within %v", a.req.ReceiptWithin)
	law.Figures = []core.Figure{{Name: "published", Count: a.states[core.Published]}, {Name: "late", Count: a.late.total}}
	breach(&law, a.late, "published rows have no receipt that is done, and should by now", "look at the consumer: it has not said that it carried these commands out")
	return law
}

func (a *auditor) conservationLaw() core.Law {
	law := core.Law{Name: core.LawConservation, Say: "what was inserted is pending, held, dead, skipped, published or cleaned", Checked: true}
	if a.q.Events == "" {
		law.Say, law.Checked = "not checked: nothing says how many rows were inserted (audit.events)", false
	} else {
		law.Figures = append(law.Figures, core.Figure{Name: "inserted", Count: a.events})
	}
	for _, state := range states {
		law.Figures = append(law.Figures, core.Figure{Name: string(state), Count: a.states[state]})
	}
	law.Figures = append(law.Figures, core.Figure{Name: "cleaned", Count: a.gone})
	if lost := a.events - a.rows - a.gone; law.Checked && lost > 0 {
		breach(&law, found{total: lost}, "commands that must have been inserted are neither there nor counted as cleaned", "see the law of events; look for rows that were deleted, and for a change of connectd_ledger")
	}
	return law
}

func (a *auditor) identityLaw() core.Law {
	law := core.Law{Name: core.LawIdentity, Say: "no id is there twice, nor once more after its row was cleaned", Checked: true}
	law.Figures = []core.Figure{{Name: "rows", Count: a.rows}, {Name: "ids there twice", Count: a.double.total}, {Name: "there after they were cleaned", Count: a.back.total}}
	breach(&law, a.double, "ids are there more than once: consumers take them for one command", "look whether the id's unique constraint was dropped. If they are one command, "+remove+"; if they are different ones, give one that was not sent another id. Then make the constraint again")
	breach(&law, a.back, "ids are there whose row was cleaned before: these commands are given a second time, and the unique constraint could not know",
		"look for code that decides again after retention.published, and keep rows for longer than that may happen; "+remove)
	return law
}

func (a *auditor) leasesLaw() core.Law {
	law := core.Law{Name: core.LawLeases, Say: "leases have live workers, inflight rows have their lease, and rows are in a state that there is", Checked: true}
	law.Figures = []core.Figure{{Name: "leases without a worker", Count: a.abandoned.total}, {Name: "stray inflight rows", Count: a.strays.total}, {Name: "rows in an unknown state", Count: a.strange.total}}
	breach(&law, a.abandoned, "leases are held by workers without a heartbeat", "wait until the lease runs out and another worker takes it; if it does not, look for a daemon that renews leases and writes no heartbeat")
	breach(&law, a.strays, "inflight rows are of no lease that there is", "start a daemon, or let one go on: when it takes the partition it takes these rows as ones that may have been sent, and marks their next send as a possible duplicate. Do not change connectd_lease by hand")
	breach(&law, a.strange, "rows are in no state that there is, so nobody sends them", "set their state to pending or skipped, and look who wrote it and whether the constraint on the state was dropped")
	return law
}
