package sourcetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

var operatorTests = []test{
	{"List filters by state, key and type", listFilters},
	{"List pages by seq, with a default limit", listPages},
	{"Show gives everything, or ErrNoRow", showAll},
	{"Retry makes a dead row due with attempts 0, and keeps deliveries and crashes", retryRow},
	{"ReleaseRow makes a held row pending", releaseRow},
	{"Skip settles dead and held rows", skipRow},
	{"changes are refused in every other state, with the state", changeRefused},
	{"an operator's change is not swallowed by a settlement under way", changeWins},
	{"the same row can be retried again and again", retryAgain},
	{"Pulse.Changes rises with each change and with nothing else", changesRise},
	{"Lag counts what waits", lagCounts},
}

func listFilters(t *testing.T, h Harness) {
	rows := append(keyed("k", "pending", "dead", "held"), Row{ID: "other", Key: "l", Keyed: true, Type: "created"}, Row{ID: "none", Type: "created"})
	_, w := start(t, h, rows...)
	w.kill("dead")
	w.hold("held")
	for _, c := range []struct {
		filter core.Filter
		ids    []string
	}{
		{core.Filter{}, []string{"pending", "dead", "held", "other", "none"}},
		{core.Filter{State: core.Pending}, []string{"pending", "other", "none"}},
		{core.Filter{State: core.Dead}, []string{"dead"}},
		{core.Filter{State: core.Held}, []string{"held"}},
		{core.Filter{State: core.Skipped}, nil},
		{core.Filter{Key: "k"}, []string{"pending", "dead", "held"}},
		{core.Filter{Type: "created"}, []string{"other", "none"}},
		{core.Filter{Type: "created", Key: "l"}, []string{"other"}},
		{core.Filter{State: core.Dead, Key: "l"}, nil},
		{core.Filter{Key: "' OR 1=1 --"}, nil},
	} {
		list, err := w.op.List(w.ctx, c.filter)
		w.must(err)
		var got []string
		for _, r := range list {
			got = append(got, r.ID)
			want(t, "payload in a list", len(r.Payload), 0)
		}
		if fmt.Sprint(got) != fmt.Sprint(c.ids) {
			t.Errorf("%+v: got %q, want %q", c.filter, got, c.ids)
		}
	}
}

func listPages(t *testing.T, h Harness) {
	var rows []Row
	for i := range 130 {
		rows = append(rows, keyed("k", fmt.Sprint("row", i))...)
	}
	_, w := start(t, h, rows...)
	list, err := w.op.List(w.ctx, core.Filter{})
	w.must(err)
	want(t, "rows without a limit", len(list), 100)
	seen := 0
	f := core.Filter{Limit: 40}
	for {
		list, err := w.op.List(w.ctx, f)
		w.must(err)
		if len(list) == 0 {
			break
		}
		for _, r := range list {
			if r.ID != fmt.Sprint("row", seen) {
				t.Fatalf("row %d is %s", seen, r.ID)
			}
			seen++
		}
		f.After = list[len(list)-1].Seq
	}
	want(t, "rows paged", seen, 130)
}

func showAll(t *testing.T, h Harness) {
	_, w := start(t, h, Row{ID: "a", Key: "k", Keyed: true, Route: "r", Type: "ty", Payload: []byte("p\x00"), Headers: `{"a": "b"}`})
	r := w.row("a")
	w.settle(r, core.Settlement{State: core.Dead, Attempts: 3, Crashes: 2, Failure: &core.Failure{Code: "http_400", Message: "bad", Duration: time.Second}})
	w.must(w.op.Retry(w.ctx, core.Act{ID: "a", By: "alice"}))
	info, history := w.show("a")
	want(t, "seq", info.Seq, r.Record.Seq)
	want(t, "part", info.Part, r.part)
	want(t, "key", info.Key, "k")
	want(t, "keyed", info.Keyed, true)
	want(t, "route", info.Route, "r")
	want(t, "type", info.Type, "ty")
	want(t, "payload", string(info.Payload), "p\x00")
	want(t, "size", info.Size, 2)
	want(t, "created at", info.CreatedAt, r.Record.CreatedAt)
	if len(info.Headers) < len(`{"a":"b"}`) {
		t.Errorf("headers are %q", info.Headers)
	}
	if len(history) != 2 {
		t.Fatalf("history: %+v", history)
	}
	first, second := history[0], history[1]
	if first.Code != "http_400" || first.Message != "bad" || first.By != "one" || first.Duration != time.Second || first.Deliveries != 1 {
		t.Errorf("the failure: %+v", first)
	}
	if second.Code != "retry" || second.By != "alice" {
		t.Errorf("the operator's retry: %+v", second)
	}
	if _, _, err := w.op.Show(w.ctx, "nobody"); !errors.Is(err, core.ErrNoRow) {
		t.Errorf("show of no row: %v", err)
	}
}

