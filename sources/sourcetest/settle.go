package sourcetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/connectd/connectd/core"
)

var settleTests = []test{
	{"published keeps the row with its time", settlePublished},
	{"published deletes the row when nothing is kept", settleDeleted},
	{"every outcome is written as absolute values", settleOutcomes},
	{"a Delay makes the row due later by the database's clock", settleDelay},
	{"a row found changed is left alone", settleGuard},
	{"rows found changed are left alone, however many", settleGuardMany},
	{"a repeated Step is harmless", settleTwice},
	{"the time of the first failure is kept until an operator retries", settleFailing},
	{"recording a failure never fails, whatever its text", settleText},
	{"history holds every field and is bounded", settleHistory},
	{"a Change is all or nothing", settleAtomic},
	{"a large mixed Change settles each row as told", settleMixed},
	{"a Step takes 2,000 rows, and kept rows do not slow a fetch", settleMany},
}

func settlePublished(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a", "b")...)
	w.settle(w.row("a"), core.Settlement{State: core.Published})
	info, history := w.show("a")
	want(t, "state", info.State, core.Published)
	want(t, "deliveries", info.Deliveries, 1)
	want(t, "lines of history", len(history), 0)
	if age := time.Since(info.PublishedAt); age > patience || age < -patience {
		t.Errorf("published at %v", info.PublishedAt)
	}
	want(t, "rows pending", len(w.pending()), 1)
}

func settleDeleted(t *testing.T, h Harness) {
	table := h.New(t, Options{DeletePublished: true})
	table.Insert(t, keyed("k", "a", "b", "c")...)
	w := join(t, table, "one")
	w.acquireAll()
	a := w.row("a")
	w.settle(a, core.Settlement{State: core.Pending, Attempts: 1, Failure: &core.Failure{Code: "x"}})
	w.settle(a, core.Settlement{State: core.Published}) // refused by the guard: it is older than the row
	want(t, "rows pending", len(w.pending()), 3)
	w.settle(w.row("a"), core.Settlement{State: core.Published})
	w.settle(w.row("b"), core.Settlement{State: core.Published})
	for _, id := range []string{"a", "b"} {
		if _, _, err := w.op.Show(w.ctx, id); !errors.Is(err, core.ErrNoRow) {
			t.Errorf("show %s: %v, want %v", id, err, core.ErrNoRow)
		}
	}
	w.settle(a, core.Settlement{State: core.Published}) // of a row that is gone
	table.Insert(t, keyed("k", "d")...)
	if d, c := w.row("d"), w.row("c"); d.Record.Seq <= c.Record.Seq {
		t.Errorf("a deleted row's seq was used again: %d after %d", d.Record.Seq, c.Record.Seq)
	}
	w.kill("c")
	info, _ := w.show("c")
	want(t, "state of a row that is not published", info.State, core.Dead)
}

func settleOutcomes(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "retryable", "dead", "held", "unknown")...)
	refused := &core.Failure{Code: "http_500", Message: "it broke", Duration: 1234 * time.Millisecond}
	for id, s := range map[string]core.Settlement{
		"retryable": {State: core.Pending, Attempts: 4, Crashes: 0, Failure: refused},
		"dead":      {State: core.Dead, Attempts: 5, Crashes: 1, Failure: refused},
		"held":      {State: core.Held, Attempts: 2, Crashes: 2, Failure: refused},
		"unknown":   {State: core.Pending, Attempts: 0, Crashes: 3, Failure: refused},
	} {
		w.settle(w.row(id), s)
		info, history := w.show(id)
		want(t, "state of "+id, info.State, s.State)
		want(t, "attempts of "+id, info.Attempts, s.Attempts)
		want(t, "crashes of "+id, info.Crashes, s.Crashes)
		want(t, "deliveries of "+id, info.Deliveries, 1)
		want(t, "available at of "+id, info.AvailableAt.IsZero(), true)
		want(t, "lines of history of "+id, len(history), 1)
		if !strings.Contains(info.LastError, "http_500") || !strings.Contains(info.LastError, "it broke") {
			t.Errorf("last error of %s: %q", id, info.LastError)
		}
		_, pending := w.pending()[id]
		want(t, id+" is pending", pending, s.State == core.Pending)
	}
}

