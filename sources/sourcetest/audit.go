package sourcetest

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

var auditTests = []test{
	{"balanced books break no law, and what cannot be checked says so", auditBalanced},
	{"an event without its command is found, and a row without its event", auditEvents},
	{"events that name their rows' column are matched one to one", auditJoin},
	{"cleaned rows are known by their receipts, else by count", auditCleaned},
	{"a receipt of no command is found, and one of a cleaned command is none", auditReceipts},
	{"a published row without a receipt is found when its time is over", auditCompletion},
	{"a row that was published before connectd knew the table owes no receipt, to no audit and no cleaner", auditAdopted},
	{"an id that is there twice is found, when its constraint was lost", auditTwice},
	{"a command that is given again after its row was cleaned is found", auditBack},
	{"what an audit reads is judged by the time at which it was so", auditSlow},
	{"a lease without a live worker is found, and an inflight row without its lease", auditLeases},
	{"an inflight row without its lease is mended by the next takeover, which marks its row", auditStray},
	{"a row in an unknown state is found", auditStates},
	{"the operator's SQL may hold anything, and its error is one", auditOperatorsSQL},
	{"an audit ends in time", auditDeadline},
}

// RunAudit tests a source that is a core.Auditor.
func RunAudit(t *testing.T, h Harness) {
	t.Run("audit", func(t *testing.T) {
		for _, test := range append(auditTests, besideAuditTests...) {
			t.Run(test.name, func(t *testing.T) { test.run(t, h) })
		}
	})
}

// Vandal breaks the books of a table on purpose, with SQL as only a person or a bug does.
type Vandal struct {
	// Events makes the events table with a text column id and these events; Name is its name and Key the outbox's column of keys.
	Events    func(t *testing.T, ids ...string)
	Name, Key string

	Delete func(t *testing.T, id string) // deletes a row
	Double func(t *testing.T, id string) // drops the id's unique constraint and inserts a row with the id once more
	Damage func(t *testing.T, id string) // gives a row a state that there is not
	Mend   func(t *testing.T, id string) // makes it pending again
	Adopt  func(t *testing.T, id string) // makes it a row as init leaves one that had been published, a day ago
	Orphan func(t *testing.T, d int)     // adds to the epochs of all leases
	Ledger func(t *testing.T, d int)     // adds to the counts of the ledger
	Silent func(t *testing.T)            // removes all heartbeats
	// Run runs what docs/operating.md shows for row 42 of the table outbox, on this table's row, in one session.
	Run func(t *testing.T, seq int64, statements []string)
}

// vandalised is a table with its vandal and a request.
func vandalised(t *testing.T, h Harness, rows ...Row) (Table, *worker, *Vandal, core.AuditRequest) {
	t.Helper()
	table, w := startAlone(t, h, rows...)
	_, err := w.src.Heartbeat(w.ctx, w.owner, nil, long)
	w.must(err)
	return table, w, table.Vandal, core.AuditRequest{
		Events:        &core.Events{Table: table.Vandal.Name, Key: "id", Command: "id"},
		ReceiptWithin: core.Forever, Lease: long, Timeout: patience,
	}
}

// audit runs one and wants these laws, and no others, to be broken.
func (w *worker) audit(req core.AuditRequest, broken ...string) map[string]core.Law {
	w.t.Helper()
	a, err := w.src.(core.Auditor).Audit(w.ctx, req)
	w.must(err)
	laws, got := map[string]core.Law{}, []string{}
	for _, law := range a.Laws {
		laws[law.Name] = law
		if len(law.Breaches) > 0 {
			got = append(got, law.Name)
		}
	}
	want(w.t, "laws", len(laws), 7)
	if !slices.Equal(got, broken) {
		w.t.Errorf("broken laws are %v, want %v: %+v", got, broken, a)
	}
	return laws
}