func retryRow(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a", "b")...)
	w.settle(w.row("a"), core.Settlement{State: core.Pending, Attempts: 1, Delay: time.Hour, Failure: &core.Failure{Code: "x"}})
	w.settle(w.row("a"), core.Settlement{State: core.Dead, Attempts: 7, Crashes: 4, Failure: &core.Failure{Code: "y"}})
	w.must(w.op.Retry(w.ctx, core.Act{ID: "a", By: "ops"}))
	r := w.row("a")
	want(t, "attempts", r.Attempts, 0)
	want(t, "deliveries", r.Deliveries, 2)
	want(t, "crashes", r.Crashes, 4)
	want(t, "due", r.Wait <= 0, true)
	wantIDs(t, "rows in order", w.fetch(core.FetchRequest{Part: r.part}).Rows, "a", "b")
}

func releaseRow(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a")...)
	w.settle(w.row("a"), core.Settlement{State: core.Held, Attempts: 2, Crashes: 3, Failure: &core.Failure{Code: "x"}})
	w.must(w.op.ReleaseRow(w.ctx, core.Act{ID: "a", By: "ops"}))
	r := w.row("a")
	want(t, "deliveries", r.Deliveries, 1)
	want(t, "attempts", r.Attempts, 2)
	want(t, "crashes", r.Crashes, 3)
	want(t, "due", r.Wait <= 0, true)
}

func skipRow(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "dead", "held")...)
	part := w.row("dead").part
	w.kill("dead")
	w.hold("held")
	for _, id := range []string{"dead", "held"} {
		w.must(w.op.Skip(w.ctx, core.Act{ID: id, By: "ops"}))
		info, history := w.show(id)
		want(t, "state", info.State, core.Skipped)
		want(t, "lines of history", len(history), 2)
	}
	blocks, err := w.src.Blocking(w.ctx, part, true)
	w.must(err)
	want(t, "keys still blocked", len(blocks), 0)
}

func changeRefused(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "pending", "dead", "held", "published", "skipped")...)
	w.kill("dead")
	w.hold("held")
	w.settle(w.row("published"), core.Settlement{State: core.Published})
	w.kill("skipped")
	w.must(w.op.Skip(w.ctx, core.Act{ID: "skipped", By: "ops"}))
	for _, c := range []struct {
		verb    string
		do      func(id string) error
		allowed []string
		want    string
	}{
		{"retry", func(id string) error { return w.op.Retry(w.ctx, core.Act{ID: id, By: "ops"}) }, []string{"dead"}, "dead"},
		{"release", func(id string) error { return w.op.ReleaseRow(w.ctx, core.Act{ID: id, By: "ops"}) }, []string{"held"}, "held"},
		{"skip", func(id string) error { return w.op.Skip(w.ctx, core.Act{ID: id, By: "ops"}) }, []string{"dead", "held"}, "dead or held"},
	} {
		if err := c.do("nobody"); !errors.Is(err, core.ErrNoRow) {
			t.Errorf("%s of no row: %v", c.verb, err)
		}
		for _, id := range []string{"pending", "dead", "held", "published", "skipped"} {
			if fmt.Sprint(c.allowed) == fmt.Sprint([]string{id}) || len(c.allowed) == 2 && (id == "dead" || id == "held") {
				continue
			}
			before, lines := w.show(id)
			var state *core.StateError
			if err := c.do(id); !errors.As(err, &state) || state.State != core.State(id) || state.Want != c.want || state.ID != id {
				t.Errorf("%s of a row that is %s: %v", c.verb, id, err)
			}
			after, linesAfter := w.show(id)
			want(t, "state after a refused "+c.verb, after.State, before.State)
			want(t, "history after a refused "+c.verb, len(linesAfter), len(lines))
		}
	}
}