// A failed row is due later, not at once: https://github.com/xavierjohn/Trellis/pull/644,
// https://github.com/zarusz/SlimMessageBus/pull/475
func settleDelay(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "later", "soon", "now")...)
	w.settle(w.row("later"), core.Settlement{State: core.Pending, Attempts: 1, Delay: time.Hour, Failure: &core.Failure{Code: "x"}})
	w.settle(w.row("soon"), core.Settlement{State: core.Pending, Attempts: 1, Delay: time.Microsecond, Failure: &core.Failure{Code: "x"}})
	if r := w.row("later"); r.Wait < 59*time.Minute || r.Wait > time.Hour {
		t.Errorf("wait of a row due in an hour: %v", r.Wait)
	}
	want(t, "wait of a row that never waited", w.row("now").Wait <= 0, true)
	w.until("the short delay to pass", func() bool { return w.row("soon").Wait <= 0 })
	info, _ := w.show("later")
	if left := time.Until(info.AvailableAt); left < 50*time.Minute || left > 70*time.Minute {
		t.Errorf("available at %v, in %v", info.AvailableAt, left)
	}
	w.settle(w.row("later"), core.Settlement{State: core.Pending, Attempts: 2, Failure: &core.Failure{Code: "x"}})
	after, _ := w.show("later")
	want(t, "available at after a settlement without delay", after.AvailableAt, info.AvailableAt)
}

// A settlement that knows less than the row says: https://github.com/riverqueue/river/issues/1302
func settleGuard(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a")...)
	old := w.row("a")
	w.settle(old, core.Settlement{State: core.Pending, Attempts: 1, Failure: &core.Failure{Code: "first"}})
	for _, state := range []core.State{core.Published, core.Dead, core.Held, core.Pending} {
		w.settle(old, core.Settlement{State: state, Attempts: 9, Failure: &core.Failure{Code: "late"}})
	}
	info, history := w.show("a")
	want(t, "state", info.State, core.Pending)
	want(t, "attempts", info.Attempts, 1)
	want(t, "deliveries", info.Deliveries, 1)
	want(t, "lines of history", len(history), 1)
	w.kill("a")
	for _, deliveries := range []int{1, 2} {
		w.settle(found{core.Row{Record: old.Record, Deliveries: deliveries}, old.part}, core.Settlement{State: core.Published})
	}
	info, _ = w.show("a")
	want(t, "state of a dead row", info.State, core.Dead)
	w.settle(found{core.Row{Record: core.Record{Seq: 987654321}}, old.part}, core.Settlement{State: core.Published})
}

// A failure that is recorded again stops nothing:
// https://github.com/rails/solid_queue/commit/629ae5559f7700084900b61eec3edb5db467f945
func settleTwice(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a", "b", "c")...)
	rows := w.pending()
	a, b, c := rows["a"], rows["b"], rows["c"]
	w.announce(1, a, b)
	change := core.Change{
		Settle: []core.Settlement{
			{Seq: a.Record.Seq, State: core.Published},
			{Seq: b.Record.Seq, State: core.Pending, Attempts: 1, Delay: time.Hour, Failure: &core.Failure{Code: "x"}},
		},
		Finished: []core.Finished{{Batch: 1}},
		Announce: []core.Announcement{{Batch: 2, Seqs: []int64{c.Record.Seq}}},
	}
	w.must(w.step(a.part, change))
	published, _ := w.show("a")
	later, _ := w.show("b")
	for range 3 {
		w.must(w.step(a.part, change))
	}
	again, _ := w.show("a")
	want(t, "published at", again.PublishedAt, published.PublishedAt)
	want(t, "deliveries of a", again.Deliveries, 1)
	after, history := w.show("b")
	want(t, "available at", after.AvailableAt, later.AvailableAt)
	want(t, "attempts of b", after.Attempts, 1)
	want(t, "lines of history", len(history), 1)
	want(t, "rows in flight", w.inFlight(), 1)
}