// names wants a broken law to name these ids.
func (w *worker) names(law core.Law, ids ...string) {
	w.t.Helper()
	if len(law.Breaches) != 1 {
		w.t.Errorf("%s has %d breaches: %+v", law.Name, len(law.Breaches), law)
		return
	}
	b := law.Breaches[0]
	if b.Total != int64(len(ids)) || !slices.Equal(b.IDs, ids) {
		w.t.Errorf("%s names %d: %q, want %q", law.Name, b.Total, b.IDs, ids)
	}
	if b.Say == "" || b.Do == "" {
		w.t.Errorf("%s does not say what is wrong and what to do: %+v", law.Name, b)
	}
}

// advises wants what to do to begin so.
func (w *worker) advises(law core.Law, do string) {
	w.t.Helper()
	for _, b := range law.Breaches {
		if !strings.HasPrefix(b.Do, do) {
			w.t.Errorf("%s says to do: %s; want: %s", law.Name, b.Do, do)
		}
	}
}

// remove deletes the last row with an id as the documentation shows.
func (w *worker) remove(v *Vandal, id string) {
	w.t.Helper()
	page, err := os.ReadFile("../../docs/operating.md")
	w.must(err)
	_, after, _ := strings.Cut(string(page), "<!-- too many -->")
	text, _, found := strings.Cut(after, "<!-- /too many -->")
	text = strings.NewReplacer("```sql", "", "```", "").Replace(text)
	if !found {
		w.t.Fatal("the documentation does not show how")
	}
	rows, err := w.op.List(w.ctx, core.Filter{Limit: 100})
	w.must(err)
	var seq int64
	for _, r := range rows {
		if r.ID == id {
			seq = max(seq, r.Seq)
		}
	}
	var statements []string
	for s := range strings.SplitSeq(text, ";") {
		if s = strings.TrimSpace(s); s != "" {
			statements = append(statements, s)
		}
	}
	v.Run(w.t, seq, statements)
}

// Documented puts a table's names into what the documentation shows for row 42 of the table outbox. name is the table's as the
// relay's tables have it, own what stands before connectd_.
func Documented(seq int64, table, order, name, own string) *strings.Replacer {
	n := strconv.FormatInt(seq, 10)
	return strings.NewReplacer("FROM outbox WHERE seq = 42", "FROM "+table+" WHERE "+order+" = "+n, "seq = 42", "seq = "+n,
		"'outbox'", "'"+strings.ReplaceAll(name, "'", "''")+"'", "connectd_", own+"connectd_")
}

func (w *worker) figure(law core.Law, name string, count int64) {
	w.t.Helper()
	for _, f := range law.Figures {
		if f.Name == name {
			want(w.t, law.Name+": "+name, f.Count, count)
			return
		}
	}
	w.t.Errorf("%s has no figure %s: %+v", law.Name, name, law.Figures)
}

func auditBalanced(t *testing.T, h Harness) {
	_, w, v, req := vandalised(t, h, keyed("k", "a", "b", "c", "d", "e", "f")...)
	v.Events(t, "a", "b", "c", "d", "e", "f")
	w.kill("a")
	w.hold("b")
	w.kill("c")
	w.must(w.op.Skip(w.ctx, core.Act{ID: "c", By: "ops"}))
	w.publish("d")
	w.announce(1, w.row("e"))
	var told []string
	req.Progress = func(what string) { told = append(told, what) }
	laws := w.audit(req)
	if len(told) < 3 {
		t.Errorf("told of %q", told)
	}
	for name, law := range laws {
		want(t, name+" was checked", law.Checked, name != core.LawCompletion)
	}
	for name, n := range map[string]int64{"inserted": 6, "pending": 2, "dead": 1, "held": 1, "skipped": 1, "published": 1, "cleaned": 0} {
		w.figure(laws[core.LawConservation], name, n)
	}
	req.Events = nil
	for name, law := range w.audit(req) {
		want(t, name+" was checked without events", law.Checked, name == core.LawReceipts || name == core.LawIdentity || name == core.LawLeases)
		if law.Say == "" {
			t.Errorf("%s says nothing", name)
		}
	}
}