func changeWins(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a")...)
	first := w.row("a")
	dead := core.Settlement{State: core.Dead, Attempts: 1, Failure: &core.Failure{Code: "x"}}
	w.settle(first, dead)
	w.must(w.op.Retry(w.ctx, core.Act{ID: "a", By: "ops"}))
	w.settle(first, dead) // the settlement is repeated: its outcome was not known
	info, _ := w.show("a")
	want(t, "state", info.State, core.Pending)
	want(t, "deliveries", info.Deliveries, 1)
}

// A second replay that does nothing: https://github.com/hookdeck/outpost/pull/670
func retryAgain(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a")...)
	for n := 1; n <= 3; n++ {
		w.kill("a")
		w.must(w.op.Retry(w.ctx, core.Act{ID: "a", By: "ops"}))
		want(t, "deliveries", w.row("a").Deliveries, n)
	}
	_, history := w.show("a")
	want(t, "lines of history", len(history), 6)
}

func changesRise(t *testing.T, h Harness) {
	table, w := start(t, h, keyed("k", "a", "b")...)
	last := w.beat("{}", long).Changes
	rises := func(what string, rose bool) {
		t.Helper()
		now := join(t, table, "one").beat("{}", long).Changes
		if (now > last) != rose {
			t.Errorf("changes went from %d to %d after %s", last, now, what)
		}
		last = now
	}
	w.kill("a")
	w.hold("b")
	table.Insert(t, keyed("k", "c")...)
	rises("settlements and an insert", false)
	w.must(w.op.Retry(w.ctx, core.Act{ID: "a", By: "ops"}))
	rises("a retry", true)
	w.must(w.op.ReleaseRow(w.ctx, core.Act{ID: "b", By: "ops"}))
	rises("a release", true)
	w.hold("b")
	w.must(w.op.Skip(w.ctx, core.Act{ID: "b", By: "ops"}))
	rises("a skip", true)
	if err := w.op.Skip(w.ctx, core.Act{ID: "b", By: "ops"}); err == nil {
		t.Error("a skipped row was skipped again")
	}
	rises("a refused change", false)
}

func lagCounts(t *testing.T, h Harness) {
	table := h.New(t, Options{})
	w := join(t, table, "one")
	w.acquireAll()
	empty, err := w.op.Lag(w.ctx)
	w.must(err)
	want(t, "lag of an empty table", empty, core.Lag{})
	table.Insert(t, keyed("k", "due", "later", "dead", "held", "published", "sending")...)
	w.settle(w.row("later"), core.Settlement{State: core.Pending, Attempts: 1, Delay: time.Hour, Failure: &core.Failure{Code: "x"}})
	w.kill("dead")
	w.hold("held")
	w.settle(w.row("published"), core.Settlement{State: core.Published})
	w.announce(1, w.row("sending"))
	var lag core.Lag
	w.until("the oldest row to have an age", func() bool {
		lag, err = w.op.Lag(w.ctx)
		w.must(err)
		return lag.Oldest >= 10*time.Millisecond
	})
	want(t, "age of the oldest due row is known", lag.OldestDue > 0 && lag.OldestDue < patience, true)
	lag.Oldest, lag.OldestDue = 0, 0
	want(t, "lag", lag, core.Lag{Pending: 3, Due: 2, Dead: 1, Held: 1, InFlight: 1})
	w.settle(w.row("due"), core.Settlement{State: core.Published})
	w.settle(w.row("sending"), core.Settlement{State: core.Published})
	lag, err = w.op.Lag(w.ctx)
	w.must(err)
	want(t, "due rows", lag.Due, 0)
	want(t, "age of the oldest due row without one", lag.OldestDue, 0)
	want(t, "age of the oldest row is known", lag.Oldest > 0, true)
}
