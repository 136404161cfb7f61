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
	law.Figures = []core.Figure{{Name: "events", Count: a.events}, {Name: "rows", Count: a.rows}, {Name: "without a row", Count: a.missing.total}, {Name: "cleaned", Count: a.gone}}
	if lost := a.missing.total - a.anonymous(); lost > 0 {
		say := "events have no command: no row, and the id of none that was cleaned"
		if n := a.anonymous(); n > 0 {
			say = fmt.Sprintf("events have no row, and no more than %d rows were cleaned whose ids are not kept: at least %d of these events have no command", n, lost)
		}
		breach(&law, a.missing, say, "look for code that writes the event and not the command in one transaction, and for rows that were deleted by hand; insert the command with its id")
	}
	breach(&law, a.shared, "ids are given by more than one event: these events share a command", "look at audit.events.command: each event must give an id of its own")
	breach(&law, a.doubleLinks, "events have more than one command", "look for code that decides twice; skip the rows that are too many")
	return law
}

func (a *auditor) originLaw() core.Law {
	law := core.Law{Name: core.LawOrigin, Say: "each row of the outbox table comes from an event", Checked: true}
	if a.q.Events == "" {
		law.Say, law.Checked = noEvents, false
		return law
	}
	law.Figures = []core.Figure{{Name: "rows", Count: a.rows}, {Name: "without an event", Count: a.orphans.total}}
	breach(&law, a.orphans, "rows come from no event that must give a command", "look for code that inserts commands without their event, or widen audit.events")
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
	breach(&law, a.double, "ids are there more than once: consumers take them for one command", "look whether the id's unique constraint was dropped; give one of the rows another id if they are different commands, else skip it, and make the constraint again")
	breach(&law, a.back, "ids are there whose row was cleaned before: these commands are given a second time, and the unique constraint could not know",
		"look for code that decides again after retention.published, and keep rows for longer than that may happen; skip these rows if they are not sent yet")
	return law
}

func (a *auditor) leasesLaw() core.Law {
	law := core.Law{Name: core.LawLeases, Say: "leases have live workers, inflight rows have their lease, and rows are in a state that there is", Checked: true}
	law.Figures = []core.Figure{{Name: "leases without a worker", Count: a.abandoned.total}, {Name: "stray inflight rows", Count: a.strays.total}, {Name: "rows in an unknown state", Count: a.strange.total}}
	breach(&law, a.abandoned, "leases are held by workers without a heartbeat", "wait until the lease runs out and another worker takes it; if it does not, look for a daemon that renews leases and writes no heartbeat")
	breach(&law, a.strays, "inflight rows are of no lease that there is", "do not change connectd_lease by hand; the rows they name may have been sent, and nobody has marked that")
	breach(&law, a.strange, "rows are in no state that there is, so nobody sends them", "set their state to pending or skipped, and look who wrote it and whether the constraint on the state was dropped")
	return law
}