func auditEvents(t *testing.T, h Harness) {
	table, w, v, req := vandalised(t, h, keyed("k", "cmd-a", "cmd-b")...)
	v.Events(t, "a", "b", "not-one")
	req.Events.Command, req.Events.Where = "concat('cmd-', id)", "id <> 'not-one'"
	w.audit(req)
	v.Delete(t, "cmd-b")
	laws := w.audit(req, core.LawEvents, core.LawConservation)
	w.names(laws[core.LawEvents], "cmd-b")
	want(t, "lost", laws[core.LawConservation].Breaches[0].Total, 1)
	table.Insert(t, keyed("k", "cmd-b")...)
	w.audit(req)
	table.Insert(t, keyed("k", "cmd-x", "cmd-not-one")...)
	w.names(w.audit(req, core.LawOrigin)[core.LawOrigin], "cmd-not-one", "cmd-x")
	v.Delete(t, "cmd-x")
	v.Delete(t, "cmd-not-one")
	w.audit(req)
	req.Events.Command = "'cmd-a'"
	laws = w.audit(req, core.LawEvents, core.LawOrigin)
	w.names(laws[core.LawEvents], "cmd-a")
	w.names(laws[core.LawOrigin], "cmd-b")
	req.Events.Command = "concat('wrong-', id)"
	laws = w.audit(req, core.LawEvents, core.LawOrigin)
	w.advises(laws[core.LawEvents], "look at audit.events first")
	w.advises(laws[core.LawOrigin], "look at audit.events first")
	req.Events.Command = "NULL"
	laws = w.audit(req, core.LawEvents, core.LawOrigin)
	w.names(laws[core.LawEvents], "(none) of event a", "(none) of event b")
}

func auditJoin(t *testing.T, h Harness) {
	table, w, v, req := vandalised(t, h, append(keyed("a", "1"), keyed("b", "2")...)...)
	v.Events(t, "a", "b")
	req.Events.Command, req.Events.Join = "", v.Key
	w.audit(req)
	table.Insert(t, append(keyed("b", "3"), Row{ID: "4"})...)
	laws := w.audit(req, core.LawEvents, core.LawOrigin)
	w.names(laws[core.LawEvents], "b")
	w.names(laws[core.LawOrigin], "(none) of row 4")
	v.Delete(t, "3")
	v.Delete(t, "4")
	v.Delete(t, "1")
	w.names(w.audit(req, core.LawEvents, core.LawConservation)[core.LawEvents], "a")
}

func auditCleaned(t *testing.T, h Harness) {
	_, w, v, req := vandalised(t, h, keyed("k", "a", "b", "c", "d")...)
	v.Events(t, "a", "b", "c", "d")
	w.publish("a", "b", "c")
	w.receipt(core.ReceiptDone, "a")
	r := keepAll
	r.Published = 0
	w.until("the rows to be cleaned", func() bool { w.clean(r); return len(w.left()) == 1 })
	laws := w.audit(req)
	w.figure(laws[core.LawConservation], "cleaned", 3)
	w.figure(laws[core.LawEvents], "cleaned ids kept", 1)
	w.figure(laws[core.LawEvents], "events with neither", 2)
	v.Ledger(t, -1)
	laws = w.audit(req, core.LawEvents, core.LawConservation)
	w.names(laws[core.LawEvents], "b", "c")
	w.advises(laws[core.LawEvents], "DO NOT insert commands for all of these") // one of them was carried out
	v.Ledger(t, 1)
	w.audit(req)
	v.Delete(t, "d")
	laws = w.audit(req, core.LawEvents, core.LawConservation)
	w.names(laws[core.LawEvents], "b", "c", "d")
	w.advises(laws[core.LawEvents], "DO NOT insert commands for all of these")
}

func auditReceipts(t *testing.T, h Harness) {
	table, w, v, req := vandalised(t, h, keyed("k", "a", "b")...)
	v.Events(t, "a", "b")
	w.publish("a", "b")
	w.receipt(core.ReceiptDone, "a")
	r := keepAll
	r.Published = 0
	w.until("the rows to be cleaned", func() bool { w.clean(r); return len(w.left()) == 0 })
	w.receipt(core.ReceiptFailed, "b") // its event says that there was such a command
	w.audit(req)
	table.Receipt(t, "zz", core.Receipt{Status: core.ReceiptDone})
	w.names(w.audit(req, core.LawReceipts)[core.LawReceipts], "zz")
	req.Events = nil
	w.names(w.audit(req, core.LawReceipts)[core.LawReceipts], "b", "zz")
}