func settleFailing(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a")...)
	want(t, "failing before a failure", w.row("a").Failing, 0)
	w.settle(w.row("a"), core.Settlement{State: core.Pending, Attempts: 1, Failure: &core.Failure{Code: "x"}})
	w.until("the row to be failing for 20ms", func() bool { return w.row("a").Failing >= 20*time.Millisecond })
	w.settle(w.row("a"), core.Settlement{State: core.Pending, Attempts: 2, Failure: &core.Failure{Code: "x"}})
	if got := w.row("a").Failing; got < 20*time.Millisecond || got > patience {
		t.Errorf("failing for %v after the second failure", got)
	}
	w.kill("a")
	w.must(w.op.Retry(w.ctx, core.Act{ID: "a", By: "ops"}))
	want(t, "failing after a retry by an operator", w.row("a").Failing, 0)
}

// The failure that cannot be recorded: https://github.com/hatchet-dev/hatchet/pull/4619
func settleText(t *testing.T, h Harness) {
	for i, message := range []string{"", "a\x00b", "\xff\xfe\xc3", strings.Repeat("x", 1<<20), strings.Repeat("\xf0\x9f\x98\x80", 2000), "line\nline\ttab\x1b[31m", `'; DROP TABLE outbox; --`} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			_, w := start(t, h, keyed("k", "a")...)
			w.settle(w.row("a"), core.Settlement{State: core.Dead, Attempts: 1, Failure: &core.Failure{Code: "c" + message, Message: message}})
			info, history := w.show("a")
			want(t, "state", info.State, core.Dead)
			want(t, "lines of history", len(history), 1)
			for name, text := range map[string]string{"last error": info.LastError, "code": history[0].Code, "message": history[0].Message} {
				if !utf8.ValidString(text) || len(text) > core.MaxErrorText || strings.ContainsAny(text, "\x00\x1b\n") {
					t.Errorf("%s is %.60q, %d bytes", name, text, len(text))
				}
			}
		})
	}
}

func settleHistory(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a")...)
	const failures = core.MaxHistory + 20
	for n := 1; n <= failures; n++ {
		w.settle(w.row("a"), core.Settlement{State: core.Pending, Attempts: n, Failure: &core.Failure{
			Code: fmt.Sprint("code", n), Message: "message", Duration: time.Duration(n) * time.Millisecond}})
	}
	_, history := w.show("a")
	want(t, "lines of history", len(history), core.MaxHistory)
	for i, a := range history {
		n := failures - core.MaxHistory + 1 + i
		if a.Code != fmt.Sprint("code", n) || a.Message != "message" || a.Deliveries != n || a.By != "one" || a.Duration != time.Duration(n)*time.Millisecond {
			t.Fatalf("line %d of the history: %+v", i, a)
		}
		if age := time.Since(a.At); age < -patience || age > patience {
			t.Fatalf("line %d of the history is of %v", i, a.At)
		}
	}
}

func settleAtomic(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a", "b", "c")...)
	rows := w.pending()
	w.announce(1, rows["a"])
	before, _ := w.show("a")
	l := w.lease(rows["a"].part)
	l.Epoch++
	w.refused("Step", w.src.Step(w.ctx, w.owner, []core.Change{{
		Lease: l,
		Settle: []core.Settlement{
			{Seq: rows["a"].Record.Seq, State: core.Published},
			{Seq: rows["b"].Record.Seq, State: core.Dead, Failure: &core.Failure{Code: "x"}},
		},
		Finished: []core.Finished{{Batch: 1}},
		Announce: []core.Announcement{{Batch: 2, Seqs: []int64{rows["c"].Record.Seq}}},
	}}))
	unchanged(t, w, before)
	want(t, "rows pending", len(w.pending()), 3)
}