func auditCompletion(t *testing.T, h Harness) {
	_, w, v, req := vandalised(t, h, keyed("k", "a", "b", "c", "d")...)
	v.Events(t, "a", "b", "c", "d")
	w.publish("a", "b", "c")
	w.receipt(core.ReceiptDone, "a")
	w.receipt(core.ReceiptFailed, "b")
	req.ReceiptWithin = time.Hour
	w.audit(req)
	req.ReceiptWithin = 0
	w.until("the rows to be late", func() bool {
		a, err := w.src.(core.Auditor).Audit(w.ctx, req)
		w.must(err)
		return !a.OK()
	})
	w.names(w.audit(req, core.LawCompletion)[core.LawCompletion], "b", "c")
	w.receipt(core.ReceiptDone, "b", "c")
	w.audit(req)
}

func auditAdopted(t *testing.T, h Harness) {
	table, w, v, req := vandalised(t, h, keyed("k", "a", "b")...)
	v.Events(t, "a", "b")
	v.Adopt(t, "a")
	w.publish("b")
	req.ReceiptWithin = time.Hour
	w.audit(req)
	r := keepAll
	r.RequireReceipt, r.Published = true, 48*time.Hour
	w.clean(r)
	wantRows(t, table, w, map[core.State]int{}, "a", "b")
	r.Published = 0
	w.clean(r)
	wantRows(t, table, w, map[core.State]int{core.Published: 1}, "b")
	w.audit(req)
}

func auditTwice(t *testing.T, h Harness) {
	_, w, v, req := vandalised(t, h, keyed("k", "a", "b")...)
	v.Events(t, "a", "b")
	w.audit(req)
	v.Double(t, "b")
	laws := w.audit(req, core.LawEvents, core.LawIdentity)
	w.names(laws[core.LawIdentity], "b")
	w.names(laws[core.LawEvents], "b")
	w.remove(v, "b")
	w.audit(req)
	v.Delete(t, "b")
	w.names(w.audit(req, core.LawEvents, core.LawConservation)[core.LawEvents], "b")
}

func auditBack(t *testing.T, h Harness) {
	table, w, v, req := vandalised(t, h, keyed("k", "a", "b")...)
	v.Events(t, "a", "b")
	w.publish("a", "b")
	w.receipt(core.ReceiptDone, "a")
	r := keepAll
	r.Published = 0
	w.until("the rows to be cleaned", func() bool { w.clean(r); return len(w.left()) == 0 })
	w.audit(req)
	table.Insert(t, keyed("k", "a")...)
	laws := w.audit(req, core.LawEvents, core.LawIdentity)
	w.names(laws[core.LawIdentity], "a")
	w.names(laws[core.LawEvents], "a")
	w.remove(v, "a")
	w.audit(req)
}

// auditSlow lets so much time pass while an audit reads that a lease runs out and a receipt would be late.
func auditSlow(t *testing.T, h Harness) {
	for intime := false; !intime && !t.Failed(); { // a machine that stood still between has proved nothing
		_, w, v, req := vandalised(t, h, keyed("k", "a")...)
		v.Events(t, "a")
		req.ReceiptWithin, req.Lease = 2*time.Second, 2*time.Second
		begun := time.Now()
		w.publish("a")
		w.release()
		_, err := w.src.Acquire(w.ctx, w.owner, w.partitions(), req.Lease, false)
		w.must(err)
		v.Silent(t)
		taken := time.Now()
		looks := 0
		req.Progress = func(string) {
			if looks++; looks == 1 {
				intime = time.Since(begun) < req.Lease
			} else {
				time.Sleep(time.Until(taken.Add(req.Lease + 50*time.Millisecond)))
			}
		}
		a, err := w.src.(core.Auditor).Audit(w.ctx, req)
		w.must(err)
		if !intime {
			continue
		}
		for _, law := range a.Laws {
			want(t, law.Name+" is broken", len(law.Breaches) > 0, law.Name == core.LawLeases)
		}
	}
}

func auditLeases(t *testing.T, h Harness) {
	_, w, v, req := vandalised(t, h, keyed("k", "a")...)
	v.Events(t, "a")
	w.announce(7, w.row("a"))
	w.audit(req)
	v.Silent(t)
	law := w.audit(req, core.LawLeases)[core.LawLeases]
	want(t, "leases without a worker", law.Breaches[0].Total, int64(w.partitions()))
	_, err := w.src.Heartbeat(w.ctx, w.owner, nil, long)
	w.must(err)
	w.audit(req)
	v.Orphan(t, 1)
	law = w.audit(req, core.LawLeases)[core.LawLeases]
	want(t, "stray inflight rows", law.Breaches[0].Total, 1)
	v.Orphan(t, -1)
	w.audit(req)
	v.Silent(t)
	w.release()
	if got := w.audit(req)[core.LawLeases]; !got.Checked {
		t.Errorf("%+v", got)
	}
}

func auditStray(t *testing.T, h Harness) {
	table, w, v, req := vandalised(t, h, keyed("k", "a")...)
	v.Events(t, "a")
	row := w.row("a")
	w.announce(7, row)
	w.expire()
	v.Orphan(t, 1)
	w.audit(req, core.LawLeases)
	two := join(t, table, "two")
	if _, marked := two.takeOver(false)[row.Record.Seq]; !marked {
		t.Error("the row is not known as one that may have been sent")
	}
	_, err := two.src.Heartbeat(two.ctx, two.owner, nil, long)
	two.must(err)
	two.audit(req)
}

func auditStates(t *testing.T, h Harness) {
	_, w, v, req := vandalised(t, h, keyed("k", "a", "b")...)
	v.Events(t, "a", "b")
	v.Damage(t, "b")
	w.names(w.audit(req, core.LawLeases)[core.LawLeases], "b")
	v.Mend(t, "b")
	w.audit(req)
}

func auditOperatorsSQL(t *testing.T, h Harness) {
	_, w, v, req := vandalised(t, h, keyed("k", "a")...)
	v.Events(t, "a")
	right := *req.Events
	wrong := func(what string, change func(e *core.Events)) {
		t.Helper()
		e := right
		change(&e)
		req := req
		req.Events = &e
		for _, req.Dry = range []bool{true, false} {
			if a, err := w.src.(core.Auditor).Audit(w.ctx, req); err == nil || !strings.Contains(err.Error(), "audit.events") {
				t.Errorf("a wrong %s (dry: %v): %+v, %v", what, req.Dry, a, err)
			}
		}
	}
	wrong("command", func(e *core.Events) { e.Command = "no_such_column" })
	wrong("command", func(e *core.Events) { e.Command = "id) FROM nowhere" })
	wrong("where", func(e *core.Events) { e.Where = "no_such_column = 1" })
	wrong("table", func(e *core.Events) { e.Table += "2" })
	wrong("join", func(e *core.Events) { e.Command, e.Join = "", "no_such_column" })
	req.Dry = true
	a, err := w.src.(core.Auditor).Audit(w.ctx, req)
	w.must(err)
	want(t, "laws of a dry audit", len(a.Laws), 0)
	req.Dry = false
	for _, comment := range []string{"1 = 1 -- everything", "id <> '?' AND id <> '$1' AND id <> ';'"} {
		req.Events.Where = comment
		w.audit(req)
	}
}

func auditDeadline(t *testing.T, h Harness) {
	_, w, v, req := vandalised(t, h, keyed("k", "a")...)
	v.Events(t, "a")
	req.Timeout = time.Nanosecond
	if a, err := w.src.(core.Auditor).Audit(w.ctx, req); err == nil {
		t.Errorf("an audit that may take no time: %+v", a)
	}
	req.Timeout = patience
	w.audit(req)
}
